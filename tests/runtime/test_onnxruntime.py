"""The ONNX Runtime backend: the same results as the PyTorch backend, and errors that say what is wrong with a file."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto, helper
from small_models import scheduled

from vcdeploy.errors import VcdeployError
from vcdeploy.export import build
from vcdeploy.format.checksum import seal
from vcdeploy.runtime import onnxruntime as onnxruntime_backend
from vcdeploy.runtime.model import load
from vcdeploy.runtime.onnxruntime import OnnxRuntimeModel
from vcdeploy.runtime.sampling import Sampling
from vcdeploy.runtime.session import generate
from vcdeploy.runtime.torch import TorchModel
from vcdeploy.spec import DENSE_UNITS, VARIABLE_UNITS
from vcdeploy.training.checkpoint import Checkpoint
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

pytest.importorskip("onnxruntime")

UNITS = [*VARIABLE_UNITS, *DENSE_UNITS]


def checkpoint(unit: str, vocab: Vocabulary | None = None) -> Checkpoint:
    torch.manual_seed(2)
    vocab = vocab or Vocabulary(["\n", " ", *"abcdeé"])
    model = scheduled(LanguageModel(unit, len(vocab), 24, layers=2, sharpness=0.5))
    config = {
        "unit": unit, "dim": 24, "layers": 2, "sharpness": 0.5, "epsilon": 1e-3, "precision": "f32",
        "kind": vocab.kind, "buffer": vocab.buffer, "dropout": 0.0, "corpus": "demo",
    }  # fmt: skip
    return Checkpoint(config, vocab, model.state_dict(), {}, {"step": 1})


@pytest.fixture(scope="module")
def vcgru() -> ModelProto:
    return build(checkpoint("vcgru"))


@pytest.fixture
def model(vcgru: ModelProto) -> ModelProto:
    """A copy that a test may modify."""
    copy = ModelProto()
    copy.CopyFrom(vcgru)
    return copy


@pytest.mark.parametrize("unit", UNITS)
def test_runs_as_the_torch_backend_does(unit: str, tmp_path: Path) -> None:
    saved = checkpoint(unit)
    onnx.save(build(saved), tmp_path / "model.onnx")
    here, there = OnnxRuntimeModel(tmp_path / "model.onnx"), TorchModel(saved.build(), saved.vocab)
    assert here.vocab == saved.vocab
    assert here.backend == "onnxruntime"
    tokens = here.vocab.encode("abc dé\nab ca").reshape(6, 2)
    tolerance = 8 * 2.0**-24 * 2 * 12 * ((2 * 24) ** 0.5 + 0.5 * 24 / 2)  # as in tests/export/test_graph.py
    state_here = state_there = None
    for part, position in ((tokens[:4], 0), (tokens[4:], 4)):  # the state carries over
        logits, state_here, m = here.run(part, state_here, position)
        for got, wanted in zip((logits, state_here, m), outputs := there.run(part, state_there, position), strict=True):
            assert got.shape == wanted.shape
            assert np.abs(got - wanted).max() <= tolerance
        state_there = outputs[1]


@pytest.mark.parametrize("unit", ["vcgru", "lstm"])
def test_generates_what_the_torch_backend_generates(unit: str) -> None:
    saved = checkpoint(unit)
    here = OnnxRuntimeModel(build(saved).SerializeToString())
    there = TorchModel(saved.build(), saved.vocab)
    prime = saved.vocab.encode("ab c")
    ids = [[token.id for token in generate(model, prime, 40, Sampling(seed=3))] for model in (here, there)]
    assert ids[0] == ids[1]


def test_says_what_runs() -> None:
    forms = {
        "custom op": build(checkpoint("vcgru")),
        "bucketed": build(checkpoint("vcgru"), bucketed=True),
        "dense": build(checkpoint("gru"), precision="int8"),
    }
    for form, each in forms.items():
        loaded = OnnxRuntimeModel(each.SerializeToString())
        assert loaded.form == form
        assert form in repr(loaded)
    assert "gru-24, int8" in repr(loaded)


def test_the_function_body_runs_on_request_or_without_the_library(
    vcgru: ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = vcgru.SerializeToString()
    asked = OnnxRuntimeModel(content, custom_op=False)
    monkeypatch.setattr(onnxruntime_backend, "library", lambda: None)
    alone = OnnxRuntimeModel(content)
    assert asked.form == alone.form == asked.detail == "function body"
    tokens = np.array([[1], [2]])
    for one, other in zip(asked.run(tokens), alone.run(tokens), strict=True):
        assert np.array_equal(one, other)
    for each, form in ((build(checkpoint("vcgru"), bucketed=True), "bucketed"), (build(checkpoint("gru")), "dense")):
        with pytest.raises(VcdeployError, match=f"is {form} and has no function body: use the backend onnxruntime"):
            OnnxRuntimeModel(each.SerializeToString(), custom_op=False)


def test_the_custom_op_needs_no_function_body(model: ModelProto) -> None:
    """Without the bodies only our kernel can run the op."""
    whole = OnnxRuntimeModel(model.SerializeToString())
    without_functions(model)
    bare = OnnxRuntimeModel(model.SerializeToString())
    assert whole.form == bare.form == "custom op"
    for one, other in zip(whole.run(np.array([[1], [2]])), bare.run(np.array([[1], [2]])), strict=True):
        assert np.array_equal(one, other)


def test_a_library_that_can_not_be_used_is_an_error(
    vcgru: ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no silent fallback."""
    (tmp_path / "libvcdeploy_onnxruntime.so").write_bytes(b"no library")
    monkeypatch.setattr(onnxruntime_backend, "library", lambda: tmp_path / "libvcdeploy_onnxruntime.so")
    with pytest.raises(VcdeployError, match=r"can't load the model \(custom op: .*backend onnxruntime:function"):
        OnnxRuntimeModel(vcgru.SerializeToString())
    assert OnnxRuntimeModel(vcgru.SerializeToString(), custom_op=False).form == "function body"


