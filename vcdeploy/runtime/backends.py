"""What a backend is: its interface, base classes, limits of a call, and the registry.

A backend is a module with a function `start` and a row in BACKENDS, which load, doctor, the export check and bench use.
"""

from __future__ import annotations

import numbers
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import Cancelled, TimedOut, VcdeployError
from vcdeploy.extras import install_command, require
from vcdeploy.runtime.sampling import MOST_HISTORY, Runnable, Sampling, draw, most_likely
from vcdeploy.spec import UNITS

if TYPE_CHECKING:
    from vcdeploy.runtime.sources import Source

Arrays = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]
Check = Callable[[], None]  # raises if the call must end
Rows = Sequence[int] | None  # the numbers of the sequences that a call is about; None for all

AT_ONCE = 0.01  # seconds between two checks of a call with limits


class Backend(Protocol):
    """A model on one backend."""

    @property
    def detail(self) -> str:
        """The variant in use: native's instruction set, ONNX Runtime's custom op or function body, the GPU, …"""

    def run(self, tokens: NDArray[np.int64], state: NDArray[np.float32] | None = None, position: int = 0) -> Arrays:
        """tokens [T, B], state [S, B, D] -> logits [T, B, vocab], state [S, B, D], m [T, B, layers].

        position: number of symbols processed so far; only the CRNN on bits needs it.
        """

    def sequences(self, batch: int) -> Sequences:
        """New sequences, from zero states."""


class Interruptible:
    """Base class of backends that call `check` every few milliseconds; an exception that it raises ends the call.

    They also compute only the logits that are wanted: all, the last, or none. Other backends are checked between their
    calls.
    """

    def run(
        self,
        tokens: NDArray[np.int64],
        state: NDArray[np.float32] | None = None,
        position: int = 0,
        check: Check | None = None,
        logits: str = "all",
    ) -> Arrays:
        raise NotImplementedError


class Drawn(NamedTuple):
    """What B sequences generated, at most `length` tokens each.

    Attributes:
        tokens: [length, B]; 0 after the end of a sequence.
        m: [length, B, layers], of the step that the token was sampled from.
        log_probabilities: [length, B].
        lengths: [B]: tokens of each sequence.
        others: [length, B, alternatives]: the most likely symbols.
        other_log_probabilities: [length, B, alternatives].
    """

    tokens: NDArray[np.int64]
    m: NDArray[Any]
    log_probabilities: NDArray[np.float64]
    lengths: NDArray[np.int64]
    others: NDArray[np.int64]
    other_log_probabilities: NDArray[np.float64]


class Sequences(Protocol):
    """The sequences of a session on one backend. A sampled token is read with the next call.

    rows: the sequences that a call is about, whose number is B.

    at_once: tokens to generate per call when streaming. logits [B, vocab] and m [B, layers] are written in place.
    """

    @property
    def at_once(self) -> int: ...

    @property
    def logits(self) -> NDArray[Any] | None: ...

    @property
    def m(self) -> NDArray[Any] | None: ...

    def step(self, tokens: object) -> bool:
        """Read a token of each sequence and compute logits; False if `tokens` has no form this takes quickly."""

    def feed(self, tokens: NDArray[np.int64], check: Check | None = None, rows: Rows = None) -> None:
        """Read tokens [T, B]; logits may be left as they are."""

    def observe(self, rows: Rows = None) -> None:
        """Read what was sampled last, and compute the logits."""

    def generate(
        self,
        uniforms: NDArray[np.float64],
        sampling: Sequence[Sampling],
        allowed: NDArray[np.bool_] | None = None,
        check: Check | None = None,
        rows: Rows = None,
        most: Sequence[int] | None = None,
        alternatives: int = 0,
    ) -> Drawn:
        """Generate with uniforms [length, B], allowed [B, vocab]; at most so many tokens of each sequence, if given."""

    def save(self, rows: Rows = None) -> tuple[NDArray[Any] | None, NDArray[Any] | None, list[Past]]:
        """The state [S, B, D], m, and what each sequence read; None instead of zeros if nothing was read."""

    def restore(
        self,
        state: NDArray[Any],
        m: NDArray[Any],
        logits: NDArray[Any],
        pasts: Sequence[Past],
        rows: Rows = None,
    ) -> None: ...

    def fork(self) -> Sequences: ...

    def reset(self, rows: Sequence[int]) -> None: ...


