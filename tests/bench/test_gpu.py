"""`vcdeploy bench --device cuda` on the stand-in: engines, clocks and document; and the error without a GPU."""

import gc
import json
from pathlib import Path
from typing import Any

import pytest
import stand_in
from click.testing import CliRunner

from vcdeploy import cli
from vcdeploy.bench import engines, interleave, machine, scenarios, traffic, worker


def test_without_a_gpu_it_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.uninstall(monkeypatch)
    result = CliRunner().invoke(cli.main, ["bench", "--device", "cuda"])
    assert result.exit_code == 3
    assert '"cuda-python>=12.8" and a GPU that CUDA can use; here: ' in result.stderr


class InThisProcess:
    """A worker in this process, since other processes would not have the stand-in."""

    def __init__(self, name: str, threads: int) -> None:
        self._worker = worker.Worker()

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads(json.dumps(getattr(self._worker, do)(**request)))
        except engines.Absent as reason:
            return {"absent": str(reason)}
        return answer

    def stop(self) -> None: ...

    def __enter__(self) -> "InThisProcess":
        return self

    def __exit__(self, *_: object) -> None: ...


def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime and PyTorch have no CUDA here and are left out."""
    stand_in.install(monkeypatch, tmp_path)
    monkeypatch.setattr(interleave, "Process", InThisProcess)
    monkeypatch.setattr(scenarios, "SETTLING", 3)
    monkeypatch.setattr(gc, "collect", lambda: 0)  # slow after all the other tests
    settings = ["--dim", "32", "--m", "0.25:0.5", "--rounds", "2", "--quick", "--steps", "5", "--batch", "2"]
    chosen = ["--baseline", "tensorrt gru", "--engines", "tensorrt f,tensorrt gru,onnxruntime cuda"]
    file = tmp_path / "out.json"
    result = CliRunner().invoke(cli.main, ["bench", "--device", "cuda", *settings, *chosen, "--json", str(file)])
    assert result.exit_code == 0, result.output
    document = json.loads(file.read_text())
    assert [each["name"] for each in document["engines"]] == ["tensorrt f32", "tensorrt f16", "tensorrt gru"]
    assert "CUDAExecutionProvider" in document["left_out"]["onnxruntime cuda"]
    assert document["machine"]["gpu"]["name"] == "Stand-in GPU"
    assert document["settings"]["device"] == "cuda"
    for each in document["engines"]:
        assert "Stand-in GPU" in each["runs"] and "CUDA graph" in each["runs"]
        for found in each["scenarios"].values():
            device = found["device"]
            assert 0 < device["p50"] <= device["p90"] <= device["p99"]
            assert found["bandwidth"] > 0 and found["settled"] in (True, False)
            if each["unit"] == "vcgru":
                assert 0.25 - 1e-4 <= found["m"]["min"] <= found["m"]["max"] <= 0.5 + 1e-4
    assert "GPU µs" in result.stdout and "Stand-in GPU, compute capability 8.9" in result.stdout
    assert "nvidia-smi" in result.stdout


def find(name: str) -> engines.Engine:
    return next(each for each in engines.gpu_engines("vcgru") if each.name == name)


def test_the_engines() -> None:
    names = [each.name for each in engines.gpu_engines("vcgru")]
    assert names == [
        "tensorrt f32", "tensorrt f16", "onnxruntime cuda", "onnxruntime tensorrt", "torch gru", "torch lstm",
        "onnxruntime gru", "onnxruntime lstm", "tensorrt gru", "tensorrt lstm",
    ]  # fmt: skip
    assert [each.name for each in engines.gpu_engines("vcrnn", ["f16"])][:2] == [
        "tensorrt f16",
        "onnxruntime cuda",
    ]
    assert all(each.refuses("step") is None for each in engines.gpu_engines("vcgru"))


def test_bytes_of_the_plugin_are_those_of_the_prefix() -> None:
    import numpy as np

    config = {"dim": 1024, "layers": 1, "sharpness": 1.0, "epsilon": 1e-3}
    fractions = np.full((1, 1, 1), 0.4, np.float32)
    a = int(traffic.active(fractions, config).item())
    besides = 4 * 50 * 1024 + 4 * 1024 * 3  # the output layer, the embedding, u and v
    for precision, size in (("f32", 4), ("f16", 2)):
        read = traffic.traffic(find(f"tensorrt {precision}"), config, 50, 1, fractions).bytes
        assert read == 2 * 3 * size * a * a + besides


class Warming:
    """A scenario whose chunks take the given times."""

    def __init__(self, chunks: list[int]) -> None:
        self.chunks, self.fractions, self.watch, self.device_times = chunks, list[Any](), None, list[int]()

    def run(self, amount: int) -> tuple[list[int], int]:
        return [self.chunks.pop(0) if len(self.chunks) > 1 else self.chunks[0]] * amount, 1


def test_warming_up_continues_until_three_chunks_agree() -> None:
    warming = Warming([300, 200, 150, 120, 101, 100, 100, 7])
    assert scenarios.settle(warming, 3)
    assert warming.chunks == [7]
    restless = Warming([100, 200] * 20)
    assert not scenarios.settle(restless, 1)


def test_clocks_are_read_from_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.clocks() is None
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho '1980, 2100, 6251'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert machine.clocks() == {"clocks.sm": "1980", "clocks.max.sm": "2100", "clocks.mem": "6251"}
