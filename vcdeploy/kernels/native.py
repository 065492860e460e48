"""Forward and backward passes that skip, on the CPU: plugins/cpu/training for PyTorch tensors.

`takes` says which inputs they support. Inputs must be finite: the kernels do not read past the active dimensions, so a
NaN there would not propagate as it does in the reference.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from vcdeploy.spec import UNITS

try:
    from vcdeploy import _native

    FAULT = None
except ImportError as error:
    FAULT = str(error)


def trains() -> str:
    """Describe the implementation of the ops on this machine's CPU."""
    if FAULT is not None:
        return f"PyTorch, which computes the full state: no native kernels ({FAULT})"
    return f"native kernels that skip, {_native.instruction_sets()[0]}, threads: {torch.get_num_threads()}"


def takes(unit: str, X: Tensor, *others: Tensor, sharpness: float, epsilon: float) -> bool:
    """Whether the kernels support these inputs.

    others: H0, U, V, u, v, then any tensors with the shape of one of these, X, M or b.
    """
    if FAULT is not None or X.dtype not in (torch.float32, torch.float64) or X.dim() != 3 or X.numel() == 0:
        return False
    T, B, D = X.shape
    matrix = (len(UNITS[unit].gates) * D, D)
    first = [(B, D), matrix, matrix, (D,), (D,)]
    known = {*first, (T, B, D), (T, B), (1,)}
    return (
        0 < sharpness < math.inf
        and 0 < epsilon < 0.5
        and all(each.device.type == "cpu" and each.dtype == X.dtype for each in (X, *others))
        and [tuple(each.shape) for each in others[:5]] == first
        and all(tuple(each.shape) in known for each in others[5:])
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


def forward(
    unit: str,
    X: Tensor,
    H0: Tensor,
    U: Tensor,
    V: Tensor,
    u: Tensor,
    v: Tensor,
    b: Tensor,
    *rest: Any,
    gates: Tensor | None = None,
    isa: str = "auto",
) -> tuple[Tensor, ...]:
    """Returns Y, H, M and, for vclstm, C.

    rest: C0 (vclstm only), sharpness, epsilon. gates: output buffer from new_gates.
    """
    *cell, sharpness, epsilon = rest
    Y, M = X.new_empty(X.shape), X.new_empty(X.shape[:2])
    C = [each.clone(memory_format=torch.contiguous_format) for each in cell]
    _native.train_forward(
        unit, _array(X), _array(H0), _array(U), _array(V), _array(u), _array(v), b.item(),
        _array(C[0]) if C else None, _array(Y), _array(M), None if gates is None else _array(gates),
        sharpness=sharpness, epsilon=epsilon, threads=torch.get_num_threads(), isa=isa,
    )  # fmt: skip
    return Y, Y[-1].clone(), M, *C


def backward(unit: str, dY: Tensor, dH: Tensor, dM: Tensor, *rest: Any, isa: str = "auto") -> tuple[Tensor, ...]:
    """Gradients of X, H0, U, V, u, v, b and, for vclstm, C0.

    rest: dC (vclstm only), X, H0, U, V, u, v, b, C0 (vclstm only), Y, M, gates, sharpness, epsilon.
    """
    *tensors, sharpness, epsilon = rest
    cell_gradients, cells = [], []
    if UNITS[unit].state_rows > 1:
        cell_gradients = [tensors.pop(0).clone(memory_format=torch.contiguous_format)]
        cells = [tensors.pop(7)]
    X, H0, U, V, u, v, _, Y, M, gates = tensors
    dX, dS = X.new_empty(X.shape), M.new_empty(M.shape)
    dU, dV, du, dv = (each.new_empty(each.shape) for each in (U, V, u, v))
    dh = dH.clone(memory_format=torch.contiguous_format)
    _native.train_backward(
        unit, _array(dY), _array(dM), _array(X), _array(H0), _array(U), _array(V), _array(u), _array(v),
        _array(cells[0]) if cells else None, _array(Y), _array(M), _array(gates), _array(dh),
        _array(cell_gradients[0]) if cells else None,
        _array(dX), _array(dU), _array(dV), _array(du), _array(dv), _array(dS),
        sharpness=sharpness, epsilon=epsilon, threads=torch.get_num_threads(), isa=isa,
    )  # fmt: skip
    return dX, dh, dU, dV, du, dv, dS.sum().view(1), *cell_gradients


def _array(tensor: Tensor) -> NDArray[Any]:
    """The tensor as a contiguous array, without a copy if it is contiguous already."""
    array: NDArray[Any] = tensor.detach().contiguous().numpy()
    return array
