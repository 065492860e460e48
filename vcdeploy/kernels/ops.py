"""The ops torch.ops.vcdeploy.vcrnn, vcgru, vclstm and their dense counterparts: one op per sequence, with autograd.

`torch.compile` and `torch.export` see one node with the shapes of docs/design.md, section 2. On a CPU, in float32 and
float64, both passes run the kernels of plugins/cpu/training, which skip. Otherwise the forward pass is the reference
and the backward pass vcdeploy.kernels.gradients; both compute the full state. float16 and bfloat16 are computed in
float32, and the outputs rounded: half precision would shift m, which is multiplied by D.

Each op calls two others: `<unit>_forward` also returns the gates, which `<unit>_backward` takes as an input. The gates
are kept only if a gradient is needed. All outputs are contiguous, whatever the strides of the inputs: the compilers
rely on the strides that the fake implementations promise.

Derivatives other than a plain backward pass are the reference's: forward mode (`jvp`, dual tensors), second and higher
derivatives, and everything inside a `torch.func` gradient transform. `vmap` alone runs the kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from vcdeploy.kernels import gradients, native
from vcdeploy.reference import cells
from vcdeploy.spec import TRAINED_UNITS, UNITS

Function = Callable[..., tuple[Tensor, ...]]

HALF = (torch.float16, torch.bfloat16)
LIBRARY = torch.library.Library("vcdeploy", "FRAGMENT")


def _schema(tensors: Sequence[str], others: Sequence[str], outputs: int) -> str:
    inputs = [*(f"Tensor {name}" for name in tensors), *others]
    return f"({', '.join(inputs)}) -> ({', '.join(['Tensor'] * outputs)})"


def _check(unit: str, tensors: Sequence[Tensor]) -> None:
    """Refuse shapes other than those of docs/design.md, section 2; the reference would broadcast some of them."""
    X, *others = tensors
    torch._check(
        X.dim() == 3 and X.shape[0] > 0, lambda: f"{unit} takes X of shape [T, B, D] with T > 0, not {list(X.shape)}"
    )
    B, D = X.shape[1:]
    rows = len(UNITS[unit].gates) * D
    wanted = {"H0": (B, D), "U": (rows, D), "V": (rows, D), "u": (D,), "v": (D,), "b": (1,), "C0": (B, D)}
    for name, each in zip(UNITS[unit].inputs[1:], others, strict=True):
        torch._check(
            each.shape == wanted[name],
            lambda name=name, each=each: (
                f"{unit} takes {name} of shape {list(wanted[name])} with X of shape {list(X.shape)}, "
                f"not {list(each.shape)}"
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
    """Define the op of a unit, with its forward and backward ops."""
    spec = UNITS[unit]
    given, outputs = spec.inputs, spec.outputs
    mask = ["float sharpness", "float epsilon"] if spec.variable else []
    saved = [*given, *spec.saved_outputs, "gates"]
    d_outputs = [f"d{name}" for name in outputs]
    reference = cells.SEQUENCES[unit]

    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        (*call, keep), tensors = inputs, inputs[: len(given)]
        _check(unit, tensors)
        if not native.takes(unit, *tensors, mask=call[len(given) :]):
            return *(each.contiguous() for each in reference(*call)), _gates(tensors[0], keep)
        gates = _gates(tensors[0], keep)
        return *native.forward(unit, *call, gates=gates if keep else None), gates

    def plain_forward(*inputs: Any) -> tuple[Tensor, ...]:
        *call, keep = inputs
        _check(unit, call[: len(given)])
        return *reference(*call), _gates(call[0], keep)

    def _gates(X: Tensor, keep: bool) -> Tensor:
        return native.new_gates(unit, X) if keep else X.new_empty(0)

    def fake_forward(*inputs: Any) -> tuple[Tensor, ...]:
        _check(unit, inputs[: len(given)])
        X, H0, *_ = inputs
        shapes = {"Y": X.shape, "H": H0.shape, "M": X.shape[:2], "C": H0.shape}
        return *(X.new_empty(shapes[name]) for name in outputs), _gates(X, inputs[-1])

    def backward(*inputs: Any) -> tuple[Tensor, ...]:
        d, rest = inputs[: len(outputs)], inputs[len(outputs) :]
        *others, gates = rest[: len(saved)]
        # others includes all inputs of the forward pass: if accepted here, they were accepted there, and gates are
        # written unless it was told not to keep them.
        if gates.numel() and native.takes(unit, *others, *d, mask=rest[len(saved) :]):
            return native.backward(unit, *inputs)
        without_b = [each for name, each in zip(saved, others, strict=False) if name != "b"]
        made = gradients.BACKWARD[unit](*d, *without_b, *rest[len(saved) :])
        return tuple(each.contiguous() for each in made)

    def fake_backward(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple(each.new_empty(each.shape) for each in inputs[len(outputs) :][: len(given)])

    def plain_backward(*inputs: Any) -> tuple[Tensor, ...]:
        """The gradients as a function of d_outputs and given.

        Y, M and the gates depend on given. They only save the kernels some work: no derivative goes through them.
        """
        d, rest = inputs[: len(outputs)], inputs[len(outputs) :]
        pull = torch.func.vjp(lambda *each: reference(*each, *rest[len(saved) :]), *rest[: len(given)])[1]
        made: tuple[Tensor, ...] = pull(tuple(d))
        return made

    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
            ctx.mask = inputs[len(given) : -1]
            made = forward_op(*inputs)
            *plain, gates = made
            ctx.mark_non_differentiable(gates)
            ctx.set_materialize_grads(False)  # else zeros for the gates, which are large
            kept = [each for name, each in zip(outputs, plain, strict=True) if name in saved]
            ctx.save_for_backward(*inputs[: len(given)], *kept, gates)
            return made

        @staticmethod
        def backward(ctx: Any, *d: Tensor | None) -> tuple[Tensor | None, ...]:
            X, H0, *_ = ctx.saved_tensors
            shapes = {"Y": X.shape, "H": H0.shape, "M": X.shape[:2], "C": H0.shape}
            whole = [
                X.new_zeros(shapes[name]) if each is None else each for name, each in zip(outputs, d[:-1], strict=True)
            ]
            return *backward_op(*whole, *ctx.saved_tensors, *ctx.mask), *[None] * (len(mask) + 1)

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
            ctx.mask = inputs[len(d_outputs) + len(saved) :]
            ctx.save_for_backward(*inputs[: len(outputs) + len(given)])
            return backward_op(*inputs)

        @staticmethod
        def backward(ctx: Any, *dd: Tensor) -> tuple[Tensor | None, ...]:
            unused = [None] * (len(saved) - len(given))
            pull = torch.func.vjp(lambda *each: plain_backward(*each, *unused, *ctx.mask), *ctx.saved_tensors)[1]
            return *pull(dd), *unused, *[None] * len(mask)

    forward_op = _register(
        f"{spec.function}_forward",
        _schema(given, [*mask, "bool keep"], len(outputs) + 1),
        forward,
        fake_forward,
        plain_forward,
        Forward,
    )
    backward_op = _register(
        f"{spec.function}_backward",
        _schema([*d_outputs, *saved], mask, len(given)),
        backward,
        fake_backward,
        plain_backward,
        Backward,
    )

    def run(*inputs: Any) -> tuple[Tensor, ...]:
        dtype = inputs[0].dtype
        if dtype in HALF:
            inputs = *(each.float() for each in inputs[: len(given)]), *inputs[len(given) :]
        *made, _ = forward_op(*inputs, _needs_gradient(inputs))
        return tuple(each.to(dtype) for each in made)

    def mapped(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        """A vmap rule: the examples join the batch, unless they have weights of their own."""
        dims = dict(zip(given, in_dims, strict=False))
        if any(dims[name] is not None for name in spec.weights):
            return _one_by_one(op, info, in_dims, *inputs)

        def join(each: Tensor, dim: int | None, at: int) -> Tensor:  # -> [(T,) N·B, D]; at: where N goes
            each = each.unsqueeze(at) if dim is None else each.movedim(dim, at)
            return each.expand(*each.shape[:at], N, *each.shape[at + 1 :]).flatten(at, at + 1)

        N, places = info.batch_size, {"X": 1, "H0": 0, "C0": 0}
        joined = list(inputs)
        for n, name in enumerate(given):
            if name in places:
                joined[n] = join(inputs[n], in_dims[n], places[name])
        X, at = inputs[0], tuple({"Y": 1, "H": 0, "M": 1, "C": 0}[name] for name in outputs)
        B = X.shape[1] if in_dims[0] is None else X.movedim(in_dims[0], 0).shape[2]
        return tuple(each.unflatten(dim, (N, B)) for each, dim in zip(op(*joined), at, strict=True)), at

    LIBRARY.define(spec.function + _schema(given, mask, len(outputs)), tags=torch.Tag.pt2_compliant_tag)
    LIBRARY.impl(spec.function, run, "CompositeExplicitAutograd")
    LIBRARY.impl(spec.function, run, "Autograd")
    torch.library.register_fake(f"vcdeploy::{spec.function}", run, lib=LIBRARY)
    torch.library.register_vmap(f"vcdeploy::{spec.function}", mapped, lib=LIBRARY)
    for device in ("cpu", "cuda"):  # half precision would shift m, which is multiplied by D
        torch.library.register_autocast(f"vcdeploy::{spec.function}", device, torch.float32, lib=LIBRARY)
    op: torch._ops.OpOverloadPacket[..., tuple[Tensor, ...]] = getattr(torch.ops.vcdeploy, spec.function)
    return op


OPS = {unit: _define(unit) for unit in TRAINED_UNITS}
