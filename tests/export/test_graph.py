"""The exported graph: names, types and metadata as designed, and PyTorch's results in stock runtimes."""

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from exported import run_graph
from onnx import TensorProto, compose, helper, shape_inference

from vcdeploy.errors import VcdeployError
from vcdeploy.export import build
from vcdeploy.format import checksum
from vcdeploy.format.graph import check, newest_opset
from vcdeploy.spec import DENSE_UNITS, UNITS, VARIABLE_UNITS
from vcdeploy.training.checkpoint import Checkpoint

MakeCheckpoint = Callable[..., Checkpoint]


def signature(values: Any) -> dict[str, tuple[int, list[int | str]]]:
    found = {}
    for value in values:
        tensor = value.type.tensor_type
        found[value.name] = (tensor.elem_type, [dim.dim_param or dim.dim_value for dim in tensor.shape.dim])
    return found


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


@pytest.mark.parametrize("unit", [*VARIABLE_UNITS, *DENSE_UNITS])
def test_inputs_and_outputs(unit: str, make_checkpoint: MakeCheckpoint) -> None:
    model = build(make_checkpoint(unit, dim=12, layers=3))
    rows = 6 if unit.endswith("lstm") else 3
    state = (TensorProto.FLOAT, [rows, "B", 12])
    assert signature(model.graph.input) == {"tokens": (TensorProto.INT64, ["T", "B"]), "state": state}
    assert signature(model.graph.output) == {
        "logits": (TensorProto.FLOAT, ["T", "B", 9]),
        "state_out": state,
        "compute": (TensorProto.FLOAT, ["T", "B", 3]),
    }


@pytest.mark.parametrize("unit", VARIABLE_UNITS)
def test_one_op_per_layer_with_its_function(unit: str, make_checkpoint: MakeCheckpoint) -> None:
    model = build(make_checkpoint(unit, dim=12, layers=2, sharpness=0.3))
    ops = [node for node in model.graph.node if node.domain == "vcdeploy"]
    assert [(node.op_type, node.name) for node in ops] == [(unit.upper(), "layers.0"), (unit.upper(), "layers.1")]
    for index, node in enumerate(ops):
        assert list(node.input)[2:7] == [f"layers.{index}.{part}" for part in "UVuvb"]
        assert len(node.input) == (8 if unit == "vclstm" else 7)
        assert attributes(node) == {
            "sharpness": pytest.approx(0.3),
            "epsilon": pytest.approx(1e-3),
            "plugin_version": b"1",
            "plugin_namespace": b"",
        }
    assert [(each.domain, each.name) for each in model.functions] == [("vcdeploy", unit.upper())]
    assert {each.domain: each.version for each in model.opset_import} == {"": 18, "vcdeploy": 1}
    layers = [f"layers.{index}.{part}" for index in range(2) for part in "UVuvb"]
    names = [each.name for each in model.graph.initializer]
    assert names == ["embedding", *layers, "output.weight", "output.bias"]


