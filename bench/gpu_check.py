"""Check everything that needs a GPU: the build, every path vs PyTorch, CUDA graphs, compute-sanitizer, speed.

The plugin chooses among its kernels itself; VCDEPLOY_TENSORRT_PATH forces a path, so that each is checked. The variable
is read when a plugin is created, and a trial may crash, so each trial has its own process. A path that this GPU does
not support is skipped, not failed. The report is written after every step: stopping early loses nothing.

Not run on a GPU yet: the tests run it on a stand-in.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vcdeploy import extras
from vcdeploy.bench import machine
from vcdeploy.errors import VcdeployError
from vcdeploy.gpu import plugin_build, plugin_files
from vcdeploy.spec import TENSORRT_PRECISIONS, VARIABLE_UNITS
from vcdeploy.versions import versions

PATHS = ("block", "cluster", "grid", "grid-off-chip", "grid-together")
AUTO = "auto"  # the path that the plugin chooses
SIZES = (7, 97, 256, 1024)  # dimensions: odd ones, and those each path is made for
QUICK_SIZES = (97,)
M_VALUES = ("0.2", "0.4", "0.6", "0.8", "1.0")
QUICK_M_VALUES = ("0.4",)
TOOLS = ("memcheck", "racecheck", "synccheck")  # of compute-sanitizer
KERNELS = "kns=vcdeploy"  # filter by name: only our kernels, since TensorRT's own take hours under the sanitizer
PATIENCE = 1800.0  # seconds a trial may take
VARIABLE = "VCDEPLOY_TENSORRT_PATH"


@dataclass
class Step:
    """One line of the report. state: passed, failed or skipped."""

    name: str
    state: str
    detail: str = ""
    data: dict[str, Any] = field(default_factory=dict)


def missing() -> list[str]:
    """The missing requirements, each with how to install it."""
    from vcdeploy.gpu import cuda

    found = []
    if (fault := cuda.fault()) is not None:
        found.append(f"a GPU: {fault}")
    for module in ("tensorrt", "torch"):
        try:
            extras.require(module, for_="the check")
        except VcdeployError as error:
            found.append(str(error))
    if plugin_files.library() is None:
        try:
            plugin_build.find_toolchain()
        except VcdeployError as error:
            found.append(str(error).replace("\n", "\n  "))
    return found


def plan(quick: bool) -> list[str]:
    """The steps of a check, as text."""
    sizes = ", ".join(map(str, QUICK_SIZES if quick else SIZES))
    return [
        "build the plugin, if it is not built yet",
        f"build engines of {', '.join(VARIABLE_UNITS)} in {', '.join(TENSORRT_PRECISIONS)} with {sizes} dimensions",
        f"compare every step of them with PyTorch, on the paths {', '.join((AUTO, *PATHS))}",
        "capture a CUDA graph of the step, and compare the generated text with the native kernels'",
        "compare ONNX Runtime's CUDA and TensorRT providers with PyTorch",
        f"run compute-sanitizer ({', '.join(TOOLS)}) on every path, if it is installed",
        f"measure the speed at m = {', '.join(QUICK_M_VALUES if quick else M_VALUES)}",
    ]


def run(quick: bool, tell: Callable[[Step, dict[str, Any]], None]) -> dict[str, Any]:
    """Run all steps and return the report; tell gets each step as it ends, and the report so far.

    A failed step does not stop the others.
    """
    report: dict[str, Any] = {
        "passed": False,
        "finished": False,
        "machine": {**machine.describe(), "gpu": machine.gpu()},
        "versions": versions(machine.PACKAGES),
        "steps": [],
    }

    def note(name: str, act: Callable[..., Step], *given: Any, **case: Any) -> Step:
        try:
            step = act(name, *given, **case)
        except Exception as error:  # possibly a bug of the check itself; the other steps still run
            step = Step(name, "failed", f"{type(error).__name__}: {error}")
        report["steps"].append(asdict(step))
        tell(step, report)
        return step

    if note("plugin", _build).state == "passed":
        for dim in QUICK_SIZES if quick else SIZES:
            for unit in VARIABLE_UNITS:
                for precision in TENSORRT_PRECISIONS:
                    for path in (AUTO, *PATHS):
                        case = {"unit": unit, "dim": dim, "precision": precision, "path": path}
                        note(f"tensorrt {unit}-{dim} {precision} {path}", _trial, "tensorrt", **case)
        for provider in ("cuda", "tensorrt"):
            case = {"unit": "vcgru", "dim": 97, "precision": "f32", "path": AUTO}
            note(f"onnxruntime:{provider} vcgru-97 f32", _trial, f"onnxruntime:{provider}", **case)
        for tool in TOOLS:
            for path in PATHS:
                note(f"compute-sanitizer {tool} {path}", _sanitize, tool, path)
        for m in QUICK_M_VALUES if quick else M_VALUES:
            note(f"bench m = {m}", _measure, m, quick)
    report["passed"] = all(step["state"] != "failed" for step in report["steps"])
    report["finished"] = True
    return report


def _build(name: str) -> Step:
    if (found := plugin_files.library()) is not None:
        return Step(name, "passed", f"found {found.name}")
    try:
        return Step(name, "passed", f"built {plugin_build.build(None, lambda _: None).name}")
    except VcdeployError as error:
        return Step(name, "failed", str(error))


def _trial(name: str, backend: str, **case: Any) -> Step:
    """Run one case in its own process."""
    command = [sys.executable, "-m", "vcdeploy.bench.gpu_trial", json.dumps({"backend": backend, **case})]
    # No TF32: float32 products are computed in float32 everywhere.
    environment = {**os.environ, VARIABLE: case["path"], "NVIDIA_TF32_OVERRIDE": "0"}
    code, out, err = _run(command, environment)
    lines = out.splitlines()
    if code == 0 and lines:
        answer = json.loads(lines[-1])
        return Step(name, answer["state"], answer["detail"], answer["data"])
    return Step(name, "failed", f"ended with {code}: {_end(err)}")


def _sanitize(name: str, tool: str, path: str) -> Step:
    """Run a trial under compute-sanitizer, whose exit code decides; it is slow, so that a trial may time out."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        how = "it comes with the CUDA toolkit, or run: pip install nvidia-cuda-sanitizer-api"
        return Step(name, "skipped", f"compute-sanitizer is not on the PATH: {how}")
    case = {"backend": "tensorrt", "unit": "vcgru", "dim": 97, "precision": "f32", "path": path}
    options = ["--tool", tool, "--kernel-name", KERNELS, "--error-exitcode", "9"]
    command = [program, *options, sys.executable, "-m", "vcdeploy.bench.gpu_trial", json.dumps(case)]
    code, out, err = _run(command, {**os.environ, VARIABLE: path})
    if code != 0:
        return Step(name, "failed", f"ended with {code}: {_end(out + err)}")
    answers = [line for line in out.splitlines() if line.startswith('{"state"')]  # among lines of the sanitizer
    if not answers:
        return Step(name, "failed", f"the trial printed no result: {_end(out + err)}")
    answer = json.loads(answers[-1])
    return Step(name, answer["state"], answer["detail"] if answer["state"] != "passed" else "", answer["data"])


