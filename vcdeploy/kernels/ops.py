"""The ops torch.ops.vcdeploy.vcrnn, vcgru and vclstm: one op per sequence, with autograd.

`torch.compile` and `torch.export` see one node with the shapes of docs/design.md, section 2. On a CPU, in float32 and
float64, both passes run the kernels of plugins/cpu/training, which skip. Otherwise the forward pass is the reference
and the backward pass vcdeploy.kernels.gradients; both compute the full state.

Each op calls two others: `<unit>_forward` also returns the gates, which `<unit>_backward` takes as an input. The gates
are kept only if a gradient is needed. All outputs are contiguous, whatever the strides of the inputs: the compilers
rely on the strides that the fake implementations promise.

Derivatives other than a plain backward pass are the reference's: forward mode (`jvp`, dual tensors), second and higher
derivatives, and everything inside a `torch.func` gradient transform. `vmap` alone runs the kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from vcdeploy.kernels import gradients, native
from vcdeploy.reference import cells
from vcdeploy.spec import UNITS, VARIABLE_UNITS

Function = Callable[..., tuple[Tensor, ...]]

LIBRARY = torch.library.Library("vcdeploy", "FRAGMENT")


def _schema(tensors: list[str], outputs: int, *flags: str) -> str:
    inputs = [*(f"Tensor {name}" for name in tensors), "float sharpness", "float epsilon", *flags]
    return f"({', '.join(inputs)}) -> ({', '.join(['Tensor'] * outputs)})"


def _check(unit: str, tensors: list[Tensor]) -> None:
    """Refuse shapes other than those of docs/design.md, section 2; the reference would broadcast some of them."""
    X, H0, U, V, u, v, b, *C0 = tensors
    torch._check(
        X.dim() == 3 and X.shape[0] > 0, lambda: f"{unit} takes X of shape [T, B, D] with T > 0, not {list(X.shape)}"
    )
    B, D = X.shape[1:]
    rows = len(UNITS[unit].gates) * D
    wanted = {"H0": (B, D), "U": (rows, D), "V": (rows, D), "u": (D,), "v": (D,), "b": (1,), "C0": (B, D)}
    for (name, shape), each in zip(wanted.items(), (H0, U, V, u, v, b, *C0), strict=False):
        torch._check(
            each.shape == shape,
            lambda name=name, shape=shape, each=each: (
                f"{unit} takes {name} of shape {list(shape)} with X of shape {list(X.shape)}, not {list(each.shape)}"
            ),
        )


def _needs_gradient(inputs: tuple[Any, ...]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in inputs)


def _needs_reference(inputs: tuple[Any, ...]) -> bool:
    """Whether a derivative is asked for that the kernels do not have: a transform of torch.func, or a dual tensor."""
    if torch._C._are_functorch_transforms_active():
        return True
    return any(isinstance(each, Tensor) and unpack_dual(each).tangent is not None for each in inputs)


def _one_by_one(op: Function, info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
    """A vmap rule: one call per example."""
    torch._check(info.batch_size > 0, lambda: f"{op} cannot be mapped over a dimension of size 0")
    examples = [
        op(*(each if dim is None else each.select(dim, n) for each, dim in zip(inputs, in_dims, strict=True)))
        for n in range(info.batch_size)
    ]
    made = tuple(map(torch.stack, zip(*examples, strict=True)))
    return made, (0,) * len(made)


def _register(
    name: str, schema: str, run: Function, fake: Function, plain: Function, gradient: type[torch.autograd.Function]
) -> Function:
    """Define an op with autograd and vmap.

    plain: the same function in operations of PyTorch, which it can differentiate in every way.
    gradient: its forward calls the op.
    """

    def with_gradients(*inputs: Any) -> tuple[Tensor, ...]:
        if _needs_reference(inputs):
            return plain(*inputs)
        if _needs_gradient(inputs):
            made: tuple[Tensor, ...] = gradient.apply(*inputs)
            return made
        with torch._C._AutoDispatchBelowAutograd():
            return op(*inputs)

    LIBRARY.define(name + schema, tags=torch.Tag.pt2_compliant_tag)
    LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    LIBRARY.impl(name, with_gradients, "Autograd")
    torch.library.register_fake(f"vcdeploy::{name}", fake, lib=LIBRARY)
    op: Function = getattr(torch.ops.vcdeploy, name)
    torch.library.register_vmap(f"vcdeploy::{name}", functools.partial(_one_by_one, op), lib=LIBRARY)
    return op


def _define(unit: str) -> torch._ops.OpOverloadPacket[..., tuple[Tensor, ...]]:
    """Define the op of a unit, with its forward and backward ops. Only vclstm has C0 and C."""
    cell = UNITS[unit].state_rows > 1
    given = ["X", "H0", "U", "V", "u", "v", "b", *["C0"] * cell]
    outputs = ["Y", "H", "M", *["C"] * cell]
    saved = [*given, "Y", "M", "gates"]
    d_outputs = [f"d{name}" for name in outputs]
    reference: Function = getattr(cells, unit)

    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        *tensors, sharpness, epsilon, keep = inputs
        _check(unit, tensors)
        if not native.takes(unit, *tensors, sharpness=sharpness, epsilon=epsilon):
            made = reference(*tensors, sharpness, epsilon)
            return *(each.contiguous() for each in made), _gates(tensors[0], keep)
        gates = _gates(tensors[0], keep)
        return *native.forward(unit, *tensors, sharpness, epsilon, gates=gates if keep else None), gates

    def plain_forward(*inputs: Any) -> tuple[Tensor, ...]:
        *tensors, sharpness, epsilon, keep = inputs
        _check(unit, tensors)
        return *reference(*tensors, sharpness, epsilon), _gates(tensors[0], keep)

    def _gates(X: Tensor, keep: bool) -> Tensor:
        return native.new_gates(unit, X) if keep else X.new_empty(0)

    def fake_forward(*inputs: Any) -> tuple[Tensor, ...]:
        *tensors, _, _, keep = inputs
        _check(unit, tensors)
        X, H0, *_ = tensors
        made = [X.new_empty(X.shape), H0.new_empty(H0.shape), X.new_empty(X.shape[:2])]
        return *made, *(each.new_empty(each.shape) for each in tensors[7:]), _gates(X, keep)

    def backward(*inputs: Any) -> tuple[Tensor, ...]:
        *tensors, sharpness, epsilon = inputs
        d, (*others, gates) = tensors[: len(outputs)], tensors[len(outputs) :]
        # others includes all inputs of the forward pass: if accepted here, they were accepted there, and gates are
        # written unless it was told not to keep them.
        if gates.numel() and native.takes(unit, *others, *d, sharpness=sharpness, epsilon=epsilon):
            return native.backward(unit, *d, *others, gates, sharpness, epsilon)
        without_b = [each for name, each in zip(saved, others, strict=False) if name != "b"]
        made: tuple[Tensor, ...] = getattr(gradients, f"{unit}_backward")(*d, *without_b, sharpness, epsilon)
        return tuple(each.contiguous() for each in made)

    def fake_backward(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple(each.new_empty(each.shape) for each in inputs[len(outputs) :][: len(given)])

    def plain_backward(*inputs: Any) -> tuple[Tensor, ...]:
        """The gradients as a function of d_outputs and given.

        Y, M and the gates depend on given. They only save the kernels some work: no derivative goes through them.
        """
        *tensors, sharpness, epsilon = inputs
        d, known = tensors[: len(outputs)], tensors[len(outputs) :][: len(given)]
        pull = torch.func.vjp(lambda *each: reference(*each, sharpness, epsilon), *known)[1]
        made: tuple[Tensor, ...] = pull(tuple(d))
        return made

    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
            *tensors, ctx.sharpness, ctx.epsilon, _keep = inputs
            made = forward_op(*inputs)
            Y, _H, M, *_C, gates = made
            ctx.mark_non_differentiable(gates)
            ctx.set_materialize_grads(False)  # else zeros for the gates, which are large
            ctx.save_for_backward(*tensors, Y, M, gates)
            return made

        @staticmethod
        def backward(ctx: Any, *d: Tensor | None) -> tuple[Tensor | None, ...]:
            _X, H0, *_, Y, M, _gates = ctx.saved_tensors
            like = (Y, H0, M, H0)  # the shapes of Y, H, M, C
            whole = [y.new_zeros(y.shape) if dy is None else dy for dy, y in zip(d[:-1], like, strict=False)]
            return *backward_op(*whole, *ctx.saved_tensors, ctx.sharpness, ctx.epsilon), None, None, None

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
            *tensors, ctx.sharpness, ctx.epsilon = inputs
            ctx.save_for_backward(*tensors[: len(outputs) + len(given)])
            return backward_op(*inputs)

        @staticmethod
        def backward(ctx: Any, *dd: Tensor) -> tuple[Tensor | None, ...]:
            pull = torch.func.vjp(lambda *each: plain_backward(*each, ctx.sharpness, ctx.epsilon), *ctx.saved_tensors)[
                1
            ]
            return *pull(dd), *[None] * (len(saved) - len(given)), None, None

    forward_op = _register(
        f"{unit}_forward",
        _schema(given, len(outputs) + 1, "bool keep"),
        forward,
        fake_forward,
        plain_forward,
        Forward,
    )
    backward_op = _register(
        f"{unit}_backward",
        _schema([*d_outputs, *saved], len(given)),
        backward,
        fake_backward,
        plain_backward,
        Backward,
    )

    def run(*inputs: Any) -> tuple[Tensor, ...]:
        *made, _ = forward_op(*inputs, _needs_gradient(inputs))
        return tuple(made)

    def mapped(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        """A vmap rule: the examples join the batch, unless they have weights of their own."""
        if any(dim is not None for dim in in_dims[2:7]):
            return _one_by_one(op, info, in_dims, *inputs)

        def join(each: Tensor, dim: int | None, at: int) -> Tensor:  # -> [(T,) N·B, D]; at: where N goes
            each = each.unsqueeze(at) if dim is None else each.movedim(dim, at)
            return each.expand(*each.shape[:at], N, *each.shape[at + 1 :]).flatten(at, at + 1)

        N, places = info.batch_size, {0: 1, 1: 0, 7: 0} if cell else {0: 1, 1: 0}
        joined = [join(each, in_dims[n], places[n]) if n in places else each for n, each in enumerate(inputs)]
        X, at = inputs[0], (1, 0, 1, 0)[: len(outputs)]
        B = X.shape[1] if in_dims[0] is None else X.movedim(in_dims[0], 0).shape[2]
        return tuple(each.unflatten(dim, (N, B)) for each, dim in zip(op(*joined), at, strict=True)), at

    LIBRARY.define(unit + _schema(given, len(outputs)), tags=torch.Tag.pt2_compliant_tag)
    LIBRARY.impl(unit, run, "CompositeExplicitAutograd")
    LIBRARY.impl(unit, run, "Autograd")
    torch.library.register_fake(f"vcdeploy::{unit}", run, lib=LIBRARY)
    torch.library.register_vmap(f"vcdeploy::{unit}", mapped, lib=LIBRARY)
    op: torch._ops.OpOverloadPacket[..., tuple[Tensor, ...]] = getattr(torch.ops.vcdeploy, unit)
    return op


OPS = {unit: _define(unit) for unit in VARIABLE_UNITS}