def test_weights_are_those_of_the_checkpoint(make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint("vcgru", dim=12, layers=2)
    model = build(checkpoint)
    weights = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    assert np.array_equal(weights["embedding"], checkpoint.model["embedding.weight"].numpy())
    assert np.array_equal(weights["layers.1.U"], checkpoint.model["unit.layers.1.U"].numpy())
    assert weights["layers.1.U"].shape == (36, 12)


def test_metadata(make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint("vcgru", dim=12)
    model = build(checkpoint, precision="f16")
    metadata = {each.key: json.loads(each.value) for each in model.metadata_props if each.key != checksum.KEY}
    assert metadata["vcdeploy.vocab"] == list(checkpoint.vocab.symbols)
    config = metadata["vcdeploy.config"]
    wanted = {"unit": "vcgru", "dim": 12, "layers": 2, "sharpness": 0.7, "epsilon": 1e-3, "kind": "text", "buffer": 0}
    assert {key: config[key] for key in wanted} == wanted
    assert (config["precision"], config["bucketed"]) == ("f16", False)
    assert config["training"] == {"step": 7, "epoch": 1.5}
    assert model.producer_name == "vcdeploy"


@pytest.mark.parametrize("unit", DENSE_UNITS)
def test_dense_units_use_onnx_ops(unit: str, make_checkpoint: MakeCheckpoint) -> None:
    model = build(make_checkpoint(unit, dim=12, layers=2))
    nodes = [node for node in model.graph.node if node.op_type == UNITS[unit].op]
    assert len(nodes) == 2
    assert not model.functions
    assert {each.domain for each in model.opset_import} == {""}
    assert attributes(nodes[0]).get("linear_before_reset") == {"gru": 1, "gru-reset-first": 0}.get(unit)


@pytest.mark.parametrize("runtime", ["onnxruntime", "evaluator"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3)])
@pytest.mark.parametrize("dim", [1, 7, 40])
@pytest.mark.parametrize("unit", [*VARIABLE_UNITS, *DENSE_UNITS])
def test_numbers_of_pytorch(
    unit: str, dim: int, shape: tuple[int, int], runtime: str, make_checkpoint: MakeCheckpoint
) -> None:
    checkpoint = make_checkpoint(unit, dim)
    draw = np.random.default_rng(dim)
    tokens = draw.integers(0, 9, shape)
    rows = 4 if unit.endswith("lstm") else 2
    state = np.tanh(draw.standard_normal((rows, shape[1], dim))).astype(np.float32)
    with torch.no_grad():
        wanted = checkpoint.build()(torch.from_numpy(tokens), torch.from_numpy(state))
    # 2^-24 is the rounding unit: √(2D) of it in a sum, sharpness·D/2 of it through the mask, per step and layer; the
    # embedding is of size 1, and the output layer adds one more sum.
    tolerance = 8 * 2.0**-24 * 2 * shape[0] * ((2 * dim) ** 0.5 + 0.7 * dim / 2)
    for name, got, one in zip(
        ("logits", "state", "compute"), run_graph(runtime, build(checkpoint), tokens, state), wanted, strict=True
    ):
        assert got.dtype == np.float32
        assert got.shape == one.shape, name
        assert np.abs(got - one.numpy()).max() <= tolerance, name


@pytest.mark.parametrize("unit", ["vclstm", "gru"])
@pytest.mark.parametrize("opset", [18, 21, newest_opset()])
def test_every_opset_passes_the_checks(unit: str, opset: int, make_checkpoint: MakeCheckpoint) -> None:
    model = build(make_checkpoint(unit, dim=7), opset=opset)
    assert model.opset_import[0].version == opset
    check(model)
    for value in model.graph.output:
        del value.type.tensor_type.shape.dim[-1]
    with pytest.raises(shape_inference.InferenceError):
        shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def test_every_unit_is_either_exported_or_refused(make_checkpoint: MakeCheckpoint) -> None:
    assert {*VARIABLE_UNITS, *DENSE_UNITS, "crnn"} == set(UNITS)
    with pytest.raises(VcdeployError, match="crnn is a training-only baseline and cannot be exported"):
        build(make_checkpoint("crnn", layers=1))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"opset": 17}, r"--opset must be 18 to \d+, not 17"),
        ({"opset": 1000}, "not 1000"),
        ({"precision": "f8"}, "no precision 'f8': choose from f32, f16, bf16, int8, w8a8"),
    ],
)
def test_settings_that_do_not_exist(settings: dict[str, Any], said: str, make_checkpoint: MakeCheckpoint) -> None:
    with pytest.raises(VcdeployError, match=said):
        build(make_checkpoint("vcgru"), **settings)


def test_bucketed_needs_a_unit_that_skips(make_checkpoint: MakeCheckpoint) -> None:
    with pytest.raises(VcdeployError, match="gru has none: leave it out"):
        build(make_checkpoint("gru"), bucketed=True)


