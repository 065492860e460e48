"""Sampling symbols from logits. Uses arrays only, no framework and no vocabulary."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import BadValue, VcdeployError

# Takes all ids so far, the prime included, and returns the mask [vocab] of the symbols that may follow.
Allowed = Callable[[Sequence[int]], NDArray[np.bool_]]


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

    temperature: float = 0.5
    top_k: int = 0
    top_p: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < np.inf or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise BadValue(
                f"temperature must be 0 or more ({self.temperature}), top_k 0 or more ({self.top_k}), "
                f"top_p above 0 up to 1 ({self.top_p})"
            )
        if not isinstance(self.seed, (int, np.integer)) or self.seed < 0:
            raise BadValue(f"seed must be a whole number, 0 or more, not {self.seed!r}")

    def uniforms(self) -> np.random.Generator:
        """The random number generator; each symbol takes one number."""
        return np.random.default_rng(self.seed)


def choose(logits: NDArray[Any], uniform: float, sampling: Sampling) -> int:
    """The symbol at `uniform` (0 to 1) of the cumulative distribution of logits [vocab] (docs/design.md, section 2)."""
    return _draw(logits, uniform, sampling)[0]


def _draw(logits: NDArray[Any], uniform: float, sampling: Sampling) -> tuple[int, float]:
    """A symbol and its log-probability; the same operations in the same order as plugins/cpu/engine/sampling.cpp."""
    if not np.isfinite(logits).all():
        raise VcdeployError("the model's logits contain NaN or infinity: training diverged; use another checkpoint")
    wide, most = logits.astype(np.float64), float(logits.max())
    p, total = _exponentials(wide, 1.0, most)
    log_sum = math.log(total)
    if sampling.temperature == 0:
        chosen = int(np.argmax(logits))
    else:
        if sampling.temperature != 1:
            p, total = _exponentials(wide, sampling.temperature, most)
        order = np.argsort(-p, kind="stable")
        cumulative = np.cumsum(p[order])
        if sampling.top_k or sampling.top_p < 1:
            below = np.concatenate([[0.0], cumulative[:-1] / total])
            kept = int(np.count_nonzero(below < sampling.top_p))  # the smallest set that reaches top_p
            cumulative = cumulative[: min(kept, sampling.top_k or kept)]
            total = cumulative[-1]
        place = np.searchsorted(cumulative, uniform * total, side="right").clip(max=len(cumulative) - 1)
        chosen = int(order[place])
    return chosen, float(wide[chosen]) - most - log_sum


def _exponentials(logits: NDArray[np.float64], temperature: float, most: float) -> tuple[NDArray[np.float64], float]:
    """e^((logit - most) / temperature), bit for bit as plugins/cpu/kernels/softmax.h computes it, and their sum."""
    x = np.maximum(logits / temperature - most / temperature, -700.0)
    shifted = x * 1.4426950408889634 + 6755399441055744.0  # 1.5 · 2^52: the low bits of the sum are n
    n = shifted - 6755399441055744.0
    r = x - n * 6.93145751953125e-1  # ln 2 in two parts
    r -= n * 1.42860682030941723212e-6
    y = r * r
    p = r * ((1.26177193074810590878e-4 * y + 3.02994407707441961300e-2) * y + 1.0)
    q = ((3.00198505138664455042e-6 * y + 2.52448340349684104192e-3) * y + 2.27265548208155028766e-1) * y + 2.0
    power = ((shifted.view(np.uint64) << np.uint64(52)) + np.uint64(1023 << 52)).view(np.float64)
    e = (1.0 + 2.0 * (p / (q - p))) * power
    parts = np.zeros((-(-len(e) // 16), 16))  # element i goes to partial sum i mod 16
    parts.reshape(-1)[: len(e)] = e
    sums = parts[0].copy()
    for row in parts[1:]:
        sums += row
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    return e, float(sums[0])


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


def generate(
    model: Runnable, prime: NDArray[np.int64], length: int, sampling: Sampling, allowed: Allowed | None = None
) -> Iterator[Token]:
    """Generate `length` tokens after the prime (at least one symbol), one by one, with any backend's run.

    allowed: restricts the symbols that may follow; the symbols it excludes get probability 0, before temperature, top_k
    and top_p.
    """
    random = sampling.uniforms()
    tokens, state = np.asarray(prime, np.int64).reshape(-1, 1), None
    ids: list[int] = []
    for _ in range(length):
        position = len(ids)
        ids += tokens[:, 0].tolist()
        logits, state, m = model.run(tokens, state, position)
        token = draw(logits[-1, 0], m[-1, 0], random.random(), sampling, None if allowed is None else allowed(ids))
        yield token
        tokens = np.array([[token.id]], np.int64)


def draw(
    logits: NDArray[Any],
    m: NDArray[Any],
    uniform: float,
    sampling: Sampling,
    allowed: NDArray[np.bool_] | None = None,
) -> Token:
    """Sample a token from the last step's logits [vocab] and m [layers]; allowed: mask of what may be chosen."""
    chosen, log_probability = _draw(logits, uniform, sampling)
    if allowed is not None:
        candidates = np.flatnonzero(allowed)
        other = int(candidates[choose(logits[candidates], uniform, sampling)])
        log_probability += float(logits[other]) - float(logits[chosen])
        chosen = other
    return Token(chosen, float(m.mean(dtype=np.float64)), log_probability)


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
