"""The torch.library ops: compared with the reference, and a single node in torch.compile and torch.export."""

from typing import Any

import pytest
import torch
from cases import CASES, DENSE, DENSE_CASES, GATES, REFERENCE, Case, mask_of, small
from small_models import stack
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vcdeploy import kernels
from vcdeploy.kernels import gradients, native
from vcdeploy.spec import TRAINED_UNITS, UNITS
from vcdeploy.units import LSTM, RNN, VCGRU, VCLSTM, VCRNN, GRUResetFirst

OPS = kernels.OPS
MODULES = {module.spec.name: module for module in (VCRNN, VCGRU, VCLSTM, RNN, GRUResetFirst, LSTM)}


# Batches large enough to be sorted, and more tokens than the kernels process at a time.
WIDE = [
    Case(unit, T, B, D, level, sharpness)
    for unit in GATES
    for T, B, D, level, sharpness in [
        (3, 32, 97, "ragged", 1.0),
        (20, 32, 64, "ragged", 0.5),
        (4, 7, 256, "ragged", 1.0),
    ]
] + [Case(unit, T, B, D, "dense", 1.0) for unit in DENSE for T, B, D in [(3, 32, 97), (20, 32, 64), (4, 7, 256)]]


@pytest.fixture(params=["native", "PyTorch"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The implementation of the ops under test."""
    if request.param == "PyTorch":
        monkeypatch.setattr(native, "FAULT", "switched off")
    else:
        monkeypatch.setattr(gradients, "BACKWARD", {})  # so that a test of native can't pass with the PyTorch path
        assert native.FAULT is None
    return str(request.param)


def rounding(case: Case, dtype: torch.dtype) -> float:
    """Error bound for sums in another order: rounding of sums of up to T·B·D products, amplified by the slope of the
    mask, sharpness·D/4, in everything that depends on m."""
    return torch.finfo(dtype).eps * case.T * (case.B * case.D) ** 0.5 * (1 + case.sharpness * case.D / 4)


@pytest.mark.parametrize("case", [*CASES, *DENSE_CASES, *WIDE], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_op_equals_reference(case: Case, dtype: torch.dtype, path: str) -> None:
    inputs = [each.requires_grad_() for each in case.inputs(dtype)]
    wanted = REFERENCE[case.unit](*inputs, *case.mask)
    got = OPS[case.unit](*inputs, *case.mask)
    off = rounding(case, dtype)
    for one, other in zip(wanted, got, strict=True):
        assert (one - other).abs().max().item() <= (off if path == "native" else 0)
    draw = torch.Generator().manual_seed(7)
    weights = [torch.randn(each.shape, generator=draw, dtype=dtype) for each in wanted]
    of_reference = torch.autograd.grad(wanted, inputs, weights)
    of_op = torch.autograd.grad(got, inputs, weights)
    for name, one, other in zip(UNITS[case.unit].inputs, of_reference, of_op, strict=True):
        assert (one - other).abs().max().item() <= off * max(1, one.abs().max().item()), name


@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_stacked_layers(unit: str) -> None:
    torch.manual_seed(3)
    module = stack(MODULES[unit], 33, 3).double()
    x = torch.randn(5, 4, 33, dtype=torch.float64, requires_grad=True)
    state = torch.randn(3 * module.spec.state_rows, 4, 33, dtype=torch.float64, requires_grad=True)
    y, _, m = module(x, state)
    below, fractions = x, []
    for index, layer in enumerate(module.layers):
        h, *c = state[index * module.spec.state_rows : (index + 1) * module.spec.state_rows]
        if UNITS[unit].variable:
            weights = [layer.U, layer.V, layer.u, layer.v, layer.b]
        else:
            weights = [layer.weight_hh_l0, layer.weight_ih_l0]
        made = dict(zip(UNITS[unit].outputs, REFERENCE[unit](below, h, *weights, *c, *mask_of(unit)), strict=True))
        below = made["Y"]
        fractions.append(made.get("M", torch.ones_like(below[..., 0])))
    known = [x, state, *module.parameters()]
    got = torch.autograd.grad((y * y).sum() + m.sum(), known)
    wanted = torch.autograd.grad((below * below).sum() + torch.stack(fractions, -1).sum(), known)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("unit", "level"),
    [*((unit, level) for unit in GATES for level in ("zero", "ragged", "edge", "one")), *((u, "dense") for u in DENSE)],
)
def test_gradcheck(unit: str, level: str, path: str) -> None:
    case = Case(unit, 3, 2, 6, level, 0.8)
    inputs = [each.requires_grad_() for each in case.inputs()]
    assert torch.autograd.gradcheck(lambda *given: OPS[unit](*given, *case.mask), inputs)


@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_opcheck(unit: str) -> None:
    inputs = [each.requires_grad_() for each in small(unit).inputs(torch.float32)]
    torch.library.opcheck(OPS[unit], (*inputs, *mask_of(unit)))


@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_export_sees_one_op(unit: str) -> None:
    module = stack(MODULES[unit], 8, 2)
    T, B = torch.export.Dim("T", min=2), torch.export.Dim("B", min=2)
    state = torch.zeros(2 * module.spec.state_rows, 3, 8)
    program = torch.export.export(
        module, (torch.randn(4, 3, 8), state), dynamic_shapes=({0: T, 1: B}, {1: B}), strict=False
    )
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert sum(name.startswith(f"vcdeploy.{UNITS[unit].function}") for name in called) == 2
    assert not any("mm" in name or "tanh" in name for name in called)
    x, start = torch.randn(6, 5, 8), torch.randn(2 * module.spec.state_rows, 5, 8)
    for one, other in zip(program.module()(x, start), module(x, start), strict=True):
        assert torch.equal(one, other)


# torch.compile does not look into the nn.RNN and nn.LSTM that hold the weights of RNN and LSTM.
@pytest.mark.parametrize("unit", [*GATES, "gru-reset-first"])
def test_compile_sees_one_op_forward_and_backward(unit: str) -> None:
    graphs: list[list[str]] = []

    def note(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(fw_compiler=lambda g, i: make_boxed_func(note(g, i)))
    module = stack(MODULES[unit], 8)
    x = torch.randn(4, 3, 8, requires_grad=True)
    y, _, m = torch.compile(module, backend=backend, fullgraph=True)(x)
    (gradient,) = torch.autograd.grad((y * y).sum() + m.sum(), x)
    wanted_y, _, wanted_m = module(x)
    (wanted,) = torch.autograd.grad((wanted_y * wanted_y).sum() + wanted_m.sum(), x)
    assert torch.equal(y, wanted_y)
    assert torch.allclose(gradient, wanted, atol=1e-6)
    forward, backward = graphs
    op = f"vcdeploy.{UNITS[unit].function}"
    assert [name for name in forward if name.startswith("vcdeploy.")] == [f"{op}_forward.default"]
    assert [name for name in backward if name.startswith("vcdeploy.")] == [f"{op}_backward.default"]
    torch._dynamo.reset()


@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_gates_are_kept_where_a_gradient_is_needed_and_only_there(unit: str) -> None:
    kept: list[bool] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if str(func) == f"vcdeploy.{UNITS[unit].function}_forward.default":
                kept.append(args[-1])
            return func(*args, **(kwargs or {}))

    inputs = small(unit).inputs(torch.float32)
    with Watch():
        OPS[unit](*inputs, *mask_of(unit))
        inputs[2].requires_grad_()  # one is enough
        Y, *_ = OPS[unit](*inputs, *mask_of(unit))
        with torch.no_grad():
            OPS[unit](*inputs, *mask_of(unit))
    assert kept == [False, True, False]
    assert Y.requires_grad
    with torch.inference_mode():
        Y, *_ = OPS[unit](*inputs, *mask_of(unit))
    assert not Y.requires_grad


@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_gradients_repeat_with_a_graph_for_second_derivatives(unit: str) -> None:
    inputs = [each.requires_grad_() for each in small(unit).inputs()]
    loss = torch.stack([each.square().sum() for each in OPS[unit](*inputs, *mask_of(unit))]).sum()
    first, again = (torch.autograd.grad(loss, inputs, create_graph=True) for _ in range(2))
    assert all(map(torch.equal, first, again))
    assert all(each.requires_grad for each in first)  # test_transforms.py has their values


@pytest.mark.parametrize("unit", GATES)
def test_infinite_bias_is_the_references_in_both_passes(unit: str) -> None:
    """Only b is not finite: the backward pass must not read gates that the forward pass did not write."""
    inputs = small(unit).inputs()
    inputs[6].fill_(torch.inf)
    results = []
    for op in (REFERENCE[unit], OPS[unit]):
        given = [each.clone().requires_grad_() for each in inputs]
        Y, *_ = op(*given, *mask_of(unit))
        results.append([Y, *torch.autograd.grad(Y.sum(), given[:4])])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


PLACES = ["X", "H0", "U", "V past what is active", "u", "b", "dY"]


@pytest.mark.parametrize(
    ("unit", "where"),
    [
        *((unit, where) for unit in GATES for where in PLACES),
        *((unit, where) for unit in DENSE for where in ("X", "H0", "U", "dY")),
    ],
)
def test_nan_spreads_as_in_the_reference(unit: str, where: str) -> None:
    """NaNs are in the same places forward, and at least in the same places backward: autograd skips the unused branch
    of a where(), the explicit gradients multiply it by 0."""
    case = Case(unit, 4, 3, 40, "zero", 1.0) if "past" in where else small(unit, 4, 3, 40)
    inputs = case.inputs(torch.float32)
    place = {"X": 0, "H0": 1, "U": 2, "V past what is active": 3, "u": 4, "b": 6}.get(where)
    if place is not None:
        inputs[place][(1,) * (inputs[place].dim() - 1) + (-1,) if place != 6 else 0] = torch.nan
    results = []
    for op in (REFERENCE[unit], OPS[unit]):
        given = [each.clone().requires_grad_() for each in inputs]
        outputs = op(*given, *case.mask)
        d_outputs = [torch.ones_like(each) for each in outputs]
        if where == "dY":
            d_outputs[0][2, 1, -1] = torch.nan
        results.append([*outputs, *torch.autograd.grad(outputs, given, d_outputs)])
    assert any(each.isnan().any() for each in results[0])
    for number, (one, other) in enumerate(zip(*results, strict=True)):
        if number < len(d_outputs):
            assert torch.equal(one.isnan(), other.isnan()), number
        assert not (one.isnan() & ~other.isnan()).any(), number


@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_empty_and_odd_inputs_are_the_references(unit: str) -> None:
    none = small(unit, 3, 0, 5).inputs(torch.float32)
    shapes = {"Y": (3, 0, 5), "H": (0, 5), "M": (3, 0), "C": (0, 5)}
    assert [each.shape for each in OPS[unit](*none, *mask_of(unit))] == [shapes[name] for name in UNITS[unit].outputs]
    inputs = small(unit, 3, 2, 5).inputs(torch.float32)
    with pytest.raises(RuntimeError):
        OPS[unit](inputs[0][:0], *inputs[1:], *mask_of(unit))
    with pytest.raises(RuntimeError):
        OPS[unit](inputs[0], inputs[1], inputs[2][:-1], *inputs[3:], *mask_of(unit))
    half = [each.bfloat16() for each in inputs]
    widened = OPS[unit](*(each.float() for each in half), *mask_of(unit))
    for one, other in zip(OPS[unit](*half, *mask_of(unit)), widened, strict=True):
        assert torch.equal(one, other.bfloat16())


@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_inputs_need_not_be_contiguous(unit: str) -> None:
    case = small(unit, 4, 3, 20)
    plain = [each.requires_grad_() for each in case.inputs()]
    apart = [
        torch.stack([each.detach(), each.detach()], -1)[..., 0].requires_grad_() if each.dim() > 1 else each
        for each in plain
    ]
    assert not apart[0].is_contiguous()
    results = []
    for inputs in (plain, apart):
        Y, *others = OPS[unit](*inputs, *mask_of(unit))
        loss = torch.stack([each.sum() for each in (Y, *others)]).sum()
        results.append([Y, *torch.autograd.grad(loss, inputs)])  # also tests an expanded gradient
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
