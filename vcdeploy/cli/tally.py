"""The samples of a command: the symbols as they are generated, and what they came to, for its last line."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vcdeploy.runtime import Model, Sampling


@dataclass
class Tally:
    """Counts over all samples; the clock runs only while the model does."""

    primed: int = 0
    made: int = 0
    seconds: float = 0.0
    bits: float = 0.0
    sum_m: float = 0.0
    _latest: float = 0.0  # the m of the newest step

    def sample(
        self, model: Model, prime: NDArray[np.int64], length: int, sampling: Sampling, end: int | None = None
    ) -> Iterator[int]:
        """The ids of a sample as they are generated: `length` of them, or up to the id `end`.

        The m of a symbol is that of the step that reads it, which comes with the next token. So one more is drawn.
        """
        self.primed += len(prime)
        tokens, made, id_ = model.stream(prime, length + 1, sampling), 0, -1
        while True:
            start = time.perf_counter()
            token = next(tokens)
            self.seconds += time.perf_counter() - start
            if made:
                self._latest = token.m
                self.sum_m += token.m
            if made == length or id_ == end:
                return
            id_, made = token.id, made + 1
            self.made += 1
            self.bits -= token.log_probability / math.log(2)
            yield id_

    def sample_with_m(
        self, model: Model, prime: NDArray[np.int64], length: int, sampling: Sampling, end: int | None = None
    ) -> Iterator[tuple[int, float]]:
        """The ids of `sample`, each with its m, one step later."""
        waiting: list[int] = []
        for id_ in self.sample(model, prime, length, sampling, end):
            if waiting:
                yield waiting.pop(), self._latest
            waiting.append(id_)
        yield waiting.pop(), self._latest

    def describe(self, model: Model, threads: int) -> str:
        symbols = self.primed + self.made
        backend = f"{model.backend} ({model.detail})" if model.detail else model.backend
        return (
            f"{backend}, {model.precision}, {threads} thread{'s' * (threads > 1)} · "
            f"{symbols / max(self.seconds, 1e-9):,.0f} tokens/s ({self.primed:,} read, {self.made:,} generated) · "
            f"{self.bits / self.made:.3f} bits per symbol · mean m {self.sum_m / self.made:.3f}"
        )


def m_of(model: Model, ids: NDArray[np.int64]) -> list[float]:
    """The m of the steps that read ids [n], the mean over layers."""
    _, _, m = model.run(ids.reshape(-1, 1))
    means: list[float] = m[:, 0].mean(-1, dtype=np.float64).tolist()
    return means
