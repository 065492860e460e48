"""The native module, built from plugins/cpu."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
# float32 [rows, columns]; or bytes [rows, columns * size of one], their precision and, for int8, scales [rows]
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
    u: Floats,
    v: Floats,
    b: Floats,
    C0: Floats | None = None,
    *,
    sharpness: float,
    epsilon: float,
    m: Floats | None = None,
    precision: str = "f32",
    threads: int = 1,
    isa: str = "auto",
) -> tuple[Any, ...]:
    """The op of docs/design.md, section 2: Y [T, B, D], H [B, D], M [T, B] and, for vclstm, C [B, D].

    m [T, B]: shares to use instead of the scheduler's. The weights are packed anew at every call.
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
        """layers: U, V, u, v, b of each; u, v, b in float32. table_bytes: what the first layer's table may take."""

    def run(
        self, tokens: NDArray[np.int64], state: Floats | None = None, check: Callable[[], None] | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """tokens [T, B], state [S, B, D] -> logits [T, B, vocab], state [S, B, D], m [T, B, layers].

        Every few milliseconds the call runs signal handlers and check; an exception of either ends it.
        """

    def generate(
        self,
        prime: NDArray[np.int64],
        uniforms: NDArray[np.float64],
        state: Floats | None = None,
        check: Callable[[], None] | None = None,
        *,
        temperature: float,
        top_k: int,
        top_p: float,
    ) -> tuple[NDArray[np.int64], Floats, NDArray[np.float64], Floats]:
        """prime [n], uniforms [length], state [S, 1, D] -> tokens, m, log-probabilities, state.

        Row t of tokens [length], m [length, layers] and log-probabilities [length] belongs to generated token t. m is
        that of the step it was sampled from: over the prime's last token, then over the token before. The
        log-probability is the model's own, before temperature, top_k and top_p. The last generated token is not read:
        pass it, with the state, as the next prime. check: as for run.
        """

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
