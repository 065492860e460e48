"""Traces: m, a and the prediction for each symbol of a text, and which dimensions changed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vcdeploy import cost
from vcdeploy.errors import VcdeployError
from vcdeploy.music import notation
from vcdeploy.runtime.sampling import log_probabilities
from vcdeploy.spec import DENSE_UNITS, UNITS, VARIABLE_UNITS
from vcdeploy.vocabulary import Vocabulary, bits

if TYPE_CHECKING:
    from vcdeploy.runtime.model import Model

PIECE = 1024  # symbols per call


class Group(NamedTuple):
    """Symbols start to stop of a trace; for bits, the character they spell; whether a line ends after them."""

    start: int
    stop: int
    character: str = ""
    ends_line: bool = False


@dataclass(frozen=True, eq=False)
class Trace:
    """A text of T symbols as read by a model of L layers, starting from a zero state.

    title: name of the text in figures. config: the model's description.
    m [T, L]: update fraction of the step that reads each symbol. active [T, L]: a, the dimensions it updates.
    probability [T]: predicted for each symbol. entropy [T]: of that prediction, in bits. Both are NaN for the first
    symbol, which is not predicted. changes [T, L, D]: |h_t - h_{t-1}|, if requested.
    """

    title: str
    config: dict[str, Any]
    vocab: Vocabulary
    ids: NDArray[np.int64]
    m: NDArray[np.float32]
    active: NDArray[np.int64]
    probability: NDArray[np.float64]
    entropy: NDArray[np.float64]
    changes: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def symbols(self) -> list[str]:
        """Characters, bits or symbols of a tune."""
        return [self.vocab.symbols[id_] for id_ in self.ids.tolist()]

    @cached_property
    def mean_m(self) -> NDArray[np.float64]:
        """m [T], mean over the layers."""
        return self.m.astype(np.float64).mean(-1)

    @cached_property
    def bits(self) -> NDArray[np.float64]:
        """Bits [T] of each symbol under the prediction; NaN for the first."""
        with np.errstate(divide="ignore"):
            return -np.log2(self.probability)

    def groups(self) -> list[Group]:
        """Symbols to keep together when they are laid out in lines: words, bytes, bars."""
        symbols, period = self.symbols, self.vocab.period
        if self.vocab.kind == "bits":
            spelt = bits.characters(self.ids, self.vocab.buffer)
            starts = range(0, len(self), period)
            return [
                Group(at, min(at + period, len(self)), spelt[k] if k < len(spelt) else "")
                for k, at in enumerate(starts)
            ]
        ends = self.vocab.boundaries(self.ids)
        if self.vocab.kind == "music":
            ends |= [symbol == notation.END for symbol in symbols]
        ends[-1] = True
        stops = (np.flatnonzero(ends) + 1).tolist()
        # A newline or the end of a tune ends the line.
        last = ("\n", notation.END)
        return [
            Group(start, stop, "", symbols[stop - 1] in last) for start, stop in zip([0, *stops], stops, strict=False)
        ]

    def summary(self) -> dict[str, float]:
        """Number of symbols, mean m, rnn_d, macs/step and bits per symbol."""
        squares = (self.active.astype(np.float64) ** 2).mean(0).tolist()
        unit, dim = self.config["unit"], self.config["dim"]
        return {
            "symbols": len(self),
            "m": float(self.mean_m.mean()),
            "rnn_d": cost.rnn_d(unit, dim, squares),
            "macs": cost.macs(unit, dim, squares),
            "bits": float(np.mean(self.bits[1:])) if len(self) > 1 else float("nan"),
        }


def trace(model: Model, text: str | NDArray[np.integer[Any]], *, title: str = "", changes: bool = False) -> Trace:
    """Run a model over a text, or its ids [T], and record each step.

    `text` is what model.vocab.encode takes: characters, bits as text, a tune in ABC. With `changes` the model runs one
    step per call, to observe the state between steps; the numbers are the same within rounding.

    >>> model = vcdeploy.load("english")
    >>> trace(model, "The prime minister").m[:, 0]
    """
    unit = model.config["unit"]
    if unit in DENSE_UNITS:
        raise VcdeployError(
            f"{model.name} is a {unit}, which updates all of its state at every step: there is no schedule to trace. "
            f"Give a model with one of {', '.join(VARIABLE_UNITS)}"
        )
    ids = (model.vocab.encode(text) if isinstance(text, str) else np.asarray(text)).astype(np.int64).reshape(-1)
    if not len(ids):
        raise VcdeployError("there is no symbol in the text to trace: give at least one")
    state: NDArray[np.float32] | None = None
    expectations: list[NDArray[np.float64]] = []
    fractions: list[NDArray[np.float32]] = []
    moved: list[NDArray[np.float32]] = []
    expected: NDArray[np.float64] | None = None  # [vocab], for the next symbol
    piece = 1 if changes else PIECE
    for at in range(0, len(ids), piece):
        now = ids[at : at + piece]
        before = state
        logits, state, m = model.run(now.reshape(-1, 1), state, at)
        fractions.append(m[:, 0])
        if changes:
            moved.append(_hidden(np.abs(state - (0 if before is None else before)), m.shape[-1]))
        following = log_probabilities(logits[:, 0])  # [n, vocab]
        unforeseen = np.full(following.shape[-1], np.nan)
        foreseen = np.vstack([unforeseen if expected is None else expected, following[:-1]])
        expected = following[-1]
        p = np.exp(foreseen)
        entropy = -(p * np.where(p > 0, foreseen, 0)).sum(-1)
        expectations.append(np.stack([p[np.arange(len(now)), now], entropy]))
    probability, entropy = np.concatenate(expectations, -1)
    m = np.concatenate(fractions)
    return Trace(
        title=title,
        config=dict(model.config),
        vocab=model.vocab,
        ids=ids,
        m=m,
        active=_active(m, model.config),
        probability=probability,
        entropy=entropy / np.log(2),
        changes=np.stack(moved) if changes else None,
    )


def _hidden(state: NDArray[np.float32], layers: int) -> NDArray[np.float32]:
    """The h of each layer [L, D] from the state rows [S, 1, D]; in an LSTM, c follows each h."""
    return state[:, 0].reshape(layers, -1, state.shape[-1])[:, 0]


def _active(m: NDArray[np.float32], config: dict[str, Any]) -> NDArray[np.int64]:
    if UNITS[config["unit"]].variable:
        return cost.active(m, config)
    return (m * config["dim"]).astype(np.int64)  # each layer of a CRNN updates all of its state or none


def blocks(changes: NDArray[np.floating[Any]], most: int = 128) -> NDArray[np.float64]:
    """Mean changes [T, at most `most`] over blocks of neighbouring dimensions of changes [T, D]."""
    D = changes.shape[-1]
    edges = np.linspace(0, D, min(D, most) + 1).round().astype(int)
    return np.add.reduceat(changes.astype(np.float64), edges[:-1], axis=-1) / np.diff(edges)


def changes_of(trace: Trace, dimensions: tuple[int, int] | None) -> NDArray[np.float32]:
    """The changes [T, L, last - first + 1] of dimensions first to last, counted from 1."""
    if trace.changes is None or dimensions is None:
        raise VcdeployError("this trace has no changes of the state: create it with trace(..., changes=True)")
    first, last = dimensions
    D = trace.changes.shape[-1]
    if not 1 <= first <= last <= D:
        raise VcdeployError(f"there are no dimensions {first} to {last}: the model has 1 to {D}")
    return trace.changes[..., first - 1 : last]


def visible(symbol: str) -> str:
    """A symbol as drawn: white space as a sign, unprintable characters as a dot."""
    if symbol.isspace():
        return {"\n": "⏎", "\t": "⇥"}.get(symbol, "␣")
    return symbol if symbol.isprintable() else "·"