def test_bits_keep_their_buffer() -> None:
    saved = checkpoint("vcrnn", Vocabulary("01", "bits", 8))
    loaded = OnnxRuntimeModel(build(saved).SerializeToString())
    assert (loaded.vocab.kind, loaded.vocab.buffer) == ("bits", 8)
    assert loaded.config["unit"] == "vcrnn"


def test_a_foreign_writer_of_the_same_format_is_read(model: ModelProto) -> None:
    """Only what docs/design.md requires, with other names for T and B."""
    asked = ("unit", "dim", "layers", "sharpness", "epsilon", "precision", "kind")
    config = json.loads(metadata(model)["vcdeploy.config"])
    set_metadata(model, config={key: config[key] for key in asked})
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = {"T": "time", "B": "batch"}[dim.dim_param]
    assert OnnxRuntimeModel(model.SerializeToString(), custom_op=False).form == "function body"


def metadata(model: ModelProto) -> dict[str, str]:
    return {each.key: each.value for each in model.metadata_props}


def set_metadata(model: ModelProto, config: Any = None, vocab: Any = None) -> None:
    new = metadata(model)
    for key, value in (("vcdeploy.config", config), ("vcdeploy.vocab", vocab)):
        if value is not None:
            new[key] = value if isinstance(value, str) else json.dumps(value)
    helper.set_model_props(model, new)


def change_config(**changes: Any) -> Callable[[ModelProto], None]:
    return lambda model: set_metadata(model, config=json.loads(metadata(model)["vcdeploy.config"]) | changes)


def without_functions(model: ModelProto) -> None:
    del model.functions[:]


def without_metadata(model: ModelProto) -> None:
    del model.metadata_props[:]


