"""Derivatives and maps of every kind: those of the reference, never zeros."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import REFERENCE, mask_of, small
from small_models import stack
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils._pytree import tree_leaves

from vcdeploy.kernels import OPS
from vcdeploy.spec import TRAINED_UNITS, UNITS
from vcdeploy.units import LSTM, RNN, VCGRU, VCLSTM, VCRNN, GRUResetFirst

# PyTorch's own forward-mode formulas are TorchScript.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

T, B, D, SHARPNESS, N = 3, 2, 5, 0.8, 4
MODULES = {module.spec.name: module for module in (VCRNN, VCGRU, VCLSTM, RNN, GRUResetFirst, LSTM)}
INPUTS = {len(UNITS[unit].inputs): UNITS[unit].inputs for unit in TRAINED_UNITS}  # by their number
Function = Callable[..., tuple[Tensor, ...]]

# As in test_ops.py, relative to the largest number: each of up to three derivatives has the slope of the mask,
# sharpness·D/4, again, and losses are sums of N·T·B·D terms.
SLOPE = 1 + SHARPNESS * D / 4
ROUNDING = torch.finfo(torch.float64).eps * T * math.sqrt(B * D) * SLOPE**3 * math.sqrt(N * T * B * D)


def inputs_of(unit: str) -> tuple[Tensor, ...]:
    return tuple(small(unit, T, B, D, SHARPNESS).inputs())


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def loss_of(f: Function) -> Callable[..., Tensor]:
    """A loss that is not symmetric in the outputs' entries, with second derivatives."""

    def loss(*inputs: Tensor) -> Tensor:
        weighted = [each.square().flatten() @ torch.arange(1.0, each.numel() + 1).double() for each in f(*inputs)]
        return torch.stack(weighted).sum()

    return loss


def derivatives(f: Function, inputs: tuple[Tensor, ...], order: int) -> list[Tensor]:
    leaves = [each.clone().requires_grad_() for each in inputs]
    value = loss_of(f)(*leaves)
    made: list[Tensor] = []
    for _ in range(order):
        gradients = torch.autograd.grad(value, leaves, create_graph=True)
        made += gradients
        value = torch.stack([each.square().sum() for each in gradients]).sum().log()  # log keeps the sizes comparable
    return made


def dual(f: Function, inputs: tuple[Tensor, ...]) -> list[Tensor | None]:
    with forward_ad.dual_level():
        outputs = f(*(forward_ad.make_dual(each, normal(*each.shape)) for each in inputs))
        return [forward_ad.unpack_dual(each).tangent for each in outputs]


def dual_gradient(f: Function, inputs: tuple[Tensor, ...]) -> list[Tensor | None]:
    """The tangent of a backward pass, of a graph recorded without tangents."""
    leaves = [each.clone().requires_grad_() for each in inputs]
    outputs = f(*leaves)
    with forward_ad.dual_level():
        d = [forward_ad.make_dual(each.detach(), normal(*each.shape)) for each in outputs]
        return [forward_ad.unpack_dual(each).tangent for each in torch.autograd.grad(outputs, leaves, d)]


def without_grad_mode(f: Function, inputs: tuple[Tensor, ...]) -> Any:
    with torch.no_grad():
        return dual(f, inputs)


def in_inference_mode(f: Function, inputs: tuple[Tensor, ...]) -> Any:
    with torch.inference_mode():
        return jvp(f, inputs, tuple(normal(*each.shape) for each in inputs))


def gradients_of_mapped(f: Function, inputs: tuple[Tensor, ...]) -> Any:
    """A plain backward pass through vmap, over weights too."""
    X, U = normal(N, T, B, D).requires_grad_(), torch.stack([inputs[2]] * N).requires_grad_()
    outputs = vmap(lambda x, u: f(x, inputs[1], u, *inputs[3:]))(X, U)
    return torch.autograd.grad(outputs, (X, U), [each.detach().clone() for each in outputs])


def everything(inputs: tuple[Tensor, ...]) -> tuple[int, ...]:
    return tuple(range(len(inputs)))


def first_only(inputs: tuple[Tensor, ...]) -> tuple[int | None, ...]:
    return (0, *[None] * (len(inputs) - 1))


def over_examples(f: Function, inputs: tuple[Tensor, ...]) -> Function:
    def example(x: Tensor) -> tuple[Tensor, ...]:
        return f(x, *inputs[1:])

    return vmap(example)


def mapped(f: Function, inputs: tuple[Tensor, ...], names: str) -> Any:
    """vmap over some of the inputs, over a different dimension of each."""
    dims = {"X": 2, "H0": 1, "U": 1, "u": 0, "b": 1, "C0": 2}
    in_dims: list[int | None] = [None] * len(inputs)
    given = list(inputs)
    for place, name in enumerate(INPUTS[len(inputs)]):
        if name[0] in names and name in dims:
            dim = dims[name]
            in_dims[place] = dim
            given[place] = torch.stack([inputs[place] * (1 + n / N) for n in range(N)], dim)
    return vmap(f, tuple(in_dims))(*given)


