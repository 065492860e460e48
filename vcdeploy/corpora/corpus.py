"""A corpus: three sequences of ids, and what each position of them is."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy.corpora import music
from vcdeploy.corpora.vocabulary import Vocabulary
from vcdeploy.errors import VcdeployError

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Corpus:
    """`splits` holds 'train', 'valid' and 'test', each 1-D, in the narrowest type that fits the ids."""

    name: str
    kind: str
    vocab: Vocabulary
    splits: Mapping[str, NDArray[np.unsignedinteger[Any]]]
    unknown_dropped: Mapping[str, int]  # symbols outside a given vocabulary, by split
    left_out: Mapping[str, int] = field(default_factory=dict)  # tunes, by reason

    def boundaries(self, split: str) -> Mask:
        """Where a unit above the symbol ends, as `Vocabulary.boundaries` says."""
        return self.vocab.boundaries(self._ids(split))

    def classes(self, split: str) -> dict[str, Mask]:
        """Positions by what is read there, in display order; classes may overlap, empty ones are left out.

        Words are runs of anything but white space; a word of one character is its start and its end.
        Note lengths count eighths ("note length 1/2" is a sixteenth); one is listed if at least one
        note in a hundred has it. A repeated note has the written pitch of the note before it, in
        the same tune.
        """
        ids = self._ids(split)
        found = {"text": self._text, "bits": self._bits, "music": self._music}[self.kind](ids)
        return {name: mask for name, mask in found.items() if mask.any()}

    def _ids(self, split: str) -> NDArray[np.unsignedinteger[Any]]:
        if split not in self.splits:
            raise VcdeployError(f"there is no split {split!r}; {self.name} has {', '.join(self.splits)}")
        return self.splits[split]

    def _where(self, ids: NDArray[Any], holds: Callable[[str], bool]) -> Mask:
        """The positions whose symbol is such that `holds`, looked up by id."""
        return np.array([holds(symbol) for symbol in self.vocab.symbols], bool).take(ids)

    def _text(self, ids: NDArray[Any]) -> dict[str, Mask]:
        # First letters of the Unicode categories: L letters and M their marks, N numbers, P and S signs.
        def of(categories: str) -> Mask:
            return ~space & self._where(ids, lambda s: unicodedata.category(s[0])[0] in categories)

        space = self._where(ids, str.isspace)
        edge = np.ones(1, bool)
        start = ~space & np.concatenate([edge, space])[:-1]
        end = ~space & np.concatenate([space, edge])[1:]
        return {
            "white space": space,
            "letter": of("LM"),
            "digit": of("N"),
            "punctuation": of("PS"),
            "other": of("CZ"),
            "start of word": start,
            "inside word": ~(space | start | end),
            "end of word": end,
        }

    def _bits(self, ids: NDArray[Any]) -> dict[str, Mask]:
        place = np.arange(len(ids)) % self.vocab.period
        names = ["bit 0 (most significant)", *(f"bit {i}" for i in range(1, 8))]
        return {
            **{name: place == i for i, name in enumerate(names)},
            "characters": place < 8,
            "buffer": place >= 8,
        }

    def _music(self, ids: NDArray[Any]) -> dict[str, Mask]:
        def of(role: str) -> Mask:
            return self._where(ids, lambda s: music.role(s) == role)

        roles = {role: of(role) for role in music.ROLES}
        notes = {i: s for i, s in enumerate(self.vocab.symbols) if music.role(s) == "note"}
        counts = np.bincount(ids, minlength=len(self.vocab))
        common: Counter[Fraction] = Counter()
        for i, symbol in notes.items():
            common[music.length(symbol)] += int(counts[i])
        lengths = {
            f"note length {length}": np.isin(ids, [i for i, s in notes.items() if music.length(s) == length])
            for length, count in common.most_common()
            if count * 100 >= common.total()
        }
        # From note to note, with tune ends between them: ends are pitch 0, notes count from 1.
        pitches = sorted({music.pitch(symbol) for symbol in notes.values()})
        number = np.zeros(len(self.vocab), np.int64)  # [vocab]
        number[list(notes)] = [pitches.index(music.pitch(symbol)) + 1 for symbol in notes.values()]
        followed = np.flatnonzero(roles["note"] | roles["tune end"])
        steps = number[ids[followed]]
        repeated = np.zeros(len(ids), bool)
        repeated[followed[1:]] = (steps[1:] == steps[:-1]) & (steps[1:] > 0)
        first = {role: roles.pop(role) for role in ("bar", "rest", "note")}
        return {**first, **lengths, "repeated note": repeated, **roles}
