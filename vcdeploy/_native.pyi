"""The native module, built from plugins/cpu."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
# float32 [rows, columns]; or bytes [rows, columns * size of one], their precision and, if quantized, scales [rows]
Matrix = Floats | tuple[NDArray[np.uint8], str, Floats | None]

def cpu_features() -> dict[str, bool]:
    """The instruction sets the kernels care about, and whether this processor has each."""

def spec() -> dict[str, dict[str, dict[str, Any]]]:
    """plugins/common/spec.h: {"units": {name: {op, variable, gates, state_rows}}, "precisions": {name: {bytes}}}."""

def instruction_sets() -> list[str]:
    """What `isa` may be on this processor, best first; "portable" is always the last."""

def read_bandwidth(bytes: int, seconds: float, *, threads: int = 1, isa: str = "auto") -> float:  # noqa: A002
    """Bytes a second of reading so many bytes over and over: the best pass in about so many seconds."""

def op(
    unit: str,
    X: Floats,
    H0: Floats,
    U: Floats,
    V: Floats,
    u: Floats | None = None,
    v: Floats | None = None,
    b: Floats | None = None,
    C0: Floats | None = None,
    *,
    sharpness: float = 1.0,
    epsilon: float = 1e-3,
    m: Floats | None = None,
    bias: Floats | None = None,
    precision: str = "f32",
    threads: int = 1,
    isa: str = "auto",
) -> tuple[Any, ...]:
    """The op of docs/design.md, section 2: Y [T, B, D], H [B, D], M [T, B] and, for vclstm and lstm, C [B, D].

    u, v, b: of a variable unit, with sharpness and epsilon. bias: of a dense one, [G·D]; for gru [4·D], the last of
    U_n h. m [T, B]: shares to use instead of the scheduler's. The weights are packed anew at every call.
    """

Reals = NDArray[np.float32] | NDArray[np.float64]

TRAIN_PADDING: int  # D is rounded up to a multiple of it where gates are kept

def all_finite(arrays: Sequence[Reals], *, threads: int = 1) -> bool:
    """Whether no array has a NaN or an infinity."""

def train_forward(
    unit: str,
    X: Reals,
    H0: Reals,
    U: Reals,
    V: Reals,
    u: Reals | None,
    v: Reals | None,
    b: float,
    C: Reals | None,
    Y: Reals,
    M: Reals | None,
    gates: Reals | None,
    *,
    sharpness: float,
    epsilon: float,
    threads: int = 1,
    isa: str = "auto",
) -> None:
    """The forward pass into Y and M; C changes from the first cell to the last. All of one type.

    A dense unit has no u, v and M, and ignores b, sharpness and epsilon.

    gates [T·B·G·W], W being D rounded up: kept there for train_backward.
    """

def train_backward(
    unit: str,
    dY: Reals,
    dM: Reals | None,
    X: Reals,
    H0: Reals,
    U: Reals,
    V: Reals,
    u: Reals | None,
    v: Reals | None,
    C0: Reals | None,
    Y: Reals,
    M: Reals | None,
    gates: Reals,
    dH: Reals,
    dC: Reals | None,
    dX: Reals,
    dU: Reals,
    dV: Reals,
    du: Reals | None,
    dv: Reals | None,
    dS: Reals | None,
    *,
    sharpness: float,
    epsilon: float,
    threads: int = 1,
    isa: str = "auto",
) -> None:
    """The backward pass of what train_forward made; all values must be finite.

    Sets dX, dU, dV, du, dv, and dS, the gradient of u·h + v·x + b; changes dH and dC from the gradient of the last
    state to that of the first.
    """

class Model:
    """A language model with packed weights; calls from several threads wait for each other."""

    def __init__(
        self,
        unit: str,
        embedding: Matrix,
        layers: Sequence[Sequence[Matrix]],
        output_weight: Matrix,
        output_bias: Floats,
        *,
        sharpness: float,
        epsilon: float,
        precision: str = "f32",
        threads: int = 1,
        table_bytes: int = 0,
        isa: str = "auto",
    ) -> None:
        """layers: U, V, u, v, b of each, or U, V and maybe the bias of a dense unit; all but U and V in float32.

        table_bytes: what the first layer's table may take.
        """

    def run(
        self,
        tokens: NDArray[np.int64],
        state: Floats | None = None,
        check: Callable[[], None] | None = None,
        logits: str = "all",
    ) -> tuple[Floats, Floats, Floats]:
        """tokens [T, B], state [S, B, D] -> logits [T, B, vocab], state [S, B, D], m [T, B, layers].

        Every few milliseconds the call runs signal handlers and check; an exception of either ends it. logits: "all",
        only the "last", [1, B, vocab], or "none", [0, B, vocab].
        """

    def session(self, batch: int = 1) -> Session:
        """Sequences from zero states, which share the weights."""

    @property
    def isa(self) -> str:
        """The instruction set in use."""

    @property
    def dim(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def state_rows(self) -> int: ...
    @property
    def weight_bytes(self) -> int:
        """What the packed weights take."""

    @property
    def table_bytes(self) -> int:
        """What the first layer's table takes; 0 without one."""

