"""A reader that uses only the weights runs a file only if its graph is exactly one that vcdeploy writes."""

import hashlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from attack import files
from exported import VOCAB, exported
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper
from small_models import write_checkpoint

from vcdeploy import zoo
from vcdeploy.custom_ops import library
from vcdeploy.errors import VcdeployError
from vcdeploy.export import assemble, build
from vcdeploy.format import nodes, reader
from vcdeploy.format.checksum import seal
from vcdeploy.format.graph import newest_opset
from vcdeploy.format.reader import read, read_config, read_vocabulary
from vcdeploy.format.steps import EARLY
from vcdeploy.format.structure import difference, layer_values, structure
from vcdeploy.runtime.backends import native_fault
from vcdeploy.runtime.model import load
from vcdeploy.runtime.sources import open_source
from vcdeploy.spec import DENSE_UNITS, PRECISIONS, VARIABLE_UNITS

TOKENS = np.arange(6).reshape(3, 2)


def need_native() -> None:
    if (fault := native_fault()) is not None:
        pytest.skip(f"needs the native module: {fault}")


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("unit", [*VARIABLE_UNITS, *DENSE_UNITS])
def test_the_messages_are_those_onnx_writes(unit: str, precision: str) -> None:
    """Parsed and written again by protobuf, every part has the same bytes; none has an unknown field."""
    for form in ("", "bucketed", "portable") if unit in VARIABLE_UNITS else ("",):
        config = {"unit": unit, "dim": 300, "layers": 2, "precision": precision, "bucketed": False, form: True}
        parts = structure(config | {"sharpness": 0.5, "epsilon": 1e-3}, 9, 18)
        for kind, messages in (
            (NodeProto, parts.nodes),
            (ValueInfoProto, [*parts.inputs, *parts.outputs, *layer_values(config)]),
            (FunctionProto, parts.functions),
        ):
            for message in messages:
                parsed = kind.FromString(message)
                assert parsed.SerializeToString(deterministic=True) == message
                parsed.DiscardUnknownFields()
                assert parsed.SerializeToString(deterministic=True) == message
        assert parts.functions or form or unit in DENSE_UNITS


def test_the_early_form_is_that_of_version_0_2() -> None:
    """The hash is of what its code wrote: such files still load."""
    seen = hashlib.sha256()
    for unit, precision, bucketed, opset in itertools.product(VARIABLE_UNITS, PRECISIONS, (False, True), (18, 23)):
        config = {"unit": unit, "dim": 300, "layers": 2, "precision": precision, "bucketed": bucketed}
        parts = structure(config | {"sharpness": 0.5, "epsilon": 1e-3}, 9, opset, EARLY)
        for message in (*parts.nodes, *parts.inputs, *parts.outputs, *parts.functions):
            seen.update(message)
    assert seen.hexdigest() == "0aa6ebe4683b953725da06e37404c4f1bf8436b9e8543c10ac2bd07261201ab6"


@pytest.mark.parametrize("bucketed", [False, True])
def test_files_of_version_0_2_load(bucketed: bool, tmp_path: Path) -> None:
    """A file whose graph was replaced by that of version 0.2."""
    need_native()
    from vcdeploy.runtime.onnxruntime import OnnxRuntimeModel
    from vcdeploy.runtime.sources import OnnxSource

    file = write_checkpoint(tmp_path / "best.safetensors", dim=200)
    model = build(open_source(str(file)), precision="int8", bucketed=bucketed)
    config = {each.key: each.value for each in model.metadata_props}["vcdeploy.config"]
    parts = structure(json.loads(config), 7, 18, EARLY)
    assert difference_of(model) is None
    wanted = OnnxRuntimeModel(model.SerializeToString(), custom_op=bucketed).run(TOKENS)
    del model.graph.node[:], model.functions[:]
    model.graph.node.extend(map(NodeProto.FromString, parts.nodes))
    model.functions.extend(map(FunctionProto.FromString, parts.functions))
    assert any(not node.name for node in model.graph.node)
    onnx.save(seal(model), tmp_path / "early.onnx")
    OnnxSource(tmp_path / "early.onnx")
    for backend in ("native", "onnxruntime") if bucketed else ("native", "onnxruntime", "onnxruntime:function"):
        for one, other in zip(load(tmp_path / "early.onnx", backend).run(TOKENS), wanted, strict=True):
            assert np.array_equal(one, other)
    model.graph.node[0].input.reverse()
    assert difference_of(seal(model)) is not None