@dataclass
class Past:
    """What a sequence has read and generated.

    Attributes:
        read: Number of tokens, with those generated.
        generated: How many of them were generated since the last one that was given.
        drawn: How many were generated since the sequence began.
        history: The last ones.
    """

    read: int = 0
    generated: int = 0
    drawn: int = 0
    history: list[int] = field(default_factory=list)

    def add(self, tokens: list[int]) -> None:
        self.read += len(tokens)
        self.history = (self.history + tokens)[-MOST_HISTORY:]

    def newest(self) -> list[int]:
        """What was generated since the last token that was given, as far as it is known."""
        return self.history[max(0, len(self.history) - self.generated) :]


class RunSequences:
    """Sequences of a backend that has only `run`."""

    at_once = 1

    def __init__(self, model: Runnable, batch: int) -> None:
        self._model = model
        self._states: list[Any] = [None] * batch  # [S, 1, D] each
        self._pasts = [Past() for _ in range(batch)]
        self._pending: dict[int, int] = {}  # tokens that were sampled and not yet read
        self.logits: NDArray[Any] | None = None
        self.m: NDArray[Any] | None = None

    def step(self, tokens: object) -> bool:
        return False

    def feed(self, tokens: NDArray[np.int64], check: Check | None = None, rows: Rows = None) -> None:
        which = self._which(rows)
        self._read_pending(which)
        self._read(which, tokens, check)
        for n, column in zip(which, tokens.T.tolist(), strict=True):
            self._pasts[n].add(column)
            self._pasts[n].generated = 0

    def observe(self, rows: Rows = None) -> None:
        self._read_pending(self._which(rows))

    def generate(
        self,
        uniforms: NDArray[np.float64],
        sampling: Sequence[Sampling],
        allowed: NDArray[np.bool_] | None = None,
        check: Check | None = None,
        rows: Rows = None,
        most: Sequence[int] | None = None,
        alternatives: int = 0,
    ) -> Drawn:
        which = self._which(rows)
        for n in which:
            if not self._pasts[n].read:
                raise VcdeployError(f"sequence {n} has read nothing to go on from: feed it at least one token")
        length, batch = uniforms.shape
        most = [length] * batch if most is None else most
        drawn = Drawn(
            np.zeros((length, batch), np.int64),
            np.zeros((length, batch, 1)),
            np.zeros((length, batch)),
            np.zeros(batch, np.int64),
            np.zeros((length, batch, alternatives), np.int64),
            np.zeros((length, batch, alternatives)),
        )
        for t in range(length):
            active = [
                (i, n) for i, n in enumerate(which) if t < most[i] and not sampling[i].ends(self._pasts[n].newest())
            ]
            if check is not None:
                check()
            self._read_pending([n for _, n in active])
            for i, n in active:
                assert self.logits is not None and self.m is not None
                mask, past = None if allowed is None else allowed[i], self._pasts[n]
                token = draw(self.logits[n], self.m[n], uniforms[t, i], sampling[i], past.history, mask)
                self._pending[n] = token.id
                past.add([token.id])
                past.generated += 1
                drawn.tokens[t, i], drawn.m[t, i], drawn.log_probabilities[t, i] = token[:3]
                if alternatives:
                    likely = most_likely(self.logits[n], alternatives)
                    drawn.others[t, i], drawn.other_log_probabilities[t, i] = likely
                drawn.lengths[i] = t + 1
        return drawn

    def save(self, rows: Rows = None) -> tuple[NDArray[Any] | None, NDArray[Any] | None, list[Past]]:
        which = self._which(rows)
        self._read_pending(which)
        m = None if self.m is None else self.m[which]
        return self._state(which), m, [deepcopy(self._pasts[n]) for n in which]

    def restore(
        self,
        state: NDArray[Any],
        m: NDArray[Any],
        logits: NDArray[Any],
        pasts: Sequence[Past],
        rows: Rows = None,
    ) -> None:
        which = self._which(rows)
        for i, n in enumerate(which):
            self._states[n] = state[:, i : i + 1].copy() if pasts[i].read else None
            self._pasts[n] = pasts[i]
            self._pending.pop(n, None)
        self._keep(which, logits, m)

    def fork(self) -> Sequences:
        state, m, pasts = self.save()
        other = type(self)(self._model, len(pasts))
        if state is not None and m is not None and self.logits is not None:
            other.restore(state, m, self.logits, pasts)
        return other

    def reset(self, rows: Sequence[int]) -> None:
        for n in rows:
            self._states[n], self._pasts[n] = None, Past()
            self._pending.pop(n, None)
            for each in (self.logits, self.m):
                if each is not None:
                    each[n] = 0

    def _which(self, rows: Rows) -> list[int]:
        return list(range(len(self._pasts)) if rows is None else rows)

    def _state(self, rows: Sequence[int]) -> NDArray[Any] | None:
        """The states of these sequences, [S, B, D]; None if all are zero."""
        states = [self._states[n] for n in rows]
        known = next((each for each in states if each is not None), None)
        if known is None:
            return None
        return np.concatenate([np.zeros_like(known) if each is None else each for each in states], axis=1)

    def _read_pending(self, rows: Sequence[int]) -> None:
        unread = [n for n in rows if n in self._pending]
        if unread:
            tokens = np.array([[self._pending[n] for n in unread]], np.int64)
            self._read(unread, tokens, None, ahead=1)
            for n in unread:
                del self._pending[n]

    def _read(self, rows: list[int], tokens: NDArray[np.int64], check: Check | None, ahead: int = 0) -> None:
        """Run tokens [T, rows]; sequences at different places run apart. ahead: how many the past has of them."""
        places: dict[int, list[int]] = {}
        for i, n in enumerate(rows):
            places.setdefault(self._pasts[n].read - ahead, []).append(i)
        for place, columns in places.items():
            mine, piece = [rows[i] for i in columns], np.ascontiguousarray(tokens[:, columns])
            states = [self._states[n] for n in mine]
            state = None if states[0] is None else np.concatenate(states, axis=1)
            if check is None:
                logits, state, m = self._model.run(piece, state, place)
            else:
                logits, state, m = run_in_pieces(self._model, piece, state, place, check)
            for i, n in enumerate(mine):
                self._states[n] = state[:, i : i + 1]
            self._keep(mine, logits[-1], m[-1])

    def _keep(self, rows: Sequence[int], logits: NDArray[Any], m: NDArray[Any]) -> None:
        if self.logits is None or self.m is None:
            batch = len(self._pasts)
            self.logits = np.zeros((batch, logits.shape[-1]), logits.dtype)
            self.m = np.zeros((batch, m.shape[-1]), m.dtype)
        self.logits[rows], self.m[rows] = logits, m


