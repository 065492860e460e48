"""`vcdeploy export --trt`: with the stand-in GPU, without one, and what must not be built."""

import hashlib
import json
from pathlib import Path
from typing import Any

import onnx
import pytest
import stand_in
from click.testing import CliRunner, Result
from small_models import write_checkpoint

import vcdeploy
from vcdeploy import cli
from vcdeploy.errors import VcdeployError
from vcdeploy.gpu import plugin_build, plugin_files
from vcdeploy.spec import TENSORRT_PRECISIONS

FILES = {"model.onnx", "model-tensorrt.onnx", "manifest.json", "samples.npz", "report.json"}
ENGINE = {"libvcdeploy_tensorrt.so", "model.plan", "timing.cache"}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.main, ["export", *map(str, arguments)], prog_name="vcdeploy")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest, which must tell of every file."""
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    assert set(manifest["files"]) == names(folder) - {"manifest.json"}
    for name, entry in manifest["files"].items():
        content = (folder / name).read_bytes()
        assert entry == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return manifest


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "run" / "best.safetensors", dim=16, layers=2)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without TensorRT, without a GPU, and without what builds the plugin."""
    stand_in.uninstall(monkeypatch)
    monkeypatch.setattr(plugin_files, "library", lambda name="": None)

    def refuse(*_: Any) -> Path:
        raise VcdeployError("the TensorRT plugin can't be built here; missing:\n  nvcc")

    monkeypatch.setattr(plugin_build, "build", refuse)


