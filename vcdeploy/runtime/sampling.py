"""Sampling: from logits to symbols. It knows arrays only, no framework and no vocabulary."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import VcdeployError


class Runnable(Protocol):
    """What every backend offers: tokens [T, B] in, logits [T, B, vocab], state and m [T, B, layers] out."""

    def run(self, tokens: NDArray[np.int64], state: Any = None, position: int = 0) -> tuple[Any, Any, Any]: ...


def choose(logits: NDArray[Any], uniform: float, temperature: float, top_k: int, top_p: float) -> int:
    """The symbol at `uniform` (0 to 1) of the cumulated distribution of logits [vocab].

    Temperature 0 is the most likely symbol; top_k 0 and top_p 1 leave nothing out.
    """
    if not np.isfinite(logits).all():
        raise VcdeployError("the model's logits hold NaN or infinity: its training diverged; use another checkpoint")
    if temperature == 0:
        return int(np.argmax(logits))
    scaled = logits.astype(np.float64) / temperature
    p = np.exp(scaled - scaled.max())
    order = np.argsort(-p, kind="stable")
    p = p[order] / p.sum()
    keep = np.cumsum(p) - p < top_p  # the fewest symbols that reach top_p together
    if top_k:
        keep[top_k:] = False
    cumulated = np.cumsum(p[keep])
    return int(order[np.searchsorted(cumulated, uniform * cumulated[-1], side="right").clip(max=len(cumulated) - 1)])


def check_settings(prime_length: int, length: int, temperature: float, top_k: int, top_p: float) -> None:
    """Raise where a sample can't be drawn so."""
    if prime_length == 0:
        raise VcdeployError("sampling needs a prime of at least one symbol")
    if length < 0:
        raise VcdeployError(f"length must be 0 or more, not {length}")
    if not 0 <= temperature < np.inf or top_k < 0 or not 0 < top_p <= 1:
        raise VcdeployError(
            f"temperature must be 0 or more ({temperature}), top_k 0 or more ({top_k}), top_p above 0 up to 1 ({top_p})"
        )


def generate(
    model: Runnable,
    prime: NDArray[np.int64],
    length: int,
    *,
    temperature: float = 0.8,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> Iterator[int]:
    """`length` symbols after the prime (at least one symbol), one by one; the same seed, the same symbols."""
    check_settings(len(prime), length, temperature, top_k, top_p)
    random = np.random.default_rng(seed)
    tokens, state, position = np.asarray(prime, np.int64).reshape(-1, 1), None, 0
    for _ in range(length):
        logits, state, _ = model.run(tokens, state, position)
        position += len(tokens)
        token = choose(logits[-1, 0], random.random(), temperature, top_k, top_p)
        yield token
        tokens = np.array([[token]], np.int64)


def log_probabilities(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Natural logarithms of the distributions [..., vocab] that the logits stand for."""
    wide = logits.astype(np.float64)
    wide -= wide.max(-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(-1, keepdims=True))
    return wide


class Reader:
    """Reads symbols as they come, and says of each how well the model foresaw it and what it spent on it."""

    def __init__(self, model: Runnable) -> None:
        self._model = model
        self._state: Any = None
        self._position = 0
        self._logits: NDArray[Any] | None = None  # [vocab], for the symbol to come

    def read(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of each of ids [n]: its bits, and m of the step that read it, the mean of the layers.

        Bits are those of the model's own distribution, at temperature 1; NaN for the very first symbol.
        """
        logits, self._state, m = self._model.run(ids.reshape(-1, 1), self._state, self._position)
        self._position += len(ids)
        first = np.full(logits.shape[-1], np.nan) if self._logits is None else self._logits
        before = log_probabilities(np.vstack([first, logits[:-1, 0]]))  # [n, vocab]
        self._logits = logits[-1, 0]
        bits = -before[np.arange(len(ids)), ids] / np.log(2)
        return bits, m[:, 0].astype(np.float64).mean(-1)
