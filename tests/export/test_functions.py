"""The function bodies in stock runtimes, compared with the reference; and attaching them to a model."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from cases import CASES, EPSILON, GATES, Case
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, compose, helper
from onnx.reference import ReferenceEvaluator
from torch import Tensor

from vcdeploy.errors import VcdeployError
from vcdeploy.export import attach_functions
from vcdeploy.format.functions import check_bodies
from vcdeploy.format.graph import check
from vcdeploy.format.steps import DOMAIN, op_attributes
from vcdeploy.reference import cells
from vcdeploy.reference.cells import active, update_fraction
from vcdeploy.spec import UNITS

Arrays = list[NDArray[Any]]
REFERENCE: dict[str, Any] = {"vcrnn": cells.vcrnn, "vcgru": cells.vcgru, "vclstm": cells.vclstm}
RUNTIMES = ["onnxruntime", "reference"]


def op_node(unit: str, sharpness: float) -> onnx.NodeProto:
    """The node as in an exported file."""
    attributes = op_attributes(sharpness, EPSILON)
    return helper.make_node(unit.upper(), UNITS[unit].inputs, UNITS[unit].outputs, domain=DOMAIN, **attributes)


def model_of(unit: str, D: int, sharpness: float, kind: int = TensorProto.FLOAT, opset: int = 18) -> ModelProto:
    """A model of one op, whose inputs and outputs are those of the model."""
    G = GATES[unit]
    shapes: dict[str, list[Any]] = {
        "X": ["T", "B", D], "H0": ["B", D], "U": [G * D, D], "V": [G * D, D], "u": [D], "v": [D], "b": [1],
        "C0": ["B", D], "Y": ["T", "B", D], "H": ["B", D], "M": ["T", "B"], "C": ["B", D],
    }  # fmt: skip
    inputs, outputs = (
        [helper.make_tensor_value_info(name, kind, shapes[name]) for name in names]
        for names in (UNITS[unit].inputs, UNITS[unit].outputs)
    )
    graph = helper.make_graph([op_node(unit, sharpness)], "one_op", inputs, outputs)
    return attach_functions(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9))


def run(runtime: str, model: ModelProto, tensors: Sequence[Tensor]) -> Arrays:
    """The outputs in stock ONNX Runtime or in onnx's own evaluator, both without our library."""
    feed = {each.name: tensor.numpy() for each, tensor in zip(model.graph.input, tensors, strict=True)}
    if runtime == "reference":
        with np.errstate(all="ignore"):  # its sigmoid overflows internally, but the result is right
            return list(ReferenceEvaluator(model).run(None, feed))
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def single(value: float) -> float:
    """`value` rounded to float32, as an ONNX attribute stores it."""
    return float(np.float32(value))


def bound(case: Case, unit: float) -> float:
    """How far two correct free-running results with the same rounding unit may differ.

    A step sums 2D products of size about 1/√D: √(2D)·unit. An error of δ in m moves the mask by at most
    sharpness·D·δ/4, and h by twice that; T steps add up. 8: activations also have errors of a few units.
    """
    return float(8 * unit * case.T * ((2 * case.D) ** 0.5 + case.sharpness * case.D / 2))


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    if request.param == "onnxruntime":
        pytest.importorskip("onnxruntime")
    return str(request.param)


