"""Checks of what works on this machine, what does not and why, and how to fix it.

Each check runs in its own Python process: a library that is installed but broken may raise anything on import, or crash
the process.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import vcdeploy
from vcdeploy.custom_ops import library
from vcdeploy.errors import VcdeployError
from vcdeploy.extras import EXTRAS, install_command
from vcdeploy.gpu import plugin_files
from vcdeploy.spec import UNITS

State = Literal["works", "missing", "broken"]
PATIENCE = 120.0  # seconds before a check that hangs counts as broken


class Absent(Exception):
    """Something optional is missing, which is not an error."""


@dataclass(frozen=True)
class Check:
    """One line of the report: how to check something, and how to fix it."""

    name: str
    trial: Callable[[], str]  # returns a short description of what works, or raises
    module: str = ""
    distribution: str = ""  # package that installs the module, if its name differs
    advice: str = ""  # how to fix what pip cannot

    @property
    def extra(self) -> str:
        """The extra that installs the module; empty for required modules."""
        return EXTRAS.get(self.module.partition(".")[0], "")

    @property
    def needed(self) -> bool:
        return bool(self.module) and not self.extra

    def fix(self, state: State) -> str:
        """What to type or do to fix it; empty if it works."""
        if state == "works":
            return ""
        if self.advice:
            return self.advice
        if state == "missing" and self.extra:
            return install_command(self.module.partition(".")[0])
        return f"pip install --force-reinstall {self.distribution or self.module}"


@dataclass(frozen=True)
class Finding:
    """Result of a check; its fields are the keys of an object of `vcdeploy doctor --json`."""

    name: str
    extra: str
    needed: bool
    state: State
    detail: str
    fix: str


def _python() -> str:
    return f"{platform.python_version()}, {sys.executable}"


def _package() -> str:
    return f"{vcdeploy.__version__}, {Path(vcdeploy.__file__).parent}"


def _native() -> str:
    from vcdeploy._native import cpu_features

    return " ".join(name for name, present in cpu_features().items() if present) or "no vector instructions"


def _version(module: str) -> Callable[[], str]:
    return lambda: str(importlib.import_module(module).__version__)


def _torch() -> str:
    import torch

    (torch.ones(2, 2) @ torch.ones(2, 2)).sum().item()
    return f"{torch.__version__}, {'CUDA' if torch.cuda.is_available() else 'CPU only'}"


def _training() -> str:
    from vcdeploy.kernels import native

    return native.trains()


def _verovio() -> str:
    import verovio

    return str(verovio.toolkit().getVersion())


def _onnxruntime() -> str:
    import onnxruntime

    providers = [name.removesuffix("ExecutionProvider") for name in onnxruntime.get_available_providers()]
    return f"{onnxruntime.__version__}, {' '.join(providers)}"


def _custom_op() -> str:
    """Run one step of a node without a function body, which only the custom op can run."""
    path = library()
    if path is None:
        raise Absent("library not found: the onnxruntime backend runs function bodies, which compute densely")
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper

    from vcdeploy.format.steps import DOMAIN, op_attributes

    shapes = {"X": [1, 1, 1], "H0": [1, 1], "U": [1, 1], "V": [1, 1], "u": [1], "v": [1], "b": [1]}
    names, outputs = UNITS["vcrnn"].inputs, UNITS["vcrnn"].outputs
    graph = helper.make_graph(
        [helper.make_node("VCRNN", names, outputs, domain=DOMAIN, **op_attributes(1.0, 1e-3))],
        "trial",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in names],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(path))
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    session.run(None, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    return str(path)


def _tensorrt() -> str:
    import tensorrt

    return f"{tensorrt.__version__}, imported only: no engine was run on a GPU"


def _plugin() -> str:
    """Open the plugin's library; fails if a library it links against is missing."""
    path = plugin_files.library()
    if path is None:
        raise Absent("not built: exports for TensorRT get no engine")
    opened = ctypes.CDLL(str(path))
    for symbol in ("getCreators", "setLoggerFinder"):
        getattr(opened, symbol)  # AttributeError if it is another library
    return f"{path}, opened only: nothing was run on a GPU"


def _toolchain() -> str:
    from vcdeploy.gpu.plugin_build import find_toolchain

    try:
        tools = find_toolchain()
    except VcdeployError as error:
        raise Absent(" ".join(str(error).split())) from error
    return f"nvcc {tools.nvcc}, headers {tools.headers}"


