"""Everything that needs a GPU, tried in one go: the build, every path against PyTorch, graphs, the sanitizer, speed.

The plugin chooses among three kinds of kernels by itself; VCDEPLOY_TENSORRT_PATH forces one, so that each is checked.
It is read when a plugin is created, and a trial may crash: so each has a process of its own. What a path can't do on
this GPU is told from what it does wrong.

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

from vcdeploy import extras, plugin_build, tensorrt_plugin
from vcdeploy.bench import machine
from vcdeploy.errors import VcdeployError
from vcdeploy.versions import versions

UNITS, PRECISIONS, PATHS = ("vcrnn", "vcgru", "vclstm"), ("f32", "f16"), ("auto", "block", "cluster", "grid")
SIZES = (7, 97, 256, 1024)  # dimensions: odd ones, and those that each path is for
QUICK_SIZES = (97,)
SHARES = ("0.2", "0.4", "0.6", "0.8", "1.0")
QUICK_SHARES = ("0.4",)
TOOLS = ("memcheck", "racecheck", "synccheck")  # of compute-sanitizer
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
    """What is not here and is needed, each with the way to get it."""
    from vcdeploy.runtime import cuda

    found = []
    if (fault := cuda.fault()) is not None:
        found.append(f"a GPU: {fault}")
    for module in ("tensorrt", "torch"):
        try:
            extras.require(module, for_="the check")
        except VcdeployError as error:
            found.append(str(error))
    if tensorrt_plugin.library() is None:
        try:
            plugin_build.find_toolchain()
        except VcdeployError as error:
            found.append(str(error).replace("\n", "\n  "))
    return found


def plan(quick: bool) -> list[str]:
    """What a check does, in words."""
    sizes = ", ".join(map(str, QUICK_SIZES if quick else SIZES))
    return [
        "build the plugin, where it is not built yet",
        f"build engines of {', '.join(UNITS)} in {', '.join(PRECISIONS)} with {sizes} dimensions",
        f"hold every step of them to PyTorch, on the paths {', '.join(PATHS)}",
        "capture a CUDA graph of the step, and compare its text with the native kernels'",
        "hold ONNX Runtime's CUDA and TensorRT providers to PyTorch",
        f"run compute-sanitizer ({', '.join(TOOLS)}), where it is installed",
        f"measure the speed at m = {', '.join(QUICK_SHARES if quick else SHARES)}",
    ]


def run(quick: bool, tell: Callable[[Step], None]) -> dict[str, Any]:
    """The report of all of it; tell gets every step as it ends. One that fails does not stop the others."""
    steps: list[Step] = []

    def note(step: Step) -> None:
        steps.append(step)
        tell(step)

    note(_build())
    if steps[0].state == "passed":
        for dim in QUICK_SIZES if quick else SIZES:
            for unit in UNITS:
                for precision in PRECISIONS:
                    for path in PATHS:
                        note(_trial("tensorrt", unit=unit, dim=dim, precision=precision, path=path))
        for provider in ("cuda", "tensorrt"):
            note(_trial(f"onnxruntime:{provider}", unit="vcgru", dim=97, precision="f32", path="auto"))
        for tool in TOOLS:
            note(_sanitize(tool))
        for share in QUICK_SHARES if quick else SHARES:
            note(_measure(share, quick))
    return {
        "passed": all(step.state != "failed" for step in steps),
        "machine": {**machine.describe(), "gpu": machine.gpu()},
        "versions": versions(machine.PACKAGES),
        "steps": [asdict(step) for step in steps],
    }


def _build() -> Step:
    if (found := tensorrt_plugin.library()) is not None:
        return Step("plugin", "passed", f"{found.name} is here")
    try:
        return Step("plugin", "passed", f"built {plugin_build.build(None, lambda _: None).name}")
    except VcdeployError as error:
        return Step("plugin", "failed", str(error))


def _trial(backend: str, **case: Any) -> Step:
    """One case in a process of its own."""
    name = f"{backend} {case['unit']}-{case['dim']} {case['precision']} {case['path']}"
    command = [sys.executable, "-m", "vcdeploy.bench.gpu_trial", json.dumps({"backend": backend, **case})]
    # Products of float32 are to be float32's wherever they are made.
    environment = {**os.environ, VARIABLE: case["path"], "NVIDIA_TF32_OVERRIDE": "0"}
    code, out, err = _run(command, environment)
    lines = out.splitlines()
    if code == 0 and lines:
        answer = json.loads(lines[-1])
        return Step(name, answer["state"], answer["detail"], answer["data"])
    return Step(name, "failed", f"ended with {code}: {_end(err)}")


def _sanitize(tool: str) -> Step:
    name, program = f"compute-sanitizer {tool}", shutil.which("compute-sanitizer")
    if program is None:
        return Step(name, "skipped", "compute-sanitizer is not installed: it comes with the CUDA toolkit")
    case = {"backend": "tensorrt", "unit": "vcgru", "dim": 97, "precision": "f32", "path": "auto"}
    command = [program, "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "vcdeploy.bench.gpu_trial"]
    code, out, err = _run([*command, json.dumps(case)], dict(os.environ))
    return Step(name, "passed" if code == 0 else "failed", "" if code == 0 else f"ended with {code}: {_end(out + err)}")


def _measure(share: str, quick: bool) -> Step:
    with tempfile.TemporaryDirectory(prefix="vcdeploy-gpu-check-") as folder:
        file = Path(folder) / "bench.json"
        options = ["--device", "cuda", "--share", share, "--json", str(file), *(["--quick"] if quick else [])]
        code, _, err = _run([sys.executable, "-m", "vcdeploy", "bench", *options], dict(os.environ))
        if code != 0:
            return Step(f"bench m = {share}", "failed", f"ended with {code}: {_end(err)}")
        document = json.loads(file.read_text())
    ratios = (
        f"{each['name']} {each['scenarios']['step']['ratio']:.1f}"
        for each in document["contenders"]
        if "step" in each["scenarios"]
    )
    return Step(f"bench m = {share}", "passed", f"times of {document['baseline']}: {', '.join(ratios)}", document)


def _run(command: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    except subprocess.TimeoutExpired:
        return -1, "", f"no end in {PATIENCE:.0f} s: a kernel may wait for ever"
    return done.returncode, done.stdout, done.stderr


def _end(said: str) -> str:
    return " | ".join(said.strip().splitlines()[-3:]) or "it said nothing"


def text(report: dict[str, Any]) -> str:
    """The report to be read, and attached to an issue; without anything that tells one machine from its like."""
    gpu = report["machine"]["gpu"]
    lines = [
        "# vcdeploy gpu-check",
        "",
        f"{gpu['name']}, compute capability {gpu['capability']}, CUDA {gpu['runtime']}, driver of {gpu['driver']}",
        ", ".join(f"{name} {version}" for name, version in report["versions"].items()),
        "",
        "| | | |",
        "|---|---|---|",
    ]
    for step in report["steps"]:
        detail = step["detail"].replace("|", "/").replace("\n", " ")
        lines.append(f"| {step['name']} | {step['state']} | {detail} |")
    return "\n".join(lines) + "\n"
