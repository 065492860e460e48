"""Sampling symbols from logits. Uses arrays only, no framework and no vocabulary."""

import math
import numbers
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import BadValue, VcdeployError

# Takes all ids so far, the prime included, and returns the mask [vocab] of the symbols that may follow.
Allowed = Callable[[Sequence[int]], NDArray[np.bool_]]

MOST_TOP_K = 2**31 - 1
MOST_HISTORY = 1024  # tokens a sequence remembers: the largest window, and length of a stop string


class Runnable(Protocol):
    """Any backend: run takes tokens [T, B] and returns logits [T, B, vocab], state and m [T, B, layers]."""

    def run(self, tokens: NDArray[np.int64], state: Any = None, position: int = 0) -> tuple[Any, Any, Any]: ...


@dataclass(frozen=True)
class Sampling:
    """Sampling options; docs/design.md, section 2, defines them to the bit.

    Attributes:
        temperature: 0 is greedy.
        top_k: Sample from the k most likely symbols; 0 for all.
        top_p: Nucleus sampling: the smallest set of symbols whose probabilities sum to p; 1 for all.
        seed: Of the random numbers.
        min_p: Sample from the symbols at least min_p times as likely as the most likely one; 0 for all.
        repetition_penalty: Makes the symbols of the last tokens less likely: their logits are divided by it if
            positive, and multiplied if negative; 1 for none.
        repetition_window: How many of the last tokens that looks at, the prime included.
        stop: Strings, or sequences of ids: generation ends once what was generated ends with one of them.
    """

    temperature: float = 0.5
    top_k: int = 0
    top_p: float = 0.8
    seed: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    repetition_window: int = 64
    stop: str | Sequence[str | Sequence[int]] = ()

    def __post_init__(self) -> None:
        try:
            stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
            stop = tuple(each if isinstance(each, str) else tuple(map(operator.index, each)) for each in stop)
        except TypeError as error:
            raise BadValue(f"stop must be a string, or several, or sequences of ids, not {self.stop!r}") from error
        object.__setattr__(self, "stop", stop)
        for names, kind, type_, what in (
            (("temperature", "top_p", "min_p", "repetition_penalty"), numbers.Real, float, "a number"),
            (("top_k", "repetition_window", "seed"), numbers.Integral, int, "a whole number"),
        ):
            for name in names:
                if not isinstance(getattr(self, name), kind):
                    raise BadValue(f"{name} must be {what}, not {getattr(self, name)!r}")
                object.__setattr__(self, name, type_(getattr(self, name)))  # NumPy's would round like their own type
        for name, fits, range_ in (
            ("temperature", 0 <= self.temperature < math.inf, "0 or more"),
            ("top_k", 0 <= self.top_k <= MOST_TOP_K, f"from 0 to {MOST_TOP_K}"),
            ("top_p", 0 < self.top_p <= 1, "above 0 up to 1"),
            ("min_p", 0 <= self.min_p <= 1, "from 0 to 1"),
            ("repetition_penalty", 0 < self.repetition_penalty < math.inf, "above 0"),
            ("repetition_window", 1 <= self.repetition_window <= MOST_HISTORY, f"from 1 to {MOST_HISTORY}"),
            ("seed", self.seed >= 0, "0 or more"),
            ("stop", all(1 <= len(each) <= MOST_HISTORY for each in self.stop), f"1 to {MOST_HISTORY} symbols each"),
        ):
            if not fits:
                raise BadValue(f"{name} must be {range_}, not {getattr(self, name)!s:.80}")

    def ends(self, generated: Sequence[int]) -> int:
        """Length of the longest stop sequence that `generated` ends with; 0 if none."""
        return max((len(each) for each in self.stop if tuple(generated[-len(each) :]) == each), default=0)


def choose(
    logits: NDArray[Any],
    uniform: float,
    sampling: Sampling,
    recent: Sequence[int] = (),
    allowed: NDArray[np.bool_] | None = None,
) -> int:
    """The symbol at `uniform` (0 to 1) of the cumulative distribution of logits [vocab] (docs/design.md, section 2).

    recent: the tokens so far, for the repetition penalty. allowed: mask [vocab] of what may be chosen.
    """
    logits = _penalized(logits, sampling, recent)
    if allowed is None:
        return _choose(logits, uniform, sampling)
    if allowed.shape != logits.shape:
        raise VcdeployError(f"allowed must have the shape {list(logits.shape)}, not {list(allowed.shape)}")
    candidates = np.flatnonzero(allowed)
    if not len(candidates):
        raise VcdeployError("no symbol is allowed to follow")
    return int(candidates[_choose(logits[candidates], uniform, sampling)])


def _penalized(logits: NDArray[Any], sampling: Sampling, recent: Sequence[int]) -> NDArray[Any]:
    seen = np.unique(recent[-sampling.repetition_window :])
    if sampling.repetition_penalty == 1 or not len(seen):
        return logits
    logits, old = logits.copy(), logits[seen]
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        penalty = logits.dtype.type(sampling.repetition_penalty)
        logits[seen] = np.where(old > 0, old / penalty, old * penalty)
    if not np.isfinite(logits[seen]).all():
        raise VcdeployError("the repetition penalty makes a logit infinite: use one nearer to 1")
    return logits


