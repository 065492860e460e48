"""The tensorrt backend on the stand-in: state handling, graphs, pieces, and plans that don't match the machine."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stand_in
from click.testing import CliRunner
from small_models import scheduled

import vcdeploy
from vcdeploy import cli
from vcdeploy.bench import models
from vcdeploy.errors import VcdeployError
from vcdeploy.export import assemble, bundle
from vcdeploy.gpu import cuda, tensorrt_bundle
from vcdeploy.gpu.tensorrt import TensorRtModel
from vcdeploy.spec import TENSORRT_PRECISIONS, UNITS, VARIABLE_UNITS

Make = Callable[..., Path]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> stand_in.Gpu:
    return stand_in.install(monkeypatch, tmp_path)


@pytest.fixture
def make(gpu: stand_in.Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """make(unit, precision, steps, batch): a bundle with an engine."""
    monkeypatch.setattr(tensorrt_bundle, "_check", lambda *_: None)  # tested elsewhere

    def build(
        unit: str = "vcgru",
        precision: str = "f32",
        steps: tuple[int, int, int] = (1, 4, 8),
        batch: tuple[int, int, int] = (1, 1, 3),
    ) -> Path:
        variable = UNITS[unit].variable
        made = models.synthetic(unit if variable else "vcgru", 24, 0.2, 0.8, seed=1)
        made = made if variable else made.dense(unit, 1)
        config = {**made.config, "precision": precision, "bucketed": False, "training": {}}
        folder = tmp_path / f"{unit}-{precision}"
        model = assemble(config, made.vocab, made.parameters)
        content = model.SerializeToString()
        monkeypatch.setattr(bundle, "_samples", lambda _: b"")

        class Report:
            def to_json(self) -> dict[str, Any]:
                return {}

        tensorrt_bundle.write(folder, model, content, Report(), {}, steps, batch)
        assert not tensorrt_bundle.finish(folder, lambda _: None).missing
        return folder

    return build


@pytest.mark.parametrize("unit", [*VARIABLE_UNITS, "gru", "lstm"])
@pytest.mark.parametrize("precision", TENSORRT_PRECISIONS)
def test_it_runs_what_the_other_backends_run(unit: str, precision: str, make: Make) -> None:
    folder = make(unit, precision)
    model, other = vcdeploy.load(folder, "tensorrt"), vcdeploy.load(folder)
    assert (model.backend, model.precision) == ("tensorrt", precision)
    assert "Stand-in GPU" in model.detail and "CUDA graph" in model.detail
    random = np.random.default_rng(0)
    for T, B in ((1, 1), (5, 3), (1, 2), (8, 1), (20, 3)):  # 20 exceeds the maximum of a call: three pieces
        tokens = random.integers(0, 50, (T, B))
        state = None if T == 5 else random.standard_normal((UNITS[unit].state_rows, B, 24)).astype(np.float32)
        for one, wanted in zip(model.run(tokens, state), other.run(tokens, state), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=0, atol=1e-5)
    prime = random.integers(0, 50, 11)
    assert list(model.generate(prime, 40, seed=3)) == list(other.generate(prime, 40, seed=3))


def test_generating_takes_one_graph_launch_and_four_small_copies_per_token(make: Make, gpu: stand_in.Gpu) -> None:
    model = vcdeploy.load(make(), "tensorrt")
    symbols = model.generate([1, 2, 3], 30, seed=1)
    for _ in range(5):
        next(symbols)
    before = gpu.launches, gpu.executions, gpu.copies
    for _ in range(10):
        next(symbols)
    # Copies within the graph: the token in, the new state over the old one, logits and m out. No others.
    assert (gpu.launches - before[0], gpu.executions - before[1], gpu.copies - before[2]) == (10, 10, 40)


def test_readings_do_not_disturb_each_other(make: Make) -> None:
    model = vcdeploy.load(make("vclstm"), "tensorrt")
    alone = [list(model.generate([seed], 12, seed=seed)) for seed in (1, 2)]
    both = [model.generate([seed], 12, seed=seed) for seed in (1, 2)]
    mixed: list[list[int]] = [[], []]
    for number in range(12):
        mixed[0].append(next(both[0]))
        model.run(np.full((3, 2), number))
        mixed[1].append(next(both[1]))
    assert mixed == alone


def test_without_a_graph_the_steps_are_the_same_and_it_is_said(make: Make, gpu: stand_in.Gpu) -> None:
    folder = make()
    wanted = list(vcdeploy.load(folder, "tensorrt").generate([1], 20, seed=1))
    gpu.captures = False
    launched = gpu.launches
    model = vcdeploy.load(folder, "tensorrt")
    assert "no CUDA graph: CUDA: cudaStreamBeginCapture: cudaErrorStreamCaptureUnsupported" in model.detail
    assert list(model.generate([1], 20, seed=1)) == wanted
    assert gpu.launches == launched


def test_a_batch_the_engine_was_not_built_for(make: Make) -> None:
    folder = make(batch=(2, 2, 3))
    model = vcdeploy.load(folder, "tensorrt")
    with pytest.raises(
        VcdeployError, match=r"takes 2 to 3 sequences at once, not 5: run vcdeploy export .* --batch 2:2:5"
    ):
        model.run(np.zeros((1, 5), np.int64))
    model.run(np.zeros((1, 2), np.int64))


def test_pieces_below_the_least_go_step_by_step(make: Make) -> None:
    folder = make(steps=(4, 4, 8))
    model, other = vcdeploy.load(folder, "tensorrt"), vcdeploy.load(folder)
    tokens = np.arange(11).reshape(11, 1)
    for one, wanted in zip(model.run(tokens), other.run(tokens), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tensorrt": "10.1.0"}, "was built for TensorRT 10.1.0, but this machine has 11.4.0.106"),
        ({"capability": "9.0"}, "was built for compute capability 9.0, but this machine has 8.9"),
        ({"gpu": "NVIDIA L4"}, "was built for GPU NVIDIA L4, but this machine has Stand-in GPU"),
        ({"graph": "0"}, "was built from another model-tensorrt.onnx"),
        (None, "has no engine yet"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_with_the_command(change: Any, said: str, make: Make) -> None:
    folder = make()
    manifest = json.loads((folder / "manifest.json").read_text())
    plan = manifest["tensorrt"]["plan"]
    manifest["tensorrt"]["plan"] = change and {**plan, **change}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(VcdeployError) as raised:
        vcdeploy.load(folder, "tensorrt")
    assert said in str(raised.value)
    assert f"run vcdeploy export {folder} --trt" in str(raised.value)


def test_files_that_are_not_those_of_the_manifest(make: Make) -> None:
    folder = make()
    (folder / "model.plan").write_bytes(b"plan 0 of another")
    with pytest.raises(VcdeployError, match=r"model\.plan does not match manifest\.json: run vcdeploy"):
        vcdeploy.load(folder, "tensorrt")
    (folder / "model.plan").unlink()
    with pytest.raises(VcdeployError, match=r"cannot read .*model\.plan .*: run vcdeploy export .* --trt"):
        vcdeploy.load(folder, "tensorrt")
    with (folder / "model-tensorrt.onnx").open("ab") as file:
        file.write(b"more")
    for act in (lambda: vcdeploy.load(folder, "tensorrt"), lambda: tensorrt_bundle.finish(folder, lambda _: None)):
        with pytest.raises(VcdeployError, match=r"model-tensorrt\.onnx does not match .*: create the bundle again"):
            act()
    (folder / "manifest.json").write_text('{"files": {}}')
    with pytest.raises(VcdeployError, match="has no valid TensorRT section"):
        vcdeploy.load(folder, "tensorrt")
    (folder / "manifest.json").unlink()
    with pytest.raises(VcdeployError, match="is not a bundle of `vcdeploy export --trt`"):
        vcdeploy.load(folder, "tensorrt")


def test_an_engine_that_tensorrt_refuses(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make()
    monkeypatch.setattr(stand_in.Runtime, "refuses", True)
    with pytest.raises(
        VcdeployError, match=r"can't load the engine in .*the stand-in refuses this plan.*: run vcdeploy"
    ):
        vcdeploy.load(folder, "tensorrt")


def test_the_installed_plugin_is_taken_where_the_plan_has_none(make: Make) -> None:
    folder = make()
    model = vcdeploy.load(folder, "tensorrt")
    assert "plugin of the plan" in model.detail
    content = (folder / "model.plan").read_bytes().replace(b"plugin inside ", b"")
    ranges = {"steps": (1, 4, 8), "batch": (1, 1, 3)}
    without = TensorRtModel(content, folder, ranges, model.config, model.vocab)
    assert "installed plugin" in without.detail


def test_a_plan_file_means_its_folder(make: Make) -> None:
    model = vcdeploy.load(make() / "model.plan")
    assert model.backend == "tensorrt"


def test_a_folder_without_an_engine_says_how_to_build_one(gpu: stand_in.Gpu, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from vcdeploy.training import checkpoint
    from vcdeploy.units import LanguageModel

    made = models.synthetic("vcgru", 8, 0.4, 0.4, 0)
    network = scheduled(LanguageModel("vcgru", len(made.vocab), 8))
    config = {**made.config, "precision": "f32", "dropout": 0.0, "corpus": "demo"}
    checkpoint.write(
        tmp_path / "best.safetensors", checkpoint.Checkpoint(config, made.vocab, network.state_dict(), {}, {"step": 1})
    )
    with pytest.raises(VcdeployError, match=r"runs an engine, but .* is a checkpoint.*vcdeploy export .* --trt"):
        vcdeploy.load(tmp_path, "tensorrt")


def test_without_tensorrt_the_error_names_the_extra(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make()
    stand_in.uninstall(monkeypatch)
    result = CliRunner().invoke(cli.main, ["sample", str(folder), "--backend", "tensorrt"])
    assert result.exit_code == 3
    assert 'the tensorrt backend needs tensorrt, which is not installed; run: pip install "onnx' in result.stderr


def test_memory_is_released(make: Make, gpu: stand_in.Gpu) -> None:
    folder = make()
    before = len(gpu.blocks)
    model = vcdeploy.load(folder, "tensorrt")
    assert len(gpu.blocks) > before
    del model
    assert len(gpu.blocks) == before


def test_a_fault_comes_with_its_fix(gpu: stand_in.Gpu) -> None:
    gpu.full = True
    with pytest.raises(
        VcdeployError, match=r"cudaMalloc: cudaErrorMemoryAllocation .*the GPU's memory is full: stop other"
    ):
        cuda.Memory(8)
    gpu.captures = False
    with pytest.raises(VcdeployError, match="`vcdeploy gpu-check` tests everything"), cuda.Stream().captured():
        pass
    gpu.devices = 0
    with pytest.raises(VcdeployError, match="an NVIDIA GPU and its driver are needed"):
        cuda.device()


def test_the_device_is_described(gpu: stand_in.Gpu) -> None:
    device = cuda.device()
    assert (device.name, device.capability, device.driver, device.runtime) == ("Stand-in GPU", "8.9", "13.1", "13.0")
    assert device.bandwidth == pytest.approx(300e9, rel=0.01)  # an L4's 6251 MHz and 192 bits
    assert cuda.fault() is None
    assert cuda.copy_bandwidth(1000, 1e-6) > 0
    gpu.devices = 0
    assert "cudaErrorNoDevice" in str(cuda.fault())
