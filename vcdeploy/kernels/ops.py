"""The ops torch.ops.vcdeploy.vcrnn, vcgru and vclstm: a whole sequence is one op, with autograd.

`torch.compile` and `torch.export` see one node with the shapes of docs/design.md, section 2. On a CPU, in float32 and
float64, both passes are the kernels of plugins/cpu/training, which skip. Elsewhere the forward pass is the reference,
the backward pass vcdeploy.kernels.gradients; both compute the whole state.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from vcdeploy.kernels import gradients, native
from vcdeploy.units import cells


def _forward(unit: str, reference: Callable[..., tuple[Tensor, ...]]) -> Callable[..., Any]:
    @wraps(reference)  # the op's schema is the reference's signature
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        *tensors, sharpness, epsilon = inputs
        skips = native.takes(unit, *tensors, sharpness=sharpness, epsilon=epsilon)
        return native.forward(unit, *inputs) if skips else reference(*inputs)

    return forward


def _gradients(unit: str, reference: Callable[..., tuple[Tensor, ...]]) -> Callable[..., Any]:
    outputs = 4 if unit == "vclstm" else 3

    @wraps(reference)
    def backward(*inputs: Any) -> tuple[Tensor, ...]:
        *tensors, sharpness, epsilon = inputs
        of_outputs, others = tensors[:outputs], tensors[outputs:]
        skips = native.takes(unit, *others, *of_outputs, sharpness=sharpness, epsilon=epsilon)
        return native.backward(unit, *inputs) if skips else reference(*inputs)

    return backward


vcrnn = torch.library.custom_op("vcdeploy::vcrnn", _forward("vcrnn", cells.vcrnn), mutates_args=())
vcgru = torch.library.custom_op("vcdeploy::vcgru", _forward("vcgru", cells.vcgru), mutates_args=())
vclstm = torch.library.custom_op("vcdeploy::vclstm", _forward("vclstm", cells.vclstm), mutates_args=())
vcrnn_backward = torch.library.custom_op(
    "vcdeploy::vcrnn_backward", _gradients("vcrnn", gradients.vcrnn_backward), mutates_args=()
)
vcgru_backward = torch.library.custom_op(
    "vcdeploy::vcgru_backward", _gradients("vcgru", gradients.vcgru_backward), mutates_args=()
)
vclstm_backward = torch.library.custom_op(
    "vcdeploy::vclstm_backward", _gradients("vclstm", gradients.vclstm_backward), mutates_args=()
)


def _fake_forward(X: Tensor, H0: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return torch.empty_like(X), torch.empty_like(H0), X.new_empty(X.shape[:2])


def _fake_vclstm(X: Tensor, H0: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return (*_fake_forward(X, H0), torch.empty_like(H0))


def _fake_backward(dY: Tensor, dH: Tensor, dM: Tensor, *saved: Any) -> tuple[Tensor, ...]:
    X, H0, U, V, u, v = saved[:6]
    return (*(torch.empty_like(each) for each in (X, H0, U, V, u, v)), u.new_empty(1))


def _fake_vclstm_backward(dY: Tensor, dH: Tensor, dM: Tensor, dC: Tensor, *saved: Any) -> tuple[Tensor, ...]:
    return (*_fake_backward(dY, dH, dM, *saved), torch.empty_like(dC))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    X, H0, U, V, u, v, _, *C0, ctx.sharpness, ctx.epsilon = inputs
    Y, _, M, *_ = output
    ctx.save_for_backward(X, H0, U, V, u, v, *C0, Y, M)


def _backward(op: Any) -> Any:
    def backward(ctx: Any, *d_outputs: Tensor) -> tuple[Tensor | None, ...]:
        d_inputs = op(*d_outputs, *ctx.saved_tensors, ctx.sharpness, ctx.epsilon)
        return (*d_inputs, None, None)

    return backward


for _op, _op_backward, _fake, _fake_bwd in (
    (vcrnn, vcrnn_backward, _fake_forward, _fake_backward),
    (vcgru, vcgru_backward, _fake_forward, _fake_backward),
    (vclstm, vclstm_backward, _fake_vclstm, _fake_vclstm_backward),
):
    _op.register_fake(_fake)
    _op_backward.register_fake(_fake_bwd)
    _op.register_autograd(_backward(_op_backward), setup_context=_save)
