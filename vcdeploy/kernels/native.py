"""Forward and backward passes that skip, on the CPU: plugins/cpu/training for PyTorch tensors.

`takes` says which inputs they support. Inputs must be finite: the kernels do not read past the active dimensions, so a
NaN there would not propagate as it does in the reference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from vcdeploy.spec import UNITS

try:
    import vcdeploy._native as _native

    FAULT = None
except ImportError as error:
    FAULT = str(error)


def trains() -> str:
    """Describe the implementation of the ops on this machine's CPU."""
    if FAULT is not None:
        return f"PyTorch, which computes the full state: no native kernels ({FAULT})"
    return f"native kernels that skip, {_native.instruction_sets()[0]}, threads: {torch.get_num_threads()}"


def takes(unit: str, X: Tensor, *others: Tensor, mask: Sequence[float]) -> bool:
    """Whether the kernels support these inputs.

    others: the op's other inputs, then any tensors with the shape of one of these or of M. mask: sharpness and epsilon,
    for a variable unit.
    """
    if FAULT is not None or X.dtype not in (torch.float32, torch.float64) or X.dim() != 3 or X.numel() == 0:
        return False
    T, B, D = X.shape
    matrix = (len(UNITS[unit].gates) * D, D)
    wanted = {"H0": (B, D), "U": matrix, "V": matrix, "u": (D,), "v": (D,), "b": (1,), "C0": (B, D)}
    first = [wanted[name] for name in UNITS[unit].inputs[1:]]
    known = {*first, (T, B, D), (T, B)}
    return (
        all(0 < each < most for each, most in zip(mask, (math.inf, 0.5), strict=False))
        and all(each.device.type == "cpu" and each.dtype == X.dtype for each in (X, *others))
        and [tuple(each.shape) for each in others[: len(first)]] == first
        and all(tuple(each.shape) in known for each in others)
        and _native.all_finite([_array(each) for each in (X, *others)], threads=torch.get_num_threads())
    )


def new_gates(unit: str, X: Tensor) -> Tensor:
    """Allocate the gates of every token, which the forward pass saves for the backward pass.

    Empty if the kernels cannot run. The shape depends only on the inputs' shapes and types.
    """
    if FAULT is not None or X.device.type != "cpu" or X.dtype not in (torch.float32, torch.float64):
        return X.new_empty(0)
    T, B, D = X.shape
    padding = _native.TRAIN_PADDING
    return X.new_empty(T * B * len(UNITS[unit].gates) * ((D + padding - 1) // padding * padding))


def forward(unit: str, *inputs: Any, gates: Tensor | None = None, isa: str = "auto") -> tuple[Tensor, ...]:
    """Returns the op's outputs. inputs: those of the op. gates: output buffer from new_gates."""
    spec = UNITS[unit]
    given = _named(unit, spec.inputs, inputs)
    X = given["X"]
    made = {"Y": X.new_empty(X.shape)}
    if spec.variable:
        made["M"] = X.new_empty(X.shape[:2])
    if "C0" in given:
        made["C"] = given["C0"].clone(memory_format=torch.contiguous_format)
    sharpness, epsilon = _mask(unit, inputs)
    _native.train_forward(
        unit, _array(X), _array(given["H0"]), _array(given["U"]), _array(given["V"]), _maybe(given.get("u")),
        _maybe(given.get("v")), given["b"].item() if spec.variable else 0.0, _maybe(made.get("C")), _array(made["Y"]),
        _maybe(made.get("M")), _maybe(gates),
        sharpness=sharpness, epsilon=epsilon, threads=torch.get_num_threads(), isa=isa,
    )  # fmt: skip
    made["H"] = made["Y"][-1].clone()
    return tuple(made[name] for name in spec.outputs)


def backward(unit: str, *inputs: Any, isa: str = "auto") -> tuple[Tensor, ...]:
    """Gradients of the op's inputs, from those of its outputs.

    inputs: the gradients of the outputs, the inputs, Y and M (of a dense unit Y), gates, sharpness and epsilon.
    """
    spec = UNITS[unit]
    given = _named(unit, (*(f"d{name}" for name in spec.outputs), *spec.inputs, *spec.saved_outputs, "gates"), inputs)
    made = {name: each.new_empty(each.shape) for name, each in given.items() if name in ("X", "U", "V", "u", "v")}
    if spec.variable:
        made["b"] = given["M"].new_empty(given["M"].shape)  # of u·h + v·x + b, for every token
    for row, gradient in (("H0", "dH"), ("C0", "dC")):
        if row in given:
            made[row] = given[gradient].clone(memory_format=torch.contiguous_format)
    sharpness, epsilon = _mask(unit, inputs)
    _native.train_backward(
        unit, _array(given["dY"]), _maybe(given.get("dM")), _array(given["X"]), _array(given["H0"]),
        _array(given["U"]), _array(given["V"]), _maybe(given.get("u")), _maybe(given.get("v")),
        _maybe(given.get("C0")), _array(given["Y"]), _maybe(given.get("M")), _array(given["gates"]),
        _array(made["H0"]), _maybe(made.get("C0")), _array(made["X"]), _array(made["U"]), _array(made["V"]),
        _maybe(made.get("u")), _maybe(made.get("v")), _maybe(made.get("b")),
        sharpness=sharpness, epsilon=epsilon, threads=torch.get_num_threads(), isa=isa,
    )  # fmt: skip
    if spec.variable:
        made["b"] = made["b"].sum().view(1)
    return tuple(made[name] for name in spec.inputs)


def _named(unit: str, names: tuple[str, ...], inputs: tuple[Any, ...]) -> dict[str, Tensor]:
    """The tensors by name; for a variable unit, sharpness and epsilon follow them."""
    return dict(zip(names, inputs[: -2 if UNITS[unit].variable else None], strict=True))


def _mask(unit: str, inputs: tuple[Any, ...]) -> tuple[float, float]:
    """Sharpness and epsilon, the last inputs of a variable unit; a dense one ignores them."""
    return inputs[-2:] if UNITS[unit].variable else (1.0, 1e-3)


def _maybe(tensor: Tensor | None) -> NDArray[Any] | None:
    return None if tensor is None else _array(tensor)


def _array(tensor: Tensor) -> NDArray[Any]:
    """The tensor as a contiguous array, without a copy if it is contiguous already."""
    array: NDArray[Any] = tensor.detach().contiguous().numpy()
    return array