def reference(case: Case, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return REFERENCE[case.unit](*inputs, single(case.sharpness), single(EPSILON))


def given_m(case: Case, inputs: list[Tensor], m: Tensor) -> tuple[Tensor, ...]:
    """The reference in float64 with prescribed fractions m [T, B]: u and v are 0, and b is m's logit.

    It also returns the m that the scheduler would compute from its states.
    """
    X, h, U, V, u, v, b, *cell = (each.double() for each in inputs)
    settings = single(case.sharpness), single(EPSILON)
    none = torch.zeros_like(u)
    states, fractions = [], []
    for x, given in zip(X, m.double(), strict=True):
        fractions.append(update_fraction(x, h, u, v, b))
        logit = torch.logit(given)
        if cell:
            h, cell[0], _ = cells.vclstm_step(x, h, cell[0], U, V, none, none, logit, *settings)
        else:
            step = cells.vcrnn_step if case.unit == "vcrnn" else cells.vcgru_step
            h, _ = step(x, h, U, V, none, none, logit, *settings)
        states.append(h)
    return (torch.stack(states), h, torch.stack(fractions), *cell)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float64_equals_the_reference(case: Case, runtime: str) -> None:
    inputs = case.inputs(torch.float64)
    model = model_of(case.unit, case.D, case.sharpness, TensorProto.DOUBLE)
    for got, wanted in zip(run(runtime, model, inputs), reference(case, inputs), strict=True):
        assert got.dtype == np.float64
        assert np.abs(got - wanted.numpy()).max() <= bound(case, 2.0**-53)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32_equals_the_reference(case: Case, runtime: str) -> None:
    inputs = case.inputs(torch.float32)
    results = run(runtime, model_of(case.unit, case.D, case.sharpness), inputs)
    wanted = reference(case, inputs)
    m = torch.from_numpy(results[2])
    settings = case.D, case.sharpness, EPSILON
    if not torch.equal(active(m, *settings), active(wanted[2], *settings)):
        wanted = given_m(case, inputs, m)  # rounding moved a step across the mask's threshold
    for got, one in zip(results, wanted, strict=True):
        assert got.dtype == np.float32
        assert np.abs(got - one.numpy()).max() <= bound(case, 2.0**-24)


@pytest.mark.parametrize("case", [case for case in CASES if case.D == 97], ids=str)
def test_a_prescribed_m_matches_the_reference(case: Case) -> None:
    """The comparison above relies on this."""
    inputs = case.inputs()
    wanted = reference(case, inputs)
    for one, other in zip(given_m(case, inputs, wanted[2]), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=bound(case, 2.0**-53))


@pytest.mark.parametrize("unit", GATES)
@pytest.mark.parametrize("opset", [18, 20, 21, 22])
def test_passes_the_full_check_and_shape_inference(unit: str, opset: int) -> None:
    model = model_of(unit, 7, 1.0, opset=opset)
    check(model)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    del model.graph.output[0]
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    (y,) = [each for each in inferred.graph.value_info if each.name == "Y"]
    assert [dim.dim_param or dim.dim_value for dim in y.type.tensor_type.shape.dim] == ["T", "B", 7]


@pytest.mark.parametrize("unit", GATES)
def test_past_the_active_dimensions_every_bit_stays(unit: str, runtime: str) -> None:
    case = Case(unit, 3, 2, 97, "zero", 1.0)
    inputs = case.inputs(torch.float32)
    inputs[1][:, 90:] = -0.0
    _, H, M, *C = run(runtime, model_of(unit, 97, 1.0), inputs)
    a = int(active(torch.from_numpy(M), 97, 1.0, EPSILON).max())
    assert 0 < a < 90
    assert np.array_equal(H[:, a:].view(np.int32), inputs[1][:, a:].numpy().view(np.int32))
    for c in C:
        assert np.array_equal(c[:, a:], inputs[7][:, a:].numpy())


@pytest.mark.parametrize("unit", GATES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_infinity_do_as_in_the_reference_and_stay_in_their_sequence(
    unit: str, bad: float, runtime: str
) -> None:
    case = Case(unit, 4, 3, 64, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    inputs[0][1, 2, 5] = bad
    for got, wanted in zip(run(runtime, model_of(unit, 64, 1.0), inputs), reference(case, inputs), strict=True):
        assert np.array_equal(np.isnan(got), np.isnan(wanted.numpy()))
        finite = np.isfinite(wanted.numpy())
        assert finite.any()
        assert np.abs(got - wanted.numpy())[finite].max() <= bound(case, 2.0**-24)
    nan = np.isnan(run(runtime, model_of(unit, 64, 1.0), inputs)[0])
    assert not nan[0].any() and not nan[:, :2].any()
    assert nan[1:, 2].all() == math.isnan(bad)


def test_function_attributes_have_an_effect(runtime: str) -> None:
    inputs = Case("vcgru", 3, 2, 64, "ragged", 1.0).inputs(torch.float32)
    soft, sharp = (run(runtime, model_of("vcgru", 64, sharpness), inputs)[0] for sharpness in (0.2, 1.0))
    assert np.abs(soft - sharp).max() > 1e-2


def bare(*nodes: onnx.NodeProto, opsets: dict[str, int]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "bare", [], [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in opsets.items()])


def test_attach_adds_each_used_op_once() -> None:
    model = bare(op_node("vcgru", 1.0), op_node("vcgru", 0.5), op_node("vclstm", 1.0), opsets={"": 20})
    assert attach_functions(attach_functions(model)) is model
    assert [each.name for each in model.functions] == ["VCGRU", "VCLSTM"]
    assert {each.domain: each.version for each in model.opset_import} == {"": 20, "vcdeploy": 1}
    assert {opset.version for each in model.functions for opset in each.opset_import} == {20}


def test_attach_finds_ops_in_nested_graphs() -> None:
    branch = helper.make_graph([op_node("vcrnn", 1.0)], "branch", [], [])
    model = bare(helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch), opsets={"": 18})
    assert [each.name for each in attach_functions(model).functions] == ["VCRNN"]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (bare(helper.make_node("Relu", ["x"], ["y"]), opsets={"": 18}), "nothing to attach"),
        (bare(helper.make_node("VCFOO", ["x"], ["y"], domain="vcdeploy"), opsets={"": 18}), "uses VCFOO"),
        (bare(op_node("vcgru", 1.0), opsets={"": 17}), "has opset 17.*opset_version=18"),
        (bare(op_node("vcgru", 1.0), opsets={"": 18, "vcdeploy": 2}), "version 2 of the domain"),
    ],
)
def test_attach_rejects_what_it_cannot_handle(model: onnx.ModelProto, said: str) -> None:
    with pytest.raises(VcdeployError, match=said):
        attach_functions(model)


def test_nodes_that_share_a_body_round_alike() -> None:
    model = model_of("vcgru", 4, 1.0)
    other = helper.make_node(
        "VCGRU", UNITS["vcgru"].inputs, ["Y2"], domain=DOMAIN, **op_attributes(1.0, EPSILON, 2**14)
    )
    model.graph.node.append(other)
    del model.functions[:]
    with pytest.raises(VcdeployError, match="some VCGRU nodes of the model have the attribute activation_levels"):
        attach_functions(model)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_a_body_has_the_type_of_the_weights(kind: int) -> None:
    model = model_of("vcgru", 8, 1.0, kind)
    check(model)
    casts = {each.i for node in model.functions[0].node for each in node.attribute if each.name == "to"}
    assert casts == {kind}
    check_bodies(model, "a model")


def test_weights_of_two_types_are_refused() -> None:
    one, other = (
        compose.add_prefix(without_functions(model_of("vcgru", 8, 1.0, kind)), prefix)
        for kind, prefix in ((TensorProto.FLOAT, "a/"), (TensorProto.DOUBLE, "b/"))
    )
    merged = compose.merge_models(one, other, io_map=[])
    with pytest.raises(VcdeployError, match=r"of types that one function can't take.*\.float\(\)"):
        attach_functions(merged)


def without_functions(model: ModelProto) -> ModelProto:
    del model.functions[:]
    return model
