"""Sampling symbols from logits. Uses arrays only, no framework and no vocabulary."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import VcdeployError


class Runnable(Protocol):
    """Any backend: run takes tokens [T, B] and returns logits [T, B, vocab], state and m [T, B, layers]."""

    def run(self, tokens: NDArray[np.int64], state: Any = None, position: int = 0) -> tuple[Any, Any, Any]: ...


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters.

    Attributes:
        temperature: 0 is greedy.
        top_k: Sample from the k most likely symbols; 0 for all.
        top_p: Nucleus sampling: the smallest set of symbols whose probabilities sum to p; 1 for all.
        seed: Of the random numbers.
    """

    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < np.inf or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise VcdeployError(
                f"temperature must be 0 or more ({self.temperature}), top_k 0 or more ({self.top_k}), "
                f"top_p above 0 up to 1 ({self.top_p})"
            )

    def uniforms(self) -> np.random.Generator:
        """The random number generator; each symbol takes one number."""
        return np.random.default_rng(self.seed)


def choose(logits: NDArray[Any], uniform: float, sampling: Sampling) -> int:
    """The symbol at `uniform` (0 to 1) of the cumulative distribution of logits [vocab]."""
    if not np.isfinite(logits).all():
        raise VcdeployError("the model's logits contain NaN or infinity: training diverged; use another checkpoint")
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    scaled = logits.astype(np.float64) / sampling.temperature
    p = np.exp(scaled - scaled.max())
    order = np.argsort(-p, kind="stable")
    p = p[order] / p.sum()
    keep = np.cumsum(p) - p < sampling.top_p  # nucleus sampling: the smallest set that reaches top_p
    if sampling.top_k:
        keep[sampling.top_k :] = False
    cumulative = np.cumsum(p[keep])
    place = np.searchsorted(cumulative, uniform * cumulative[-1], side="right").clip(max=len(cumulative) - 1)
    return int(order[place])


class Token(NamedTuple):
    """A generated symbol.

    Attributes:
        id: The symbol, an index into the vocabulary.
        m: Of the step it was sampled from, whose input is the previous symbol; mean over layers.
        log_probability: Natural logarithm of its probability under the model's own distribution, before temperature,
            top_k and top_p.
    """

    id: int
    m: float
    log_probability: float


def generate(model: Runnable, prime: NDArray[np.int64], length: int, sampling: Sampling) -> Iterator[Token]:
    """Generate `length` tokens after the prime (at least one symbol), one by one, with any backend's run."""
    random = sampling.uniforms()
    tokens, state, position = np.asarray(prime, np.int64).reshape(-1, 1), None, 0
    for _ in range(length):
        logits, state, m = model.run(tokens, state, position)
        position += len(tokens)
        token = draw(logits[-1, 0], m[-1, 0], random.random(), sampling)
        yield token
        tokens = np.array([[token.id]], np.int64)


def draw(logits: NDArray[Any], m: NDArray[Any], uniform: float, sampling: Sampling) -> Token:
    """Sample a token from the last step's logits [vocab] and m [layers]."""
    chosen = choose(logits, uniform, sampling)
    return Token(chosen, float(m.mean(dtype=np.float64)), float(log_probabilities(logits)[chosen]))


class PythonLoop:
    """Base class of backends without a native generation loop: calls `run` for each symbol."""

    @property
    def detail(self) -> str:
        """The variant in use; empty by default."""
        return ""

    def run(self, tokens: NDArray[np.int64], state: Any = None, position: int = 0) -> tuple[Any, Any, Any]:
        raise NotImplementedError

    def generate(self, prime: NDArray[np.int64], length: int, sampling: Sampling) -> Iterator[list[Token]]:
        return ([token] for token in generate(self, prime, length, sampling))


def log_probabilities(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Log-softmax of logits [..., vocab], in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(-1, keepdims=True))
    return wide


class Reader:
    """Reads symbols incrementally and reports the bits and m of each."""

    def __init__(self, model: Runnable) -> None:
        self._model = model
        self._state: Any = None
        self._position = 0
        self._logits: NDArray[Any] | None = None  # [vocab], for the next symbol

    def read(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """For each of ids [n]: its bits, and m of the step that read it (mean over layers).

        Bits are those of the model's own distribution, at temperature 1; NaN for the first symbol.
        """
        logits, self._state, m = self._model.run(ids.reshape(-1, 1), self._state, self._position)
        self._position += len(ids)
        first = np.full(logits.shape[-1], np.nan) if self._logits is None else self._logits
        before = log_probabilities(np.vstack([first, logits[:-1, 0]]))  # [n, vocab]
        self._logits = logits[-1, 0]
        bits = -before[np.arange(len(ids)), ids] / np.log(2)
        return bits, m[:, 0].astype(np.float64).mean(-1)
