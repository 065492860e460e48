"""Tunes: how a model of music begins one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vcdeploy.music.opening import field_symbol, open_tune
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.sampling import Sampling, choose


def begin(
    model: Model, start: Sequence[int], meter: str | None, key: str | None, sampling: Sampling
) -> tuple[NDArray[np.int64], int]:
    """The ids to continue a tune from, and the index where the tune begins in them.

    start: the ids it begins with, if any. Meter and key that are not given are drawn with the seed.
    """
    fields = field_symbol(meter, "meter", model.vocab), field_symbol(key, "key", model.vocab)
    return open_tune(model.vocab, start, *fields, _pick(model, sampling))


def _pick(model: Model, sampling: Sampling) -> Callable[[Sequence[int], NDArray[np.intp]], int]:
    """A function that draws one of the candidates from the model's distribution after the ids so far."""
    random = np.random.default_rng([sampling.seed, 1])  # independent of what generate draws from the seed

    def pick(so_far: Sequence[int], candidates: NDArray[np.intp]) -> int:
        ids = np.array(so_far, np.int64).reshape(-1, 1)
        logits = model.run(ids, logits="last")[0][-1, 0] if len(ids) else np.zeros(len(model.vocab))
        options = Sampling(sampling.temperature, top_p=1.0)
        return int(candidates[choose(logits[candidates], random.random(), options)])

    return pick