def _cuda_device() -> str:
    library = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(library)
    except OSError as error:
        raise Absent(f"no NVIDIA driver: {library} is not found") from error
    count, name = ctypes.c_int(), ctypes.create_string_buffer(128)
    for call, arguments in (
        (driver.cuInit, (0,)),
        (driver.cuDeviceGetCount, (ctypes.byref(count),)),
        (driver.cuDeviceGetName, (name, len(name), 0)),
    ):
        if status := call(*arguments):
            raise Absent(f"the NVIDIA driver finds no GPU: {call.__name__} returned {status}")
    return f"{name.value.decode()}, {count.value} in total"


def _corpora() -> str:
    from vcdeploy.corpora.catalogue import data_folder

    folder = data_folder()
    if not folder.exists():
        raise Absent(f"{folder} does not exist; the first download creates it")
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder")
    return str(folder)


def _rebuild() -> str:
    checkout = Path(vcdeploy.__file__).parents[1]
    if (checkout / "CMakeLists.txt").exists():
        return f"make -B -C {checkout} setup"
    return "install vcdeploy again from its source folder or wheel: pip install --force-reinstall --no-deps PATH"


CHECKS = (
    Check("Python", _python),
    Check("vcdeploy", _package, "vcdeploy", advice=_rebuild()),
    Check("native module", _native, "vcdeploy._native", advice=_rebuild()),
    Check("NumPy", _version("numpy"), "numpy"),
    Check("ONNX", _version("onnx"), "onnx"),
    Check("PyTorch", _torch, "torch"),
    Check("training", _training, "torch"),
    Check("onnxscript", _version("onnxscript"), "onnxscript"),
    Check("safetensors", _version("safetensors"), "safetensors"),
    Check("TensorBoard", _version("tensorboard"), "tensorboard"),
    Check("matplotlib", _version("matplotlib"), "matplotlib"),
    Check("music21", _version("music21"), "music21"),
    Check("Verovio", _verovio, "verovio"),
    Check("Starlette", _version("starlette"), "starlette"),
    Check("uvicorn", _version("uvicorn"), "uvicorn"),
    Check("ONNX Runtime", _onnxruntime, "onnxruntime"),
    Check("ONNX Runtime op", _custom_op, "onnxruntime", advice="" if library() else _rebuild()),
    Check("TensorRT", _tensorrt, "tensorrt"),
    Check("CUDA for Python", _version("cuda.bindings"), "cuda.bindings", "cuda-python"),
    Check("TensorRT plugin", _plugin, advice="vcdeploy plugin build"),
    Check("plugin's tools", _toolchain, advice="install what is named above; only `vcdeploy plugin build` needs it"),
    Check("CUDA device", _cuda_device, advice="an NVIDIA GPU and its driver are needed"),
    Check("corpora folder", _corpora, advice="export VCDEPLOY_DATA=<a folder that holds corpora>"),
)


def try_here(check: Check) -> tuple[State, str]:
    """Run one check in this process."""
    try:
        return "works", check.trial()
    except Absent as error:
        return "missing", str(error)
    except ModuleNotFoundError as error:
        # If one of its dependencies is missing instead, the module is installed but broken.
        if error.name and f"{check.module}.".startswith(f"{error.name}."):
            return "missing", "not installed"
        return "broken", _reason(error)
    except Exception as error:
        return "broken", _reason(error)


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def try_apart(number: int) -> Finding:
    """Run CHECKS[number] in a separate Python process with the module path of this one."""
    check = CHECKS[number]
    program = (
        "import sys; sys.path[:] = sys.argv[1:]; "
        "import json; from vcdeploy.checks import CHECKS, try_here; "
        f"print('\\n' + json.dumps(try_here(CHECKS[{number}])))"
    )
    state: State = "broken"
    try:
        child = subprocess.run(
            [sys.executable, "-c", program, *sys.path], capture_output=True, text=True, timeout=PATIENCE
        )
        if child.returncode == 0:
            state, detail = json.loads(child.stdout.splitlines()[-1])
        elif child.returncode < 0:
            detail = f"it crashed Python: {signal.Signals(-child.returncode).name}"
        else:
            detail = f"it ended Python with exit code {child.returncode}"
    except subprocess.TimeoutExpired:
        detail = f"no answer in {PATIENCE:.0f} s"
    return Finding(check.name, check.extra, check.needed, state, detail, check.fix(state))


def find_all() -> list[Finding]:
    """Run all checks, several at a time."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(try_apart, range(len(CHECKS))))
