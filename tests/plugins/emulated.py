"""The CUDA kernels of plugins/tensorrt under plugins/emulator: built once for the tests, called through ctypes."""

import ctypes
import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import Case
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
PATHS = ("block", "cluster", "grid")
# of U and V; of all else; of sums, the scheduler and the state within a call
TYPES: dict[str, tuple[type[np.floating[Any]], type[np.floating[Any]]]] = {
    "f32": (np.float32, np.float32),
    "half-weights": (np.float16, np.float32),
    "half": (np.float16, np.float16),
    "f64": (np.float64, np.float64),
}
SCOPES = ("block", "cluster", "grid")
BARRIERS = ("started", "partials", "masked", "reset", "gathered", "fresh", "alone", "next")


class EmulatorFault(Exception):
    """The kernel did what on a GPU would hang or be undefined."""


@cache
def library() -> Any:
    """The emulator, compiled where sources have changed since the last time."""
    cmake, ninja, compiler = (shutil.which(each) for each in ("cmake", "ninja", os.environ.get("CXX", "c++")))
    if not (cmake and ninja and compiler):
        pytest.skip("needs cmake, ninja and a C++ compiler to build the emulator")
    build = ROOT / "build" / "emulator"
    configure = [cmake, "-S", str(ROOT / "plugins" / "emulator"), "-B", str(build), "-G", "Ninja"]
    for command in (configure, [cmake, "--build", str(build)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return ctypes.CDLL(str(build / "libvcdeploy_emulator.so"))


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched. teams: of members blocks each (grid; else one a sequence)."""

    path: str = "block"
    types: str = "f32"
    threads: int = 64
    members: int = 3
    teams: int = 0  # 0: one a sequence
    alone: int = 0  # grid: with at most so many dimensions one block goes on by itself
    wide: bool = True  # 16 bytes of weights at a time where D allows it
    on_chip: bool = True  # grid: the vectors in shared memory, or in the workspace
    seed: int = 1
    without: tuple[str, str] | None = None  # a barrier to leave out: scope and name


def emulate(
    case: Case, inputs: list[NDArray[Any]], launch: Launch, epsilon: float
) -> tuple[list[NDArray[Any]], set[tuple[str, str]]]:
    """The op's outputs (all NaN before the kernel runs), and the barriers that were passed."""
    weight, activation = TYPES[launch.types]
    X, H0, U, V, u, v, b, *cell = (
        np.ascontiguousarray(each, weight if k in (2, 3) else activation) for k, each in enumerate(inputs)
    )
    T, B, D = X.shape
    outputs = [np.full(shape, np.nan, activation) for shape in ((T, B, D), (B, D), (T, B), *(c.shape for c in cell))]
    tensors = [X, H0, U, V, u, v, b, *cell, *outputs]
    addresses: list[int | None] = [each.ctypes.data for each in tensors]
    if not cell:  # neither C0 nor C
        addresses = [*addresses[:7], None, *addresses[7:], None]
    pointers = (ctypes.c_void_p * 12)(*addresses)
    scope, name = launch.without or ("block", None)
    barrier = -1 if name is None else BARRIERS.index(name)
    options = (launch.threads, launch.members, launch.teams or B, launch.alone, launch.wide, launch.on_chip)
    passed, message = (ctypes.c_int * 32)(), ctypes.create_string_buffer(300)
    count = library().vcdeploy_emulate(
        case.unit.encode(),
        launch.path.encode(),
        launch.types.encode(),
        (ctypes.c_int * 3)(T, B, D),
        (ctypes.c_double * 2)(case.sharpness, epsilon),
        pointers,
        (ctypes.c_int * 8)(*options, SCOPES.index(scope), barrier),
        ctypes.c_ulonglong(launch.seed),
        passed,
        len(passed),
        message,
        len(message),
    )
    if count < 0:
        raise EmulatorFault(message.value.decode())
    return outputs, {(SCOPES[each // 100], BARRIERS[each % 100]) for each in passed[:count]}


@dataclass(frozen=True)
class Plan:
    """What plugins/tensorrt/plan.h chose."""

    path: str
    blocks: int
    members: int
    alone: int
    on_chip: bool
    shared_bytes: int
    workspace_bytes: int


@dataclass(frozen=True)
class Gpu:
    """As far as a plan depends on it."""

    major: int
    multiprocessors: int
    shared_bytes: int
    cooperative: bool = True


def plan(gates: int, weight_bytes: int, B: int, D: int, gpu: Gpu, wanted: str = "automatic") -> Plan:
    device = (ctypes.c_int * 4)(gpu.major, gpu.multiprocessors, gpu.shared_bytes, gpu.cooperative)
    found, message = (ctypes.c_longlong * 7)(), ctypes.create_string_buffer(300)
    paths = ("automatic", *PATHS)
    if library().vcdeploy_plan(gates, weight_bytes, B, D, device, paths.index(wanted), found, message, len(message)):
        raise ValueError(message.value.decode())
    path, blocks, members, alone, on_chip, shared_bytes, workspace_bytes = found
    return Plan(paths[path], blocks, members, alone, bool(on_chip), shared_bytes, workspace_bytes)