def test_weights_that_are_not_finite(make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint("vcgru")
    checkpoint.model["unit.layers.1.V"][3, 4] = torch.nan
    with pytest.raises(VcdeployError, match=r"weights layers\.1\.V hold NaN"):
        build(checkpoint)


def test_weights_that_do_not_fit_the_description(make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint("vcgru")
    checkpoint.config["dim"] = 41
    with pytest.raises(VcdeployError, match="do not match its description"):
        build(checkpoint)


FORMS = [{}, {"bucketed": True}, {"portable": True}]


def all_nodes(nodes: Any) -> Iterator[onnx.NodeProto]:
    """Nodes, and those of nested graphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            yield from all_nodes(attribute.g.node)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("precision", ["f32", "int8"])
@pytest.mark.parametrize("unit", VARIABLE_UNITS)
def test_names_are_what_tools_need(
    unit: str, precision: str, form: dict[str, bool], make_checkpoint: MakeCheckpoint
) -> None:
    """Every node has a name of its own; a function's values have other names than the graph's; nothing is unused."""
    model = build(make_checkpoint(unit, dim=140), precision=precision, **form)
    bodies = [model.graph.node, *(each.node for each in model.functions)]
    names = [node.name for node in itertools.chain(*map(all_nodes, bodies))]
    assert all(names) and len(set(names)) == len(names)
    values = [{name for node in all_nodes(body) for name in (*node.input, *node.output)} - {""} for body in bodies]
    for one, other in itertools.combinations(values, 2):
        assert one.isdisjoint(other)
    read = {name for node in all_nodes(model.graph.node) for name in node.input}
    read |= {each.name for node in all_nodes(model.graph.node) for one in node.attribute for each in one.g.output}
    read |= {each.name for each in model.graph.output}
    assert all(read.intersection(node.output) for node in all_nodes(model.graph.node))
    assert not any(node.op_type == "CastLike" for body in bodies for node in all_nodes(body))


@pytest.mark.parametrize("unit", VARIABLE_UNITS)
def test_the_portable_form_has_standard_ops_only(unit: str, make_checkpoint: MakeCheckpoint) -> None:
    model = build(make_checkpoint(unit), portable=True)
    ops = [node.op_type for node in all_nodes(model.graph.node)]
    assert not model.functions and [each.domain for each in model.opset_import] == [""]
    assert ops.count("Loop") == 2 and "Scan" not in ops and "If" not in ops


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("precision", ["f32", "f16", "int8"])
@pytest.mark.parametrize("unit", VARIABLE_UNITS)
def test_onnx_runtime_has_nothing_to_say(
    unit: str, precision: str, form: dict[str, bool], make_checkpoint: MakeCheckpoint, capfd: pytest.CaptureFixture[str]
) -> None:
    """No warnings at its default log level."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model = build(make_checkpoint(unit), precision=precision, **form)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rows = session.get_inputs()[1].shape[0]
    session.run(None, {"tokens": np.zeros((3, 2), np.int64), "state": np.zeros((rows, 2, 40), np.float32)})
    assert capfd.readouterr().err == ""


def test_two_models_merge(make_checkpoint: MakeCheckpoint) -> None:
    """As docs/export.md says; the parts compute what they compute alone."""
    first, second = (build(make_checkpoint(unit)) for unit in ("vcgru", "vcrnn"))
    tokens, state = np.arange(6).reshape(3, 2), np.zeros((2, 2, 40), np.float32)
    wanted = [run_graph("onnxruntime", each, tokens, state) for each in (first, second)]
    del second.metadata_props[:]
    one, other = compose.add_prefix(first, "a/"), compose.add_prefix(second, "b/")
    merged = compose.merge_models(one, other, [("a/state_out", "b/state")], outputs=["a/logits", "b/logits"])
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(merged.SerializeToString(), providers=["CPUExecutionProvider"])
    made = session.run(None, {"a/tokens": tokens, "a/state": state, "b/tokens": tokens})
    np.testing.assert_array_equal(made[0], wanted[0][0])
    np.testing.assert_array_equal(made[1], run_graph("onnxruntime", second, tokens, wanted[0][1])[0])
