"""The ops torch.ops.vcdeploy.vcrnn, vcgru and vclstm: one op per sequence, with autograd.

`torch.compile` and `torch.export` see one node with the shapes of docs/design.md, section 2. On a CPU, in float32 and
float64, both passes run the kernels of plugins/cpu/training, which skip. Otherwise the forward pass is the reference
and the backward pass vcdeploy.kernels.gradients; both compute the full state.

Each op calls two others: `<unit>_forward` also returns the gates, which `<unit>_backward` takes as an input. The gates
are kept only if a gradient is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vcdeploy.kernels import gradients, native
from vcdeploy.reference import cells
from vcdeploy.spec import UNITS, VARIABLE_UNITS

LIBRARY = torch.library.Library("vcdeploy", "FRAGMENT")


def _schema(tensors: list[str], outputs: int, *flags: str) -> str:
    inputs = [*(f"Tensor {name}" for name in tensors), "float sharpness", "float epsilon", *flags]
    return f"({', '.join(inputs)}) -> ({', '.join(['Tensor'] * outputs)})"


def _define(unit: str) -> torch._ops.OpOverloadPacket[..., tuple[Tensor, ...]]:
    """Define the op of a unit, with its forward and backward ops. Only vclstm has C0 and C."""
    cell = UNITS[unit].state_rows > 1
    given = ["X", "H0", "U", "V", "u", "v", "b", *["C0"] * cell]
    outputs = ["Y", "H", "M", *["C"] * cell]
    saved = [*given, "Y", "M", "gates"]
    d_outputs = [f"d{name}" for name in outputs]

    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        *tensors, sharpness, epsilon, keep = inputs
        if not native.takes(unit, *tensors, sharpness=sharpness, epsilon=epsilon):
            made: tuple[Tensor, ...] = getattr(cells, unit)(*tensors, sharpness, epsilon)
            return *made, _gates(tensors[0], keep)
        gates = _gates(tensors[0], keep)
        return *native.forward(unit, *tensors, sharpness, epsilon, gates=gates if keep else None), gates

    def _gates(X: Tensor, keep: bool) -> Tensor:
        return native.new_gates(unit, X) if keep else X.new_empty(0)

    def fake_forward(*inputs: Any) -> tuple[Tensor, ...]:
        X, H0, *_, keep = inputs
        made = [torch.empty_like(X), torch.empty_like(H0), X.new_empty(X.shape[:2]), *[torch.empty_like(H0)] * cell]
        return *made, _gates(X, keep)

    def backward(*inputs: Any) -> tuple[Tensor, ...]:
        *tensors, sharpness, epsilon = inputs
        d, (*others, gates) = tensors[: len(outputs)], tensors[len(outputs) :]
        # others includes all inputs of the forward pass: if accepted here, they were accepted there, and gates exist.
        if native.takes(unit, *others, *d, sharpness=sharpness, epsilon=epsilon):
            return native.backward(unit, *d, *others, gates, sharpness, epsilon)
        without_b = [each for name, each in zip(saved, others, strict=False) if name != "b"]
        made: tuple[Tensor, ...] = getattr(gradients, f"{unit}_backward")(*d, *without_b, sharpness, epsilon)
        return made

    def fake_backward(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(each) for each in inputs[len(outputs) :][: len(given)])

    def operator(name: str, run: Callable[..., Any], fake: Callable[..., Any], schema: str) -> Any:
        made = torch.library.custom_op(f"vcdeploy::{name}", run, mutates_args=(), schema=schema)
        made.register_fake(fake)
        return made

    forward_op = operator(f"{unit}_forward", forward, fake_forward, _schema(given, len(outputs) + 1, "bool keep"))
    backward_op = operator(f"{unit}_backward", backward, fake_backward, _schema([*d_outputs, *saved], len(given)))

    class Sequence(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
            *tensors, ctx.sharpness, ctx.epsilon = inputs
            *made, gates = forward_op(*inputs, True)
            Y, _, M, *_ = made
            ctx.save_for_backward(*tensors, Y, M, gates)
            return tuple(made)

        @staticmethod
        def backward(ctx: Any, *d: Tensor) -> tuple[Tensor | None, ...]:
            return *backward_op(*d, *ctx.saved_tensors, ctx.sharpness, ctx.epsilon), None, None

    def without_gradients(*inputs: Any) -> tuple[Tensor, ...]:
        *made, _ = forward_op(*inputs, False)
        return tuple(made)

    def with_gradients(*inputs: Any) -> tuple[Tensor, ...]:
        needed = torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in inputs)
        made: tuple[Tensor, ...] = Sequence.apply(*inputs) if needed else without_gradients(*inputs)
        return made

    LIBRARY.define(unit + _schema(given, len(outputs)), tags=torch.Tag.pt2_compliant_tag)
    LIBRARY.impl(unit, without_gradients, "CompositeExplicitAutograd")
    LIBRARY.impl(unit, with_gradients, "Autograd")
    torch.library.register_fake(f"vcdeploy::{unit}", without_gradients, lib=LIBRARY)
    op: torch._ops.OpOverloadPacket[..., tuple[Tensor, ...]] = getattr(torch.ops.vcdeploy, unit)
    return op


OPS = {unit: _define(unit) for unit in VARIABLE_UNITS}
