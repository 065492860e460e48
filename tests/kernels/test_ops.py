"""The torch.library ops: held to the reference, and one node to torch.compile and torch.export."""

from collections.abc import Callable

import pytest
import torch
from cases import CASES, EPSILON, GATES, Case
from torch import Tensor

from vcdeploy import kernels
from vcdeploy.units import VCGRU, VCLSTM, VCRNN, cells

OPS = {"vcrnn": kernels.vcrnn, "vcgru": kernels.vcgru, "vclstm": kernels.vclstm}
REFERENCE: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "vcrnn": cells.vcrnn,
    "vcgru": cells.vcgru,
    "vclstm": cells.vclstm,
}
MODULES = {"vcrnn": VCRNN, "vcgru": VCGRU, "vclstm": VCLSTM}


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_op_equals_reference(case: Case, dtype: torch.dtype) -> None:
    inputs = [each.requires_grad_() for each in case.inputs(dtype)]
    wanted = REFERENCE[case.unit](*inputs, case.sharpness, EPSILON)
    got = OPS[case.unit](*inputs, case.sharpness, EPSILON)
    for one, other in zip(wanted, got, strict=True):
        assert torch.equal(one, other)
    draw = torch.Generator().manual_seed(7)
    weights = [torch.randn(each.shape, generator=draw, dtype=dtype) for each in wanted]
    of_reference = torch.autograd.grad(wanted, inputs, weights)
    of_op = torch.autograd.grad(got, inputs, weights)
    # The same sums in another order: rounding of sums of up to T·B·D products, and through the slope of the mask,
    # sharpness·D/4, in the gradients that pass m.
    unit = torch.finfo(dtype).eps
    slope = 1 + case.sharpness * case.D / 4
    for name, one, other in zip(("X", "H0", "U", "V", "u", "v", "b", "C0"), of_reference, of_op, strict=False):
        bound = unit * case.T * (case.B * case.D) ** 0.5 * slope * max(1, one.abs().max().item())
        assert (one - other).abs().max().item() <= bound, name


@pytest.mark.parametrize("unit", GATES)
@pytest.mark.parametrize("level", ["zero", "ragged", "edge", "one"])
def test_gradcheck(unit: str, level: str) -> None:
    case = Case(unit, 3, 2, 6, level, 0.8)
    inputs = [each.requires_grad_() for each in case.inputs()]
    assert torch.autograd.gradcheck(lambda *given: OPS[unit](*given, case.sharpness, EPSILON), inputs)


@pytest.mark.parametrize("unit", GATES)
def test_opcheck(unit: str) -> None:
    inputs = [each.requires_grad_() for each in Case(unit, 3, 2, 7, "ragged", 1.0).inputs(torch.float32)]
    torch.library.opcheck(OPS[unit], (*inputs, 1.0, EPSILON))


@pytest.mark.parametrize("unit", GATES)
def test_export_sees_one_op(unit: str) -> None:
    module = MODULES[unit](8, 2)
    T, B = torch.export.Dim("T", min=2), torch.export.Dim("B", min=2)
    state = torch.zeros(2 * module.state_rows, 3, 8)
    program = torch.export.export(
        module, (torch.randn(4, 3, 8), state), dynamic_shapes=({0: T, 1: B}, {1: B}), strict=False
    )
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert sum(name.startswith(f"vcdeploy.{unit}") for name in called) == 2
    assert not any("mm" in name or "tanh" in name for name in called)
    x, start = torch.randn(6, 5, 8), torch.randn(2 * module.state_rows, 5, 8)
    for one, other in zip(program.module()(x, start), module(x, start), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("unit", GATES)
def test_compile_sees_one_op_forward_and_backward(unit: str) -> None:
    graphs: list[list[str]] = []

    def note(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(fw_compiler=lambda g, i: make_boxed_func(note(g, i)))
    module = MODULES[unit](8)
    x = torch.randn(4, 3, 8, requires_grad=True)
    y, _, m = torch.compile(module, backend=backend, fullgraph=True)(x)
    (gradient,) = torch.autograd.grad((y * y).sum() + m.sum(), x)
    wanted_y, _, wanted_m = module(x)
    (wanted,) = torch.autograd.grad((wanted_y * wanted_y).sum() + wanted_m.sum(), x)
    assert torch.equal(y, wanted_y)
    assert torch.allclose(gradient, wanted, atol=1e-6)
    forward, backward = graphs
    assert sum(name.startswith(f"vcdeploy.{unit}.") for name in forward) == 1
    assert sum(name.startswith(f"vcdeploy.{unit}_backward") for name in backward) == 1
    torch._dynamo.reset()
