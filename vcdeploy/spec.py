"""Table of units and precisions, which all other modules look up.

plugins/common/spec.h holds the same table for native code; a test keeps the two in sync. This module imports nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_THREADS = 256  # CPU threads of a model
MOST_DIMENSIONS = 16384  # D of a model to train or to measure


@dataclass(frozen=True)
class Unit:
    """A recurrent unit.

    gates: their order in the stacked weights [G·D, D]. state: the rows of a layer's state, in order.
    variable: whether it has a scheduler. dense: the dense counterparts, closest first.
    products: a × a matrix products per step. elman_units: how many Elman units the paper counts it as.
    trains: whether it has an op that trains on the kernels of plugins/cpu/training.
    biased: whether a model of it may have biases, as one imported from PyTorch. exports: whether `vcdeploy export`
    supports it.
    """

    name: str
    gates: tuple[str, ...]
    state: tuple[str, ...]
    variable: bool
    products: int
    elman_units: int
    dense: tuple[str, ...] = ()
    trains: bool = True
    biased: bool = False
    exports: bool = True

    # Follow from the above; plain values, which torch.compile can trace.
    op: str = field(init=False)  # the ONNX op type: ours for a variable unit, ONNX's own for a dense one
    function: str = field(init=False)  # the name of its op in PyTorch
    weights: tuple[str, ...] = field(init=False)  # of a layer, in the order of the op's inputs
    inputs: tuple[str, ...] = field(init=False)  # the tensors the op takes (docs/design.md, section 2)
    outputs: tuple[str, ...] = field(init=False)
    saved_outputs: tuple[str, ...] = field(init=False)  # those the backward pass needs
    state_rows: int = field(init=False)  # rows of the state per layer

    def __post_init__(self) -> None:
        weights = ("U", "V", "u", "v", "b") if self.variable else ("U", "V")
        m = ("M",) if self.variable else ()
        more = [row.upper() for row in self.state[1:]]
        self.__dict__.update(
            op=self.name.split("-")[0].upper(),
            function=self.name.replace("-", "_"),
            weights=weights,
            inputs=("X", "H0", *weights, *(f"{row}0" for row in more)),
            outputs=("Y", "H", *m, *more),
            saved_outputs=("Y", *m),
            state_rows=len(self.state),
        )


@dataclass(frozen=True)
class Precision:
    """How the weights of a file are stored, and whether activations are quantized.

    onnx_type: its number in onnx.TensorProto.DataType. dtype: how NumPy reads the stored bytes.
    rounding: the largest relative error of a weight; if quantized, relative to the largest weight in its row.
    levels: that activations are quantized to, at most; 0 if they are not (docs/design.md, section 2).
    tensorrt: whether the TensorRT plugin supports it for matrices.
    """

    name: str
    onnx_type: int
    dtype: str
    bytes: int
    rounding: float
    levels: int = 0
    tensorrt: bool = False


WEIGHT_LEVELS = 127  # quantized weights are symmetric: -127 … 127

UNITS = {
    unit.name: unit
    for unit in (
        Unit("vcrnn", ("h",), ("h",), True, 2, 1, dense=("rnn",)),
        Unit("vcgru", ("r", "z", "h"), ("h",), True, 6, 2, dense=("gru", "lstm")),
        Unit("vclstm", ("i", "f", "g", "o"), ("h", "c"), True, 8, 4, dense=("lstm", "gru")),
        Unit("rnn", ("h",), ("h",), False, 2, 1, biased=True),
        # The paper's form, that of vcgru: the reset gate multiplies the state before the matrix does.
        Unit("gru-reset-first", ("r", "z", "h"), ("h",), False, 6, 2),
        # PyTorch's form: the reset gate multiplies the product.
        Unit("gru", ("r", "z", "n"), ("h",), False, 6, 2, trains=False, biased=True),
        Unit("lstm", ("i", "f", "g", "o"), ("h", "c"), False, 8, 4, biased=True),
        # A fast and a slow layer; its cost depends on how often the slow one runs (vcdeploy/cost.py).
        Unit("crnn", ("fast", "slow"), ("fast", "slow"), False, 2, 1, trains=False, exports=False),
    )
}

PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("f32", 1, "<f4", 4, 0.0, tensorrt=True),
        Precision("f16", 10, "<f2", 2, 2.0**-11, tensorrt=True),
        Precision("bf16", 16, "<u2", 2, 2.0**-8),
        Precision("int8", 3, "<i1", 1, 0.5 / WEIGHT_LEVELS, levels=2**14),
        Precision("w8a8", 3, "<i1", 1, 0.5 / WEIGHT_LEVELS, levels=127),  # a file stores weights as in int8
    )
}

VARIABLE_UNITS = tuple(name for name, unit in UNITS.items() if unit.variable)
TRAINED_UNITS = tuple(name for name, unit in UNITS.items() if unit.trains)
DENSE_UNITS = tuple(name for name, unit in UNITS.items() if not unit.variable and unit.exports)
QUANTIZED_PRECISIONS = tuple(name for name, precision in PRECISIONS.items() if precision.levels)
TENSORRT_PRECISIONS = tuple(name for name, precision in PRECISIONS.items() if precision.tensorrt)