MOST_HISTORY: int  # the largest repetition_window, and length of a stop sequence

class Sampling:
    """Sampling options, without a seed."""

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        repetition_window: int = 64,
        stop: Sequence[Sequence[int]] = (),
    ) -> None: ...

class Session:
    """Sequences that are read and generated token by token; calls from several threads wait for each other."""

    def step(self, tokens: object) -> bool:
        """Reads an int, if there is one sequence, or an int64 array [B], and computes logits; False for others."""

    def feed(
        self,
        tokens: NDArray[np.int64],
        check: Callable[[], None] | None = None,
        rows: Sequence[int] | None = None,
    ) -> None:
        """Reads tokens [T, B], without logits. check: as for Model.run.

        rows: the sequences that this call is about, by default all; B is their number. Also below.
        """

    def observe(self, rows: Sequence[int] | None = None) -> None:
        """Reads what was sampled last, and computes the logits."""

    def generate(
        self,
        uniforms: NDArray[np.float64],
        sampling: Sequence[Sampling],
        allowed: NDArray[np.uint8] | None = None,
        check: Callable[[], None] | None = None,
        rows: Sequence[int] | None = None,
        most: Sequence[int] | None = None,
        alternatives: int = 0,
    ) -> tuple[
        NDArray[np.int64], Floats, NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]
    ]:
        """uniforms [length, B], options of each -> tokens [length, B], m, log-probabilities [length, B], lengths [B].

        m [length, B, layers] is that of the step a token was sampled from. The log-probability is the model's own,
        before all options. A sequence has fewer tokens if it reaches a stop sequence, or `most` [B]; 0 is after them.
        allowed [B, vocab]: the symbols to choose from. check: as for Model.run. The last two results are the most
        likely symbols and their log-probabilities, [length, B, alternatives].
        """

    def save(
        self, rows: Sequence[int] | None = None
    ) -> tuple[Floats, Floats, list[tuple[int, int, NDArray[np.int64]]]]:
        """state [S, B, D], m [B, layers], and of each sequence: tokens read, tokens generated, the last tokens."""

    def restore(
        self,
        state: Floats,
        m: Floats,
        pasts: Sequence[tuple[int, int, NDArray[np.int64]]],
        rows: Sequence[int] | None = None,
    ) -> None:
        """Goes on from what save returned."""

    def fork(self) -> Session:
        """A session of its own with the same past."""

    def reset(self, rows: Sequence[int]) -> None:
        """Starts these sequences again, from a zero state."""

    @property
    def logits(self) -> Floats:
        """A view [B, vocab] of the logits that follow the last step or observe."""

    @property
    def m(self) -> Floats:
        """A view [B, layers] of the m of the last steps."""
