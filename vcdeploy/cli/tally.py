"""Samples as they are generated, with the totals that a command prints in its last line."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vcdeploy.runtime.model import Model
from vcdeploy.runtime.sampling import Allowed, Sampling

# Whether a sample is complete, from its number of symbols, the last one and the one that would follow.
Stop = Callable[[int, int, int], bool]


@dataclass
class Tally:
    """Totals over all samples; only the model's own time is counted."""

    primed: int = 0
    made: int = 0
    seconds: float = 0.0
    bits: float = 0.0
    read: int = 0
    sum_m: float = 0.0
    m: list[float] = field(default_factory=list)  # of the current sample; the last symbol's comes last

    def sample(
        self,
        model: Model,
        prime: NDArray[np.int64],
        length: int,
        sampling: Sampling,
        stop: Stop | None = None,
        allowed: Allowed | None = None,
    ) -> Iterator[list[int]]:
        """Yield the ids of a sample in pieces, as they are generated: `length` of them, or fewer if `stop` or a stop
        string of `sampling` says so.

        The m of a symbol is that of the step that reads it, which comes with the next token; so one more is drawn.
        Except with stop strings: that token could complete one, and take symbols off the sample.
        """
        self.primed += len(prime)
        self.m = []
        drawn = length if sampling.stop else length + 1
        pieces, made, id_ = model.pieces(prime, drawn, sampling, allowed=allowed), 0, -1
        while True:
            start = time.perf_counter()
            piece = next(pieces, [])
            self.seconds += time.perf_counter() - start
            ids: list[int] = []
            for token in piece:
                if made:
                    self.m.append(token.m)
                    self.read += 1
                    self.sum_m += token.m
                if made == length or (made and stop is not None and stop(made, id_, token.id)):
                    yield ids
                    return
                id_, made = token.id, made + 1
                self.made += 1
                self.bits -= token.log_probability / math.log(2)
                ids.append(id_)
            yield ids
            if not piece:  # no token follows: a stop string ended it, or could have
                return

    def sample_with_m(
        self,
        model: Model,
        prime: NDArray[np.int64],
        length: int,
        sampling: Sampling,
        stop: Stop | None = None,
        allowed: Allowed | None = None,
    ) -> Iterator[tuple[int, float]]:
        """Yield the ids of `sample`, each with its m, one step later."""
        ids: list[int] = []
        shown = 0
        for piece in self.sample(model, prime, length, sampling, stop, allowed):
            ids += piece
            yield from zip(ids[shown:], self.m[shown:], strict=False)
            shown = len(self.m)
        if shown < len(ids):  # with stop strings, no step reads the last symbol
            yield ids[-1], m_of(model, np.concatenate([prime, ids]))[-1]

    def describe(self, model: Model, threads: int) -> str:
        symbols = self.primed + self.made
        detail = model.detail
        backend = f"{model.backend} ({detail})" if detail else model.backend
        mean_m = f" · mean m {self.sum_m / self.read:.3f}" if self.read else ""
        return (
            f"{backend}, {model.precision}, {threads} thread{'s' * (threads > 1)} · "
            f"{symbols / max(self.seconds, 1e-9):,.0f} tokens/s ({self.primed:,} read, {self.made:,} generated) · "
            f"{self.bits / max(self.made, 1):.3f} bits per symbol{mean_m}"
        )


def m_of(model: Model, ids: NDArray[np.int64]) -> list[float]:
    """m of the steps that read ids [n], mean over the layers."""
    _, _, m = model.run(ids.reshape(-1, 1))
    means: list[float] = m[:, 0].mean(-1, dtype=np.float64).tolist()
    return means
