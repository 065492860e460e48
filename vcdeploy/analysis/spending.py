"""Where computation goes: mean m by class of symbol, and peaks of m inside words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from vcdeploy.corpora.classes import classes
from vcdeploy.errors import VcdeployError

if TYPE_CHECKING:
    from vcdeploy.analysis.traces import Trace


RISE = 0.05  # how far a peak of m is above its neighbours, at least


class Spent(TypedDict):
    """Number of symbols in a class, and their mean m."""

    symbols: int
    m: float


def by_class(m: NDArray[Any], classes: Mapping[str, NDArray[np.bool_]]) -> dict[str, Spent]:
    """Mean of m [T, L] over each class of vcdeploy.corpora.classes; the masks may be longer than m."""
    mean_m = m.mean(-1)
    masks = {name: mask[: len(m)] for name, mask in classes.items()}
    return {
        name: Spent(symbols=int(mask.sum()), m=float(mean_m[mask].mean())) for name, mask in masks.items() if mask.any()
    }


def spent(traces: Sequence[Trace]) -> dict[str, Spent]:
    """by_class over several traces together; their models must be of the same kind."""
    kinds = {trace.vocab.kind for trace in traces}
    if len(kinds) != 1:
        raise VcdeployError(
            f"m by class needs models of one kind, and these are {' and '.join(sorted(kinds))}: "
            "trace each kind separately"
        )
    sums: dict[str, list[float]] = {}
    for trace in traces:
        for name, found in by_class(trace.m.astype(np.float64), classes(trace.vocab, trace.ids)).items():
            total = sums.setdefault(name, [0, 0.0])
            total[0] += found["symbols"]
            total[1] += found["symbols"] * found["m"]
    return {name: Spent(symbols=int(symbols), m=total / symbols) for name, (symbols, total) in sums.items()}


@dataclass(frozen=True, eq=False)
class Word:
    """A word, its number of occurrences, m at each letter (mean over the occurrences), and the peaks inside it."""

    text: str
    count: int
    m: NDArray[np.float64]
    peaks: tuple[int, ...]

    def marked(self, mark: str = "-") -> str:
        """The word with a mark before each peak, where a part of the word begins."""
        return "".join(mark * (place in self.peaks) + letter for place, letter in enumerate(self.text))


def peaks(m: NDArray[Any], rise: float = RISE) -> tuple[int, ...]:
    """Positions where m [n] of a word's letters exceeds both neighbours by `rise`; never the first or the last."""
    return tuple(place for place in range(1, len(m) - 1) if m[place] - max(m[place - 1], m[place + 1]) >= rise)


def words(traces: Sequence[Trace], rise: float = RISE) -> list[Word]:
    """Words (runs of letters) in order of first occurrence; m is the mean over all occurrences of a word."""
    found: dict[str, list[NDArray[np.float64]]] = {}
    for trace in traces:
        if trace.vocab.kind != "text":
            raise VcdeployError(f"only text has words, and this model reads {trace.vocab.kind}: give a model of text")
        for word, start in _runs(trace):
            found.setdefault(word, []).append(trace.mean_m[start : start + len(word)])
    means = {word: np.mean(fractions, 0) for word, fractions in found.items()}
    return [Word(word, len(found[word]), m, peaks(m, rise)) for word, m in means.items()]


def parts(trace: Trace, words: Sequence[Word]) -> list[int]:
    """Positions in a trace where parts of words begin: the peaks of `words`, at each occurrence."""
    inside = {word.text: word.peaks for word in words}
    return [start + peak for word, start in _runs(trace) for peak in inside.get(word, ())]


def _runs(trace: Trace) -> list[tuple[str, int]]:
    """Runs of letters in a text, each with its start."""
    text = "".join(trace.symbols)
    letters = np.array([symbol.isalpha() for symbol in trace.symbols], bool)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], letters, [False]]).astype(int)))
    return [(text[start:stop], start) for start, stop in edges.reshape(-1, 2).tolist()]
