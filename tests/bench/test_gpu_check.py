"""`vcdeploy gpu-check` on the stand-in: passing, failing and skipped steps, and the message without a GPU."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import stand_in
from click.testing import CliRunner, Result

from vcdeploy import cli
from vcdeploy.bench import gpu_check, gpu_trial
from vcdeploy.errors import VcdeployError
from vcdeploy.gpu import plugin_files
from vcdeploy.spec import TENSORRT_PRECISIONS, VARIABLE_UNITS

FIGURES = {
    "p50": 1.25, "p90": 2, "p99": 3, "device": {"p50": 1, "p90": 1, "p99": 1.5}, "ratio": 3.14, "m": {"mean": 0.4},
    "bytes_per_step": 4.17e6, "bandwidth_fraction": 0.5,
}  # fmt: skip
BENCH = {
    "baseline": "torch gru",
    "model": {"unit": "vcgru", "dim": 1024},
    "engines": [{"name": "tensorrt f32", "scenarios": {"step": FIGURES}}],
    "left_out": {"onnxruntime gru": "it is not here"},
}


def check(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli.main, ["gpu-check", "-o", str(folder / "report.md"), *words])


def test_without_a_gpu_it_lists_its_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in.uninstall(monkeypatch)
    monkeypatch.setattr(plugin_files, "library", lambda name="": None)
    result = check(tmp_path)
    assert result.exit_code == 3
    assert "on a machine with a GPU this would:" in result.stdout
    assert "compare every step of them with PyTorch" in result.stdout and "compute-sanitizer" in result.stdout
    assert "gpu-check can't run here; missing:" in result.stderr
    assert "a GPU: " in result.stderr and "needs tensorrt, which is not installed; run: pip install" in result.stderr
    assert not (tmp_path / "report.md").exists()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Install the stand-in and run trials in this process; returns the list of started commands."""
    stand_in.install(monkeypatch, tmp_path)
    started: list[list[str]] = []

    def run(command: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
        started.append(command)
        if "vcdeploy.bench.gpu_trial" in command:
            case = json.loads(command[-1])
            assert environment["VCDEPLOY_TENSORRT_PATH"] == case["path"]
            return 0, "\n" + json.dumps(gpu_trial.main(case)), ""
        Path(command[command.index("--json") + 1]).write_text(json.dumps(BENCH))
        return 0, "", ""

    monkeypatch.setattr(gpu_check, "_run", run)
    monkeypatch.setattr(gpu_check, "QUICK_SIZES", (7,))
    return started


def test_a_complete_check(here: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check.shutil, "which", lambda name: f"/opt/{name}")
    result = check(tmp_path, "--quick")
    report = json.loads((tmp_path / "report.json").read_text())
    states = {step["name"]: step["state"] for step in report["steps"]}
    for path in ("auto", *gpu_check.PATHS):
        for unit in VARIABLE_UNITS:
            for precision in TENSORRT_PRECISIONS:
                assert states[f"tensorrt {unit}-7 {precision} {path}"] == "passed"
    for path in gpu_check.PATHS:
        for tool in gpu_check.TOOLS:
            assert states[f"compute-sanitizer {tool} {path}"] == "passed"
    # ONNX Runtime has no GPU provider here: that step fails, and the others still run.
    assert states["onnxruntime:cuda vcgru-97 f32"] == "failed" and states["bench m = 0.4"] == "passed"
    sanitized = [command for command in here if "--tool" in command]
    assert sanitized[0][:5] == ["/opt/compute-sanitizer", "--tool", "memcheck", "--kernel-name", "kns=vcdeploy"]
    assert result.exit_code == 1 and not report["passed"] and report["finished"]
    assert "2 of 55 steps failed: please attach" in result.stderr
    text = (tmp_path / "report.md").read_text()
    assert "Stand-in GPU, compute capability 8.9" in text and "did not finish" not in text
    assert "| bench m = 0.4 | passed | speedup vs torch gru: tensorrt f32 3.1 |" in text
    assert "| tensorrt f32 | step | 0.40 | 1.2 | 2.0 | 3.0 | 1.0 | 1.5 | 3.14 | 4.17 | 50% |" in text
    assert "left out: onnxruntime gru: it is not here" in text
    assert report["machine"]["gpu"]["name"] == "Stand-in GPU"


def test_a_fault_of_the_check_itself_stops_nothing(
    here: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = gpu_check._run

    def broken(command: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
        return (0, "no JSON", "") if "vcdeploy.bench.gpu_trial" in command else run(command, environment)

    monkeypatch.setattr(gpu_check, "_run", broken)
    assert check(tmp_path, "--quick").exit_code == 1
    states = {step["name"]: step["state"] for step in json.loads((tmp_path / "report.json").read_text())["steps"]}
    assert states["tensorrt vcrnn-7 f32 block"] == "failed" and states["bench m = 0.4"] == "passed"
    assert "JSONDecodeError" in (tmp_path / "report.md").read_text()


def test_a_stopped_check_keeps_its_results(
    here: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = gpu_check._run

    def stopped(command: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
        if len(here) == 3:
            raise KeyboardInterrupt
        return run(command, environment)

    monkeypatch.setattr(gpu_check, "_run", stopped)
    assert check(tmp_path, "--quick").exit_code != 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert len(report["steps"]) == 4 and not report["finished"] and not report["passed"]
    assert "did not finish" in (tmp_path / "report.md").read_text()


def test_a_plugin_that_does_not_compile_is_in_the_report(
    here: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise VcdeployError("the plugin did not compile")

    monkeypatch.setattr(gpu_check, "missing", list)
    monkeypatch.setattr(plugin_files, "library", lambda name="": None)
    monkeypatch.setattr(gpu_check.plugin_build, "build", refuse)
    assert check(tmp_path).exit_code == 1
    assert "| plugin | failed | the plugin did not compile |" in (tmp_path / "report.md").read_text()
    assert not here


def test_a_report_that_can_not_be_written(here: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = check(tmp_path / "file", "--quick")
    assert result.exit_code == 1 and "could not write" in result.stderr
    result = CliRunner().invoke(cli.main, ["gpu-check", "-o", "figures.json"])
    assert result.exit_code == 2 and "give the report another name, such as figures.md" in result.stderr


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        ((9, "========= Race reported", ""), "failed", "ended with 9: ========= Race reported"),
        ((0, "========= ERROR SUMMARY: 0 errors", ""), "failed", "the trial printed no result"),
        ((0, '{"state": "skipped", "detail": "no", "data": {}}\n========= 0 errors', ""), "skipped", "no"),
    ],
)
def test_the_sanitizers_word_counts(
    answer: tuple[int, str, str], state: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check.shutil, "which", lambda name: name)
    monkeypatch.setattr(gpu_check, "_run", lambda *_: answer)
    step = gpu_check._sanitize("racecheck", "racecheck", "grid")
    assert step.state == state and said in step.detail


def trial(**change: Any) -> dict[str, Any]:
    case = {"backend": "tensorrt", "unit": "vcgru", "dim": 7, "precision": "f32", "path": "auto"}
    return gpu_trial.main({**case, **change})


def test_wrong_numbers_fail(here: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    network = stand_in._network

    def wrong(content: bytes) -> Any:
        model = network(content)
        run = model.run
        model.run = lambda tokens, state: tuple(each + 1e-3 for each in run(tokens, state))
        return model

    monkeypatch.setattr(stand_in, "_network", wrong)
    answer = trial()
    assert answer["state"] == "failed" and "logits against PyTorch" in answer["detail"]


def test_no_graph_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in.install(monkeypatch, tmp_path).captures = False
    assert trial()["state"] == "failed"


@pytest.mark.parametrize(("path", "state"), [("cluster", "skipped"), ("auto", "failed")])
def test_a_path_this_gpu_lacks_is_skipped(
    path: str, state: str, here: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise VcdeployError("TensorRT can't build the engine: the path cluster needs compute capability 9 or later")

    monkeypatch.setattr(gpu_trial, "_engine", refuse)
    assert trial(path=path)["state"] == state


def test_the_plugin_has_the_same_message() -> None:
    """These messages distinguish an unsupported path from a failure."""
    source = (Path(__file__).parents[2] / "plugins" / "tensorrt" / "plan.h").read_text()
    for path in ("block", "cluster", "grid"):
        assert f'"the path {path} needs' in source


def test_a_trial_that_crashes_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any, **__: Any) -> Any:
        return subprocess.CompletedProcess([], -11, "", "CUDA error: illegal address\n")

    monkeypatch.setattr(subprocess, "run", crash)
    step = gpu_check._trial("a trial", "tensorrt", unit="vcgru", dim=7, precision="f32", path="grid")
    assert (step.state, step.detail) == ("failed", "ended with -11: CUDA error: illegal address")


def test_a_trial_that_hangs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: Any, **__: Any) -> Any:
        raise subprocess.TimeoutExpired("trial", 1)

    monkeypatch.setattr(subprocess, "run", hang)
    step = gpu_check._trial("a trial", "tensorrt", unit="vcgru", dim=7, precision="f32", path="grid")
    assert step.state == "failed" and "a kernel may hang" in step.detail