def _measure(name: str, m: str, quick: bool) -> Step:
    with tempfile.TemporaryDirectory(prefix="vcdeploy-gpu-check-") as folder:
        file = Path(folder) / "bench.json"
        options = ["--device", "cuda", "--m", m, "--json", str(file), *(["--quick"] if quick else [])]
        code, _, err = _run([sys.executable, "-m", "vcdeploy", "bench", *options], dict(os.environ))
        if code != 0:
            return Step(name, "failed", f"ended with {code}: {_end(err)}")
        document = json.loads(file.read_text())
    ratios = (
        f"{each['name']} {each['scenarios']['step']['ratio']:.1f}"
        for each in document["engines"]
        if "step" in each["scenarios"]
    )
    return Step(name, "passed", f"speedup vs {document['baseline']}: {', '.join(ratios)}", document)


def _run(command: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    except subprocess.TimeoutExpired:
        return -1, "", f"timed out after {PATIENCE:.0f} s: a kernel may hang"
    return done.returncode, done.stdout, done.stderr


def _end(said: str) -> str:
    return " | ".join(said.strip().splitlines()[-3:]) or "no output"


def text(report: dict[str, Any]) -> str:
    """The report as Markdown, to be attached to an issue; nothing in it identifies the machine."""
    gpu = report["machine"]["gpu"]
    lines = [
        "# vcdeploy gpu-check",
        "",
        f"{gpu['name']}, compute capability {gpu['capability']}, CUDA {gpu['runtime']}, driver of {gpu['driver']}",
        ", ".join(f"{name} {version}" for name, version in report["versions"].items()),
        *([] if report["finished"] else ["", "**This check did not finish.**"]),
        "",
        "| | | |",
        "|---|---|---|",
    ]
    for step in report["steps"]:
        detail = step["detail"].replace("|", "/").replace("\n", " ")
        lines.append(f"| {step['name']} | {step['state']} | {detail} |")
    for step in report["steps"]:
        if "engines" in step["data"]:
            lines += ["", f"## {step['name']}", "", *_speeds(step["data"])]
    return "\n".join(lines) + "\n"


def _speeds(document: dict[str, Any]) -> list[str]:
    """The main figures of a benchmark; the others are in the JSON file."""
    model = document["model"]
    lines = [
        f"{model['unit']}-{model['dim']}, µs/step; speedup: vs {document['baseline']};",
        "bandwidth: as a fraction of that of a copy of as many bytes.",
        "",
        "| | | m | wall p50 | p90 | p99 | GPU p50 | p99 | speedup | MB/step | bandwidth |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in document["engines"]:
        for name, found in each["scenarios"].items():
            times = [f"{found[key]:.1f}" for key in ("p50", "p90", "p99")]
            on_gpu = [f"{found['device'][key]:.1f}" for key in ("p50", "p99")]
            ratio = f"{found['ratio']:.2f}" if "ratio" in found else "–"
            used = "–" if found["bandwidth_fraction"] is None else f"{found['bandwidth_fraction']:.0%}"
            size = f"{found['bytes_per_step'] / 1e6:.3g}"
            cells = [each["name"], name, f"{found['m']['mean']:.2f}", *times, *on_gpu, ratio, size, used]
            lines.append(f"| {' | '.join(cells)} |")
    lines += [f"\nleft out: {name}: {reason}" for name, reason in document["left_out"].items()]
    return lines