TRANSFORMS: dict[str, Callable[[Function, tuple[Tensor, ...]], Any]] = {
    "jvp": lambda f, given: jvp(f, given, tuple(normal(*each.shape) for each in given)),
    "vjp": lambda f, given: vjp(f, *given)[1](f(*given)),
    "jacfwd": lambda f, given: jacfwd(f, argnums=everything(given))(*given),
    "jacrev": lambda f, given: jacrev(f, argnums=everything(given))(*given),
    "grad": lambda f, given: grad(loss_of(f), argnums=everything(given))(*given),
    "hessian": lambda f, given: hessian(loss_of(f), argnums=tuple(n for n in (1, 4, 6) if n < len(given)))(*given),
    "grad of grad": lambda f, given: grad(lambda *g: grad(loss_of(f), argnums=2)(*g).square().sum())(*given),
    "third derivatives": lambda f, given: derivatives(f, given, 3),
    "dual tensors": dual,
    "dual tensors in no_grad": without_grad_mode,
    "dual gradients": dual_gradient,
    "jvp in inference mode": in_inference_mode,
    "vmap of X": lambda f, given: mapped(f, given, "X"),
    "vmap of X, H0 and C0": lambda f, given: mapped(f, given, "XHC"),
    "vmap of H0": lambda f, given: mapped(f, given, "H"),
    "vmap of U": lambda f, given: mapped(f, given, "U"),
    "vmap of everything": lambda f, given: mapped(f, given, "XHUubC"),
    "vmap of vmap": lambda f, given: vmap(lambda h: mapped(lambda *g: f(g[0], h, *g[2:]), given, "X"))(normal(2, B, D)),
    "vmap of grad": lambda f, given: vmap(grad(loss_of(f), argnums=everything(given)), first_only(given))(
        normal(N, T, B, D), *given[1:]
    ),
    "grad of vmap": lambda f, given: grad(loss_of(over_examples(f, given)))(normal(N, T, B, D)),
    "jvp of vmap": lambda f, given: jvp(over_examples(f, given), (normal(N, T, B, D),), (normal(N, T, B, D),)),
    "backward of vmap": gradients_of_mapped,
    "vectorized jacobian": lambda f, given: torch.autograd.functional.jacobian(f, given, vectorize=True),
    "forward-mode jacobian": lambda f, given: torch.autograd.functional.jacobian(
        f, given, vectorize=True, strategy="forward-mode"
    ),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_transform_is_the_references(unit: str, transform: str) -> None:
    inputs, results = inputs_of(unit), []
    for f in (REFERENCE[unit], OPS[unit]):
        made = TRANSFORMS[transform](lambda *given, f=f: f(*given, *mask_of(unit, SHARPNESS)), inputs)
        assert None not in tree_leaves(made)
        results.append(tree_leaves(made))
    wanted, got = results
    largest = max(each.abs().max().item() for each in wanted)
    assert largest > 0.01
    for one, other in zip(wanted, got, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max().item() <= ROUNDING * max(1, largest)


@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_second_derivatives_by_gradgradcheck(unit: str) -> None:
    inputs = [each.requires_grad_() for each in small(unit, 2, 2, 3, SHARPNESS).inputs()]

    def call(*given: Tensor) -> tuple[Tensor, ...]:
        return OPS[unit](*given, *mask_of(unit, SHARPNESS))

    assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)
    assert torch.autograd.gradcheck(
        call,
        inputs,
        fast_mode=True,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
    )


@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_inner_ops_do_not_lose_tangents(unit: str) -> None:
    """Graphs of torch.compile and torch.export contain the inner ops."""
    inputs = inputs_of(unit)
    tangents = tuple(normal(*each.shape) for each in inputs)
    inner = getattr(torch.ops.vcdeploy, f"{UNITS[unit].function}_forward")
    got = jvp(lambda *given: inner(*given, *mask_of(unit, SHARPNESS), True)[:-1], inputs, tangents)[1]
    wanted = jvp(lambda *given: REFERENCE[unit](*given, *mask_of(unit, SHARPNESS)), inputs, tangents)[1]
    assert all(map(torch.equal, got, wanted))
    leaves = [each.clone().requires_grad_() for each in inputs]
    without_gates = inner(*leaves, *mask_of(unit, SHARPNESS), False)[:-1]
    kept = inner(*leaves, *mask_of(unit, SHARPNESS), True)[:-1]
    d = [normal(*each.shape) for each in kept]
    for one, other in zip(
        torch.autograd.grad(without_gates, leaves, d), torch.autograd.grad(kept, leaves, d), strict=True
    ):
        assert (one - other).abs().max().item() <= ROUNDING * max(1, one.abs().max().item())


@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_per_example_gradients_of_a_module(unit: str) -> None:
    """The usual recipe: functional_call, grad and vmap."""
    torch.manual_seed(0)
    module = stack(MODULES[unit], D, 2).double()
    weights = {name: each.detach() for name, each in module.named_parameters()}
    x = normal(N, T, 1, D)

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        y, _, m = functional_call(module, weights, (x,))
        return y.square().sum() + m.sum()

    got = vmap(grad(loss), in_dims=(None, 0))(weights, x)
    for n in range(N):
        y, _, m = module(x[n])
        wanted = torch.autograd.grad(y.square().sum() + m.sum(), list(module.parameters()))
        for (name, _), one in zip(module.named_parameters(), wanted, strict=True):
            assert (got[name][n] - one).abs().max().item() <= ROUNDING * max(1, one.abs().max().item()), name


@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_map_over_nothing(unit: str) -> None:
    X, *rest = inputs_of(unit)
    outputs = vmap(lambda x: OPS[unit](x, *rest, *mask_of(unit, SHARPNESS)))(X.new_empty(0, T, B, D))
    assert [each.shape[0] for each in outputs] == [0] * len(outputs)
    with pytest.raises(RuntimeError, match="size 0"):
        vmap(lambda u: OPS[unit](X, rest[0], u, *rest[2:], *mask_of(unit, SHARPNESS)))(X.new_empty(0, *rest[1].shape))