def difference_of(model: ModelProto) -> str | None:
    file = read(model.SerializeToString())
    config = read_config(file.metadata, "a file")
    return difference(file.graph, config, len(read_vocabulary(file.metadata, config, "a file")))


def test_messages_by_hand_are_those_of_onnx_helper() -> None:
    attributes: dict[str, Any] = {"f": 0.3, "i": -7, "s": "é", "ints": [3, -1]}
    made = nodes.node_message(nodes.Node("Op", ["a", "", "b"], ["y"], attributes, "n", "d"))
    assert made == helper.make_node("Op", ["a", "", "b"], ["y"], "n", domain="d", **attributes).SerializeToString()
    for array in (np.array(0.5, np.float32), np.arange(3), np.zeros((2, 0)), np.array([[1.5]])):
        assert nodes.tensor_message(array) == onnx.numpy_helper.from_array(array).SerializeToString()
    made = nodes.value_message("x", ["T", 3], nodes.INT64)
    assert made == helper.make_tensor_value_info("x", TensorProto.INT64, ["T", 3]).SerializeToString()


@pytest.mark.parametrize("opset", [18, newest_opset()])
@pytest.mark.parametrize("form", ["default", "bucketed", "portable"])
@pytest.mark.parametrize("name", zoo.names())
def test_what_vcdeploy_writes_is_known(name: str, form: str, opset: int, tmp_path: Path) -> None:
    """Also after onnx has read and saved it."""
    need_native()
    from vcdeploy.runtime.sources import OnnxSource

    source = OnnxSource(zoo.model_file(name))
    prefix = {"l": "unit."}  # of layers
    parameters = {prefix.get(key[0], "") + key: each.wide() for key, each in source.weights().items()}
    parameters["embedding.weight"] = parameters.pop("embedding")
    model = assemble(source.config | {form: True}, source.vocab, parameters, opset)
    (tmp_path / "one.onnx").write_bytes(model.SerializeToString())
    onnx.save(onnx.load(tmp_path / "one.onnx"), tmp_path / "two.onnx")
    wanted = load(name, "native").run(TOKENS)
    for file in ("one.onnx", "two.onnx"):
        for got, want in zip(load(tmp_path / file, "native").run(TOKENS), wanted, strict=True):
            assert np.array_equal(got, want)


def other_body(model: ModelProto) -> None:
    """tanh becomes a sigmoid, in the function body only."""
    (scan,) = (node for node in model.functions[0].node if node.op_type == "Scan")
    (step,) = (each.g for each in scan.attribute if each.name == "body")
    (tanh,) = (node for node in step.node if node.op_type == "Tanh")
    tanh.op_type = "Sigmoid"


def other_attribute(model: ModelProto) -> None:
    for node in model.graph.node:
        for each in node.attribute:
            if each.name == "sharpness":
                each.f = 3.0


def appended_softmax(model: ModelProto) -> None:
    for node in model.graph.node:
        node.output[:] = ["scores" if name == "logits" else name for name in node.output]
    model.graph.node.append(helper.make_node("Softmax", ["scores"], ["logits"], axis=-1))


EDITS: list[Callable[[ModelProto], None]] = [other_body, other_attribute, appended_softmax]