def _choose(logits: NDArray[Any], uniform: float, sampling: Sampling) -> int:
    """One of logits [n]; the same operations in the same order as plugins/cpu/engine/sampling.cpp."""
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    most = float(logits.max())
    scale = 1 / sampling.temperature
    if not math.isfinite(most * scale):
        raise VcdeployError(f"a temperature of {sampling.temperature} is too small to divide by; use 0")
    p, total = _exponentials(logits.astype(np.float64), scale, most)
    order = np.argsort(-p, kind="stable")
    cumulative = np.cumsum(p[order])
    if 0 < sampling.top_k < len(p) or sampling.top_p < 1 or sampling.min_p > 0:
        below = np.concatenate([[0.0], cumulative[:-1] / total])
        kept = int(np.count_nonzero(below < sampling.top_p))  # the smallest set that reaches top_p
        kept = min(kept, sampling.top_k or kept, int(np.count_nonzero(p >= sampling.min_p)))  # the largest p is 1
        cumulative = cumulative[:kept]
        total = cumulative[-1]
    place = np.searchsorted(cumulative, uniform * total, side="right").clip(max=len(cumulative) - 1)
    return int(order[place])


def _exponentials(logits: NDArray[np.float64], scale: float, most: float) -> tuple[NDArray[np.float64], float]:
    """e^(logit · scale - most · scale), bit for bit as plugins/cpu/kernels/softmax.h computes it, and their sum."""
    x = np.maximum(logits * scale - most * scale, -700.0)
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
        log_probability: Natural logarithm of its probability under the model's own distribution, before all options.
        alternatives: The most likely symbols and their log-probabilities, as many as were asked for.
    """

    id: int
    m: float
    log_probability: float
    alternatives: tuple[tuple[int, float], ...] = ()


def draw(
    logits: NDArray[Any],
    m: NDArray[Any],
    uniform: float,
    sampling: Sampling,
    recent: Sequence[int] = (),
    allowed: NDArray[np.bool_] | None = None,
) -> Token:
    """Sample a token from the last step's logits [vocab] and m [layers]; the rest as for `choose`."""
    if not np.isfinite(logits).all():
        raise VcdeployError("the model's logits contain NaN or infinity: training diverged; use another checkpoint")
    chosen = choose(logits, uniform, sampling, recent, allowed)
    most = float(logits.max())
    log_sum = math.log(_exponentials(logits.astype(np.float64), 1.0, most)[1])
    return Token(chosen, float(m.mean(dtype=np.float64)), float(logits[chosen]) - most - log_sum)


def most_likely(logits: NDArray[Any], count: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The `count` most likely symbols of logits [vocab], from the first down, and their log-probabilities."""
    chosen = np.argsort(-logits, kind="stable")[:count]
    most = float(logits.max())
    log_sum = math.log(_exponentials(logits.astype(np.float64), 1.0, most)[1])
    return chosen, logits[chosen].astype(np.float64) - most - log_sum


class Draws:
    """The random numbers of sequences: token t takes number t of its seed, counted since the sequence was reset."""

    def __init__(self, counts: Sequence[int]) -> None:
        """counts: tokens drawn so far, of each sequence."""
        self.counts = list(counts)
        self._streams: list[tuple[int, int, np.random.Generator] | None] = [None] * len(counts)  # seed, place

    def take(self, seeds: Sequence[int], length: int, rows: Sequence[int] | None = None) -> NDArray[np.float64]:
        """The next numbers of these sequences, by default all: [length, B], between 0 and 1.

        `used` says how many of them were.
        """
        numbers = np.empty((length, len(seeds)))
        for i, n in enumerate(range(len(seeds)) if rows is None else rows):
            numbers[:, i] = self._of(n, seeds[i], length)
        return numbers

    def used(self, lengths: Sequence[int], rows: Sequence[int] | None = None) -> None:
        for i, n in enumerate(range(len(lengths)) if rows is None else rows):
            self.counts[n] += lengths[i]

    def _of(self, n: int, seed: int, length: int) -> NDArray[np.float64]:
        known, place = self._streams[n], self.counts[n]
        if known is None or known[:2] != (seed, place):
            bits = np.random.PCG64(seed)
            bits.advance(place)
            known = seed, place, np.random.Generator(bits)
        self._streams[n] = seed, place + length, known[2]
        return known[2].random(length)


class StopFilter:
    """Leaves out the stop sequence at the end: tokens that may belong to one wait for the next."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling, self._held = sampling, list[int]()  # ids that wait

    def push(self, ids: list[int]) -> int:
        """How many of the tokens that waited and of these are certain; the others wait."""
        held = self._held = self._held + ids
        begun = (
            length
            for stop in self._sampling.stop
            for length in range(1, min(len(stop), len(held)) + 1)
            if tuple(held[-length:]) == stop[:length]
        )
        ready = len(held) - max(begun, default=0)
        self._held = held[ready:]
        return ready

    @property
    def stopped(self) -> bool:
        """Whether the tokens so far end with a stop sequence."""
        return bool(self._held and self._sampling.ends(self._held))

    def end(self) -> int:
        """How many of the tokens that wait are certain after the last piece."""
        return len(self._held) - self._sampling.ends(self._held)


def without_stop(pieces: Iterator[list[Token]], sampling: Sampling) -> Iterator[list[Token]]:
    """The same tokens without the stop sequence at their end."""
    held, filtered = list[Token](), StopFilter(sampling)
    for piece in pieces:
        held += piece
        if ready := filtered.push([token.id for token in piece]):
            yield held[:ready]
            held = held[ready:]
    if ready := filtered.end():
        yield held[:ready]


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