class PythonLoop:
    """Base class of backends without sessions of their own: their sequences call `run` for each token."""

    @property
    def detail(self) -> str:
        """The variant in use; empty by default."""
        return ""

    def run(self, tokens: NDArray[np.int64], state: Any = None, position: int = 0) -> tuple[Any, Any, Any]:
        raise NotImplementedError

    def sequences(self, batch: int) -> Sequences:
        return RunSequences(self, batch)


class Event(Protocol):
    """A threading.Event, or anything else with its is_set."""

    def is_set(self) -> bool: ...


def check_of(timeout: float | None, cancel: Event | None) -> Check | None:
    """A check for a call that begins now; None if it has no limit."""
    if timeout is None and cancel is None:
        return None
    if timeout is not None and not (isinstance(timeout, numbers.Real) and timeout > 0):
        raise VcdeployError(f"timeout must be above 0 seconds, or None for no limit, not {timeout!r}")
    if cancel is not None and not hasattr(cancel, "is_set"):
        raise VcdeployError(f"cancel must be a threading.Event, or have its is_set, not {type(cancel).__name__}")
    end = None if timeout is None else time.monotonic() + timeout

    def check() -> None:
        if cancel is not None and cancel.is_set():
            raise Cancelled("the call was cancelled: its event `cancel` is set")
        if end is not None and time.monotonic() > end:
            raise TimedOut(
                f"the call took longer than its timeout of {timeout:g} s: pass a larger one, or fewer tokens"
            )

    return check