@pytest.mark.parametrize("precision", TENSORRT_PRECISIONS)
def test_with_a_gpu(precision: str, source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in.install(monkeypatch, tmp_path)
    result = run(source.parent, "--trt", "--precision", precision, "--steps", "1:2:30", "--batch", "1:2:4")
    assert result.exit_code == 0, result.output
    folder = source.with_name("best-trt" if precision == "f32" else "best-f16-trt")
    assert names(folder) == FILES | ENGINE
    assert f"wrote {folder / 'model.plan'}: checked against PyTorch" in result.stdout.replace("\n", "")
    manifest = manifest_of(folder)
    section = manifest["tensorrt"]
    assert section["ranges"] == {"steps": [1, 2, 30], "batch": [1, 2, 4]}
    plan = section["plan"]
    assert (plan["gpu"], plan["capability"], plan["tensorrt"]) == ("Stand-in GPU", "8.9", stand_in.VERSION)
    assert (plan["cuda"], plan["driver"], plan["checked"]) == ("13.0", "13.1", "PyTorch")
    assert plan["graph"] == manifest["files"]["model-tensorrt.onnx"]["sha256"]
    assert plan["plugin"] == manifest["files"]["libvcdeploy_tensorrt.so"]["sha256"]
    assert stand_in.PLANS[-1] == [
        {"tokens": [(1, 1), (1, 2), (1, 4)], "state": [(2, 1, 16), (2, 2, 16), (2, 4, 16)]},
        {"tokens": [(1, 1), (2, 2), (30, 4)], "state": [(2, 1, 16), (2, 2, 16), (2, 4, 16)]},
    ]
    graph = onnx.load(folder / "model-tensorrt.onnx")
    assert not graph.functions
    types = {each.name: each.data_type for each in graph.graph.initializer}
    ops = [node for node in graph.graph.node if node.op_type == "VCGRU"]
    assert [node.domain for node in ops] == ["trt.plugins"] * 2
    narrow = onnx.TensorProto.FLOAT16 if precision == "f16" else onnx.TensorProto.FLOAT
    for node in ops:
        assert [types[name] for name in node.input[2:7]] == [narrow, narrow, *[onnx.TensorProto.FLOAT] * 3]
    assert vcdeploy.load(folder, "tensorrt").backend == "tensorrt"
    assert vcdeploy.load(folder).backend == "native"


def test_a_dense_model_needs_no_plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in.install(monkeypatch, tmp_path, plugin=False)
    result = run(
        write_checkpoint(tmp_path / "best.safetensors", "gru", dim=16, layers=2), "--trt", "--bundle", tmp_path / "out"
    )
    assert result.exit_code == 0, result.output
    assert manifest_of(tmp_path / "out")["tensorrt"]["plan"]["plugin"] is None
    assert "no plugin" in vcdeploy.load(tmp_path / "out", "tensorrt").detail


@pytest.mark.usefixtures("nowhere")
def test_without_tensorrt_or_gpu_the_last_line_finishes_on_the_target(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    result = run(source, "--trt", "--bundle", folder)
    assert result.exit_code == 3
    assert names(folder) == FILES
    assert manifest_of(folder)["tensorrt"]["plan"] is None
    assert "no engine was built here; missing:" in result.stdout
    assert (
        'TensorRT: pip install "onnxruntime-gpu>=1.20" "tensorrt>=10.0" "cuda-python>=12.8"' in result.stdout
        and "a GPU: " in result.stdout
    )
    assert "missing:\n    nvcc" in result.stdout
    assert result.stdout.splitlines()[-1] == f"vcdeploy export '{folder}' --trt"
    with pytest.raises(VcdeployError, match="needs tensorrt"):
        vcdeploy.load(folder, "tensorrt")


def test_the_target_finishes_without_the_checkpoint(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as here:
        stand_in.uninstall(here)
        (tmp_path / "plugin.so").write_bytes(b"plugin built where the export was")
        here.setattr(plugin_files, "library", lambda name="": tmp_path / "plugin.so")
        assert run(source, "--trt", "--bundle", tmp_path / "out", "--batch", "1:1:7").exit_code == 3
    assert names(tmp_path / "out") == FILES | {"libvcdeploy_tensorrt.so"}
    source.unlink()
    stand_in.install(monkeypatch, tmp_path, plugin=False)  # the one in the folder is taken
    result = run(tmp_path / "out", "--trt", "--steps", "1:1:9", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)["tensorrt"]
    assert document["ranges"] == {"steps": [1, 1, 9], "batch": [1, 1, 7]}
    assert (document["missing"], document["checked"]) == ([], "PyTorch")
    manifest_of(tmp_path / "out")


def test_other_ranges_without_a_gpu_leave_no_engine_of_the_old_ones(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as there:
        stand_in.install(there, tmp_path)
        assert run(source, "--trt", "--bundle", out).exit_code == 0
    stand_in.uninstall(monkeypatch)
    assert run(out, "--trt").exit_code == 3
    assert manifest_of(out)["tensorrt"]["plan"] is not None, "the engine for the other machine stays"
    assert run(out, "--trt", "--batch", "1:1:99").exit_code == 3
    assert manifest_of(out)["tensorrt"] == {"ranges": {"steps": [1, 64, 512], "batch": [1, 1, 99]}, "plan": None}


def test_a_second_build_starts_from_the_first_ones_timings(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in.install(monkeypatch, tmp_path)
    timing = tmp_path / "out" / "timing.cache"
    run(source, "--trt", "--bundle", tmp_path / "out")
    assert timing.read_bytes() == b"+"
    assert run(tmp_path / "out", "--trt").exit_code == 0
    assert timing.read_bytes() == b"++"
    timing.write_bytes(b"other GPU")
    assert run(tmp_path / "out", "--trt").exit_code == 0
    assert timing.read_bytes() == b"+"


def test_tensorrt_that_builds_the_function_instead_is_refused(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in.install(monkeypatch, tmp_path)
    monkeypatch.setattr(stand_in.OnnxParser, "plugin_is_taken", False)
    result = run(source, "--trt", "--bundle", tmp_path / "out")
    assert result.exit_code == 1
    assert "created 0 plugin layers for the model's 2: it would compute densely" in result.stderr
    assert not (tmp_path / "out" / "model.plan").exists()


def test_an_engine_that_computes_something_else_is_not_written(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in.install(monkeypatch, tmp_path)
    compute = stand_in.IExecutionContext._compute

    def wrong(self: Any, shapes: Any, addresses: Any) -> None:
        shapes = {**shapes}
        compute(self, shapes, {**addresses, "state_out": addresses["state"]})  # the state is not handed on

    monkeypatch.setattr(stand_in.IExecutionContext, "_compute", wrong)
    result = run(source, "--trt", "--bundle", tmp_path / "out")
    assert result.exit_code == 1
    assert "the engine differs from PyTorch by more than rounding" in result.stderr
    assert not (tmp_path / "out" / "model.plan").exists()


def test_a_plugin_that_tensorrt_can_not_load(source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in.install(monkeypatch, tmp_path)
    (tmp_path / "installed" / plugin_files.CORE).write_bytes(b"no library")
    result = run(source, "--trt")
    assert result.exit_code == 1
    assert "TensorRT can't load the plugin" in result.stderr and "vcdeploy plugin build" in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--trt", "--bucketed"], "--bucketed is for runtimes without our kernels"),
        (["--trt", "--portable"], "--portable is for runtimes without our kernels"),
        (["--trt", "--precision", "int8"], "--trt takes --precision f32 or f16, not int8"),
        (["--trt", "--precision", "w8a8"], "--trt takes --precision f32 or f16, not w8a8"),
        (["--trt", "-o", "x.onnx"], "--trt writes a folder: name it with --bundle"),
        (["--trt", "--steps", "9:1:2"], "--steps '9:1:2' is not a range: give MIN:OPT:MAX"),
        (["--trt", "--batch", "4"], "--batch '4' is not a range"),
        (["--batch", "1:1:4"], "--batch is for a TensorRT engine: add --trt"),
    ],
)
def test_settings_that_do_not_go_together(options: list[str], said: str, source: Path) -> None:
    result = run(source, *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert names(source.parent) == {"best.safetensors"}


def test_an_exported_file_will_do(source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in.install(monkeypatch, tmp_path)
    file = tmp_path / "mine.onnx"
    assert run(source, "-o", file, "--precision", "f16").exit_code == 0
    result = run(file, "--trt")
    assert result.exit_code == 0, result.output
    folder = tmp_path / "mine-trt"
    manifest = manifest_of(folder)
    assert (folder / "model.onnx").read_bytes() == file.read_bytes()
    assert (manifest["precision"], manifest["opset"]) == ("f16", 18)
    assert manifest["checkpoint"] == {"name": "mine.onnx", "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    tokens = [1, 2, 3]
    texts = [list(vcdeploy.load(each, backend).generate(tokens, 20)) for each, backend in
             ((file, "native"), (folder, "tensorrt"))]  # fmt: skip
    assert texts[0] == texts[1]


@pytest.mark.usefixtures("nowhere")
def test_a_pretrained_model_is_written_to_the_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("irish", "--trt")
    assert result.exit_code == 3, result.output
    assert names(tmp_path / "irish-trt") == FILES
    assert manifest_of(tmp_path / "irish-trt")["precision"] == "f16"
    assert result.stdout.splitlines()[-1] == "vcdeploy export irish-trt --trt"


def test_exported_files_that_will_not_do(source: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.onnx"
    assert run(source, "-o", file, "--precision", "int8").exit_code == 0
    for words, said, code in (
        ([file, "--trt"], "--trt takes --precision f32 or f16, not int8", 2),
        ([file], "is the model itself", 1),
    ):
        result = run(*words)
        assert result.exit_code == code and said in result.stderr
    (tmp_path / "foreign.onnx").write_bytes(b"no ONNX at all")
    result = run(tmp_path / "foreign.onnx", "--trt")
    assert result.exit_code == 1 and "is not a complete ONNX file" in result.stderr
    graph = onnx.helper.make_graph([], "foreign", [], [])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "foreign.onnx")
    result = run(tmp_path / "foreign.onnx", "--trt")
    assert result.exit_code == 1 and "foreign.onnx" in result.stderr
    assert not (tmp_path / "mine-trt").exists() and not (tmp_path / "foreign-trt").exists()