@pytest.mark.parametrize("edit", EDITS)
def test_one_file_is_one_model(edit: Callable[[ModelProto], None], tmp_path: Path) -> None:
    """An edited graph runs where it is honoured, and nowhere else."""
    need_native()
    pytest.importorskip("onnxruntime")
    model, path = exported(), tmp_path / "model.onnx"
    onnx.save(model, path)
    before = load(path, "onnxruntime:function").run(TOKENS)[0]
    edit(model)
    onnx.save(seal(model), path)
    after = load(path, "onnxruntime:function").run(TOKENS)[0]
    assert not np.allclose(before, after)
    for backend in ("native", "torch", "auto"):
        with pytest.raises(VcdeployError, match=r"is not the one that vcdeploy writes .*onnxruntime backend"):
            load(path, backend)
    if library() is None:
        return
    if edit is other_body:
        with pytest.raises(VcdeployError, match=r"function body of VCGRU .*the backend onnxruntime:function"):
            load(path, "onnxruntime")
    else:
        assert np.allclose(load(path, "onnxruntime").run(TOKENS)[0], after, atol=1e-5)


def test_random_edits_are_refused(tmp_path: Path) -> None:
    onnx.save(exported(), tmp_path / "0.onnx")
    onnx.save(exported("vclstm", "int8"), tmp_path / "1.onnx")
    onnx.save(exported("gru"), tmp_path / "2.onnx")
    assert files.edited_graphs(tmp_path, 150) == []


def test_of_a_repeated_field_the_last_counts() -> None:
    """As in protobuf: onnx reads the same names, types and values."""
    model = exported()
    content = b""
    for number, value, _ in reader._Fields().of(memoryview(model.graph.SerializeToString())):
        assert isinstance(value, memoryview)
        if number == 5:
            first = nodes.part(8, "layers.9.V") + nodes.whole(2, 10) + nodes.part(9, b"\0" * 8)
            value = memoryview(first + bytes(value))
        content += nodes.part(number, bytes(value))
    opset = nodes.part(8, nodes.part(1, "other") + nodes.whole(2, 1) + nodes.part(1, "vcdeploy") + nodes.whole(2, 7))
    entry = nodes.part(14, nodes.part(1, "other") + nodes.part(2, "{}") + nodes.part(1, "key") + nodes.part(2, "value"))
    again = nodes.part(7, content) + opset + entry
    file, proto = reader.read(again), ModelProto.FromString(again)
    assert file.graph.opsets == {each.domain: each.version for each in proto.opset_import} == {"vcdeploy": 7}
    assert file.metadata == {each.key: each.value for each in proto.metadata_props} == {"key": "value"}
    weights, parsed = file.weights, {each.name: each for each in proto.graph.initializer}
    assert weights.keys() == parsed.keys() == {each.name for each in model.graph.initializer}
    for name, each in weights.items():
        assert np.array_equal(each.values, onnx.numpy_helper.to_array(parsed[name]))


def test_a_tensor_must_not_be_stored_twice() -> None:
    model = exported()
    model.graph.initializer[0].float_data.append(1.0)
    with pytest.raises(ValueError, match="embedding is stored twice, as bytes and as numbers"):
        reader.read(seal(model).SerializeToString())
    model = exported()
    model.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(ValueError, match="it has two initializers embedding"):
        reader.read(seal(model).SerializeToString())


def test_what_only_informs_may_differ() -> None:
    model = exported()
    model.graph.name, model.graph.doc_string, model.producer_name = "other", "documentation", "someone"
    del model.graph.value_info[:]
    file = reader.read(seal(model).SerializeToString())
    config = {"unit": "vcgru", "dim": 40, "layers": 2, "sharpness": 0.5, "epsilon": 1e-3, "precision": "f32"}
    assert difference(file.graph, config, len(VOCAB)) is None
    assert difference(file.graph, config | {"epsilon": 2e-3}, len(VOCAB)) is not None


def test_native_loads_without_importing_onnx() -> None:
    """Importing it would take longer than loading a model."""
    need_native()
    code = "import sys, vcdeploy; vcdeploy.load('english', 'native'); print({'onnx', 'torch'} & sys.modules.keys())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"
