"""Tunes: their opening, the form they keep to, and the notation of what was generated. Knows nothing about HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import BadValue
from vcdeploy.music import notation
from vcdeploy.music.form import Form
from vcdeploy.music.opening import field_symbol, open_tune
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.sampling import Allowed, Sampling, Token, choose


@dataclass(frozen=True)
class Opening:
    """What a tune is generated from.

    Attributes:
        ids: To read: an end of tune, meter, key, and the start that was given.
        begins: The index where the tune begins in ids.
        allowed: The symbols that may follow; None for all.
        stop: The ids after which the tune ends.
    """

    ids: list[int]
    begins: int
    allowed: Allowed | None
    stop: tuple[int, ...]


def opening(
    model: Model, start: str, meter: str | None, key: str | None, sampling: Sampling, free: bool = False
) -> Opening:
    """The opening of a tune. Meter and key that are not given are drawn with the seed.

    start: how the tune begins, in ABC or symbols. free: let any symbol follow.
    """
    vocab = model.vocab
    if vocab.kind != "music" or notation.END not in vocab.symbols:
        raise BadValue(f"{model.name} is no model of tunes")
    given = vocab.encode(start).tolist() if start.strip() else []
    fields = field_symbol(meter, "meter", vocab), field_symbol(key, "key", vocab)
    ids, begins = open_tune(vocab, given, *fields, _pick(model, sampling))
    return Opening(ids.tolist(), begins, None if free else Form(vocab.symbols), (vocab.symbols.index(notation.END),))


def _pick(model: Model, sampling: Sampling) -> Callable[[Sequence[int], NDArray[np.intp]], int]:
    """A function that draws one of the candidates from the model's distribution after the ids so far."""
    random = np.random.default_rng([sampling.seed, 1])  # independent of what generate draws from the seed

    def pick(so_far: Sequence[int], candidates: NDArray[np.intp]) -> int:
        ids = np.array(so_far, np.int64).reshape(-1, 1)
        logits = model.run(ids, logits="last")[0][-1, 0] if len(ids) else np.zeros(len(model.vocab))
        options = Sampling(sampling.temperature, top_p=1.0)
        return int(candidates[choose(logits[candidates], random.random(), options)])

    return pick


@dataclass(frozen=True)
class Tune:
    """A tune: its symbols, and m and log-probability of each that was generated; None for those that were given."""

    symbols: list[str]
    m: list[float | None]
    log_probabilities: list[float | None]

    @property
    def repaired(self) -> list[str]:
        """The symbols with what is missing for correct notation."""
        return notation.repaired(self.symbols)


def written(model: Model, opened: Opening, tokens: Sequence[Token]) -> Tune:
    """The tune that begins with the opening and goes on with the tokens."""
    symbols, given = model.vocab.symbols, opened.ids[opened.begins :]
    none: list[float | None] = [None] * len(given)
    return Tune(
        [symbols[id_] for id_ in given] + [symbols[token.id] for token in tokens],
        [*none, *(token.m for token in tokens)],
        [*none, *(token.log_probability for token in tokens)],
    )