def run_in_pieces(
    model: Runnable, tokens: NDArray[np.int64], state: Any, position: int, check: Check
) -> tuple[Any, Any, Any]:
    """What model.run returns, from as many steps at once as take about 10 ms, with a check before each piece."""
    logits, fractions, count, start = [], [], 1, 0
    while start < len(tokens):
        check()
        begin = time.monotonic()
        piece = tokens[start : start + count]
        each, state, m = model.run(piece, state, position + start)
        logits.append(each)
        fractions.append(m)
        start += len(piece)
        if time.monotonic() - begin < AT_ONCE / 2:
            count *= 2
        elif time.monotonic() - begin > AT_ONCE:
            count = max(1, count // 2)
    return np.concatenate(logits), state, np.concatenate(fractions)


@dataclass(frozen=True)
class Row:
    """A backend in the registry.

    module: its `start(source, precision, threads, variant)` returns a Backend. requires: optional packages it needs.
    variable, dense, crnn: the units it runs. repacks: whether it can change the precision of a file's weights.
    """

    name: str
    module: str
    requires: tuple[str, ...] = ()
    variable: bool = True
    dense: bool = True
    crnn: bool = False
    repacks: bool = False
    gpu: bool = False

    def runs(self, unit: str) -> bool:
        if UNITS[unit].variable:
            return self.variable
        return self.dense if UNITS[unit].exports else self.crnn

    def fault(self) -> str | None:
        """Why the backend can't be used here; None if it can."""
        for module in self.requires:
            if not find_spec(module):
                return f"{module} is not installed; run: {install_command(module)}"
        if self.name == "native":
            return native_fault()
        return None

    def start(self, source: Source, precision: str, threads: int, isa: str | None = None) -> Backend:
        """Start a model on this backend. The part of the name after the colon is passed to the module as variant.

        isa: the instruction set, which is the variant of native.
        """
        name, _, variant = self.name.partition(":")
        if isa is not None:
            if name != "native":
                raise VcdeployError(f"only the native backend has instruction sets: omit isa, or use it, not {name}")
            variant = isa
        if (fault := self.fault()) is not None:
            for module in self.requires:
                require(module, for_=f"the {name} backend")
            raise VcdeployError(
                f"the {name} backend can't be used here ({fault}): `vcdeploy doctor` says how to fix it"
            )
        backend: Backend = import_module(self.module).start(source, precision, threads, variant)
        return backend


FUNCTION_BODY = "onnxruntime:function"  # ONNX Runtime without our custom op

# In the order `auto` tries them. `auto` never chooses a GPU backend.
BACKENDS = {
    row.name: row
    for row in (
        Row("native", "vcdeploy.runtime.native", repacks=True),
        Row("onnxruntime", "vcdeploy.runtime.onnxruntime", ("onnxruntime",)),
        Row("torch", "vcdeploy.runtime.torch", ("torch",), crnn=True),
        Row(FUNCTION_BODY, "vcdeploy.runtime.onnxruntime", ("onnxruntime",)),
        # An engine of `vcdeploy export --trt`; ONNX Runtime's CUDA provider; its TensorRT provider with our plugin.
        Row("tensorrt", "vcdeploy.gpu.tensorrt", gpu=True),
        Row("onnxruntime:cuda", "vcdeploy.gpu.providers", ("onnxruntime",), gpu=True),
        Row("onnxruntime:tensorrt", "vcdeploy.gpu.providers", ("onnxruntime",), gpu=True),
    )
}
CHOICES = ("auto", *BACKENDS)


def choose(unit: str) -> Row:
    """The first backend that is installed and runs the unit."""
    for row in BACKENDS.values():
        if not row.gpu and row.runs(unit) and row.fault() is None:
            return row
    raise VcdeployError(
        f"no backend here runs {unit}: install ONNX Runtime with {install_command('onnxruntime')}, "
        f"or PyTorch with {install_command('torch')}; `vcdeploy doctor` shows what else is missing"
    )


def native_fault() -> str | None:
    """Why the native module can't be used; None if it can."""
    try:
        import_module("vcdeploy._native")
    except ImportError as error:
        return str(error)
    return None
