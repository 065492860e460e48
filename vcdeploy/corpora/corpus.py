"""A corpus: three sequences of ids, and the boundaries and classes of their positions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy.corpora.classes import Mask, classes
from vcdeploy.errors import VcdeployError
from vcdeploy.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Corpus:
    """An encoded corpus.

    `splits` holds 'train', 'valid' and 'test', each 1-D, in the narrowest type that fits the ids.
    """

    name: str
    kind: str
    vocab: Vocabulary
    splits: Mapping[str, NDArray[np.unsignedinteger[Any]]]
    unknown_dropped: Mapping[str, int]  # symbols outside a given vocabulary, by split
    left_out: Mapping[str, int] = field(default_factory=dict)  # number of tunes, by reason

    def boundaries(self, split: str) -> Mask:
        """Mask of the ends of words, bytes or bars, as in `Vocabulary.boundaries`."""
        return self.vocab.boundaries(self._ids(split))

    def classes(self, split: str) -> dict[str, Mask]:
        """Masks of the positions by class, as in vcdeploy.corpora.classes."""
        return classes(self.vocab, self._ids(split))

    def lowercased(self, share: float, seed: int) -> "Corpus":
        """The same corpus with this share of the lines of its training text, drawn at random, in lower case.

        A letter stays as it is if the vocabulary has no lower case of it.
        """
        if self.kind != "text":
            raise VcdeployError(f"only text has lower case, and {self.name} is {self.kind}: leave out --lowercase")
        symbols, ids = self.vocab.symbols, self._ids("train")
        lower = self.vocab.lookup([symbol.lower() for symbol in symbols])
        lower = np.where(lower < 0, np.arange(len(symbols)), lower).astype(ids.dtype)
        lines = np.cumsum(ids == self.vocab.lookup(["\n"])[0])
        chosen = np.random.default_rng(seed).random(int(lines[-1]) + 1) < share
        return replace(self, splits={**self.splits, "train": np.where(chosen[lines], lower[ids], ids)})

    def _ids(self, split: str) -> NDArray[np.unsignedinteger[Any]]:
        if split not in self.splits:
            raise VcdeployError(f"there is no split {split!r}; {self.name} has {', '.join(self.splits)}")
        return self.splits[split]