def fixed_batch(model: ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2


def renamed_output(model: ModelProto) -> None:
    for node in model.graph.node:
        node.output[:] = ["scores" if name == "logits" else name for name in node.output]
    model.graph.output[0].name = "scores"


def swapped_initializers(model: ModelProto) -> None:
    names = {"layers.0.U": "layers.0.u", "layers.0.u": "layers.0.U"}
    for each in model.graph.initializer:
        each.name = names.get(each.name, each.name)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without_metadata, "not a vcdeploy model: its metadata lacks"),
        (without_functions, r"attach_functions adds them.*export it again"),
        (change_config(unit="transformer"), "vcdeploy.config of the model is incomplete or invalid"),
        (change_config(dim="24"), "vcdeploy.config of the model is incomplete or invalid"),
        (change_config(dim=25), r"state is tensor\(float\) \[2, 'B', 24\].*requires tensor\(float\) \[2, 'B', 25\]"),
        (change_config(layers=3), "layers 3"),
        (change_config(kind="speech"), r"vcdeploy.vocab of the model is invalid \(unknown vocabulary kind 'speech'"),
        (lambda model: set_metadata(model, config="{"), "vcdeploy.config of the model is incomplete or invalid"),
        (lambda model: set_metadata(model, config="[1]"), "vcdeploy.config of the model is incomplete or invalid"),
        (lambda model: set_metadata(model, vocab="{}"), "it is not a list of strings"),
        (lambda model: set_metadata(model, vocab=["a", "b"]), r"logits is .*8\].*2 symbols"),
        (lambda model: set_metadata(model, vocab=["a"] * 8), "'a' is in the vocabulary twice"),
        (fixed_batch, r"tokens is tensor\(int64\) \['T', 2\]"),
        (renamed_output, "no input or output 'logits'"),
        (swapped_initializers, "can't load the model"),
    ],
)
def test_a_spoilt_file_is_explained(spoil: Callable[[ModelProto], None], said: str, model: ModelProto) -> None:
    spoil(model)
    with pytest.raises(VcdeployError, match=said):
        OnnxRuntimeModel(model.SerializeToString(), custom_op=spoil is not without_functions)


def test_onnxruntime_logs_nothing(model: ModelProto, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its log would send control characters in the name of a node to the terminal."""
    model.graph.node.append(helper.make_node("Constant", [], ["far"], value_int=10**6))
    model.graph.node.append(helper.make_node("Gather", ["layers.0.b", "far"], ["gathered"], name="\x1b]0;owned\x07"))
    model.graph.output.append(helper.make_tensor_value_info("gathered", TensorProto.FLOAT, None))
    onnx.save(seal(model), tmp_path / "far.onnx")
    with pytest.raises(VcdeployError, match=r"can't (load|run) \S*far\.onnx"):
        load(tmp_path / "far.onnx", "onnxruntime").run(np.zeros((1, 1), np.int64))
    assert capfd.readouterr() == ("", "")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "no.onnx", tmp_path):
        with pytest.raises(VcdeployError, match=f"no model at {path}: give the .onnx file"):
            OnnxRuntimeModel(path)


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file(fraction: float, model: ModelProto, tmp_path: Path) -> None:
    content = model.SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(content[: int(fraction * len(content))])
    with pytest.raises(VcdeployError, match=r"cut\.onnx"):
        OnnxRuntimeModel(path)


def test_a_foreign_onnx_file(tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "foreign", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "f.onnx")
    with pytest.raises(VcdeployError, match=r"f\.onnx is an ONNX file, but not a vcdeploy model"):
        OnnxRuntimeModel(tmp_path / "f.onnx")


def test_without_onnx_runtime_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, vcgru: ModelProto) -> None:
    monkeypatch.setattr("vcdeploy.extras.find_spec", lambda name: None)
    with pytest.raises(
        VcdeployError, match=r'needs onnxruntime, which is not installed; run: pip install "onnxruntime>=1\.20"'
    ):
        OnnxRuntimeModel(vcgru.SerializeToString())


def test_importing_the_backend_imports_neither_onnxruntime_nor_torch(tmp_path: Path) -> None:
    program = (
        "import sys, vcdeploy.runtime.onnxruntime, vcdeploy.export; "
        "assert not {'torch', 'onnxruntime'} & set(sys.modules), 'imported'"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
