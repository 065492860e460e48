"""The CUDA kernels of plugins/tensorrt in the emulator (plugins/emulator), built once and called through ctypes."""

import ctypes
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import GATES, Case
from headers import need_tensorrt
from numpy.typing import NDArray

from vcdeploy.gpu.packing import pack

ROOT = Path(__file__).parents[2]
PATHS = ("block", "cluster", "grid")
# type of U and V, type of all other tensors
TYPES: dict[str, tuple[type[np.floating[Any]], type[np.floating[Any]]]] = {
    "f32": (np.float32, np.float32),
    "half-weights": (np.float16, np.float32),
    "half": (np.float16, np.float16),
    "f64": (np.float64, np.float64),
    "f32-by-8": (np.float32, np.float32),  # packed like half weights, which it must be able to represent
}
SCOPES = ("block", "cluster", "grid")
KERNELS = ROOT / "plugins" / "tensorrt"
ENUM = (KERNELS / "device.cuh").read_text().partition("enum class Barrier {")[2].partition("}")[0]
BARRIERS = re.findall(r"^    (\w+), +// ", ENUM, re.MULTILINE)
KINDS = (ROOT / "plugins" / "emulator" / "emulator.h").read_text().partition("enum class Work {")[2].partition("}")[0]
WORK = re.findall(r"^    (\w+),", KINDS, re.MULTILINE)


class EmulatorFault(Exception):
    """The kernel did something that would hang or be undefined on a GPU."""


@cache
def library() -> Any:
    """The emulator, recompiled if its sources have changed."""
    cmake, ninja, compiler = (shutil.which(each) for each in ("cmake", "ninja", os.environ.get("CXX", "c++")))
    if not (cmake and ninja and compiler):
        pytest.skip("needs cmake, ninja and a C++ compiler to build the emulator")
    build = ROOT / "build" / "emulator"
    headers = f"-DTENSORRT_INCLUDE_DIR={os.environ.get('TENSORRT_INCLUDE_DIR', '')}"  # for `enqueue`
    configure = [cmake, "-S", str(ROOT / "plugins" / "emulator"), "-B", str(build), "-G", "Ninja", headers]
    for command in (configure, [cmake, "--build", str(build)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return ctypes.CDLL(str(build / "libvcdeploy_emulator.so"))


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched. teams: number of teams of `members` blocks (grid only; otherwise one per sequence)."""

    path: str = "block"
    types: str = "f32"
    threads: int = 64
    members: int = 3
    teams: int = 0  # 0: one per sequence
    alone: int = 0  # grid: up to this many active dimensions, one block continues alone
    tile: int = 0  # most chunks of rows between two reductions; 0: as many as there is memory for
    on_chip: bool = True  # grid: vectors in shared memory; False: in the workspace
    seed: int = 1
    without: tuple[str, str] | None = None  # a barrier to omit: scope and name


def _call(inputs: list[NDArray[Any]], types: str) -> tuple[Any, list[NDArray[Any] | None], list[NDArray[Any]]]:
    """The sizes T, B, D; the tensors X, H0, U, V, u, v, b, C0, Y, H, M, C (None if absent); the outputs, all NaN."""
    weight, activation = TYPES[types]
    T, B, D = inputs[0].shape
    packed = np.float16 if types == "f32-by-8" else weight
    X, H0, U, V, u, v, b, *cell = (
        _aligned(pack(each.astype(packed)).astype(weight)) if k in (2, 3) else np.ascontiguousarray(each, activation)
        for k, each in enumerate(inputs)
    )
    outputs = [np.full(shape, np.nan, activation) for shape in ((T, B, D), (B, D), (T, B), *(c.shape for c in cell))]
    none = () if cell else (None,)  # neither C0 nor C
    tensors = [X, H0, U, V, u, v, b, *cell, *none, *outputs, *none]
    return (ctypes.c_int * 3)(T, B, D), tensors, outputs


def _aligned(array: NDArray[Any], shift: int = 0) -> NDArray[Any]:
    """A copy at a multiple of 16 bytes, plus shift."""
    memory = np.empty(array.nbytes + 16 + shift, np.uint8)
    start = -memory.ctypes.data % 16 + shift
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _addresses(tensors: list[NDArray[Any] | None]) -> Any:
    return (ctypes.c_void_p * len(tensors))(*(each if each is None else each.ctypes.data for each in tensors))


def emulate(
    case: Case,
    inputs: list[NDArray[Any]],
    launch: Launch,
    epsilon: float,
    weight_bytes: NDArray[np.uint64] | None = None,
    work: NDArray[np.uint64] | None = None,
) -> tuple[list[NDArray[Any]], set[tuple[str, str]]]:
    """The op's outputs (all NaN before the kernel runs), and the barriers that were passed.

    Added to weight_bytes: the number of bytes each block reads of U and V. Added to work: the number of warp
    instructions of each kind in WORK.
    """
    sizes, tensors, outputs = _call(inputs, launch.types)
    scope, name = launch.without or ("block", None)
    barrier = -1 if name is None else BARRIERS.index(name)
    options = (launch.threads, launch.members, launch.teams or sizes[1], launch.alone, launch.tile, launch.on_chip)
    passed, message = (ctypes.c_int * 32)(), ctypes.create_string_buffer(300)
    count = library().vcdeploy_emulate(
        case.unit.encode(),
        launch.path.encode(),
        launch.types.encode(),
        sizes,
        (ctypes.c_double * 2)(case.sharpness, epsilon),
        _addresses(tensors),
        (ctypes.c_int * 8)(*options, SCOPES.index(scope), barrier),
        ctypes.c_ulonglong(launch.seed),
        passed,
        len(passed),
        *(None if each is None else each.ctypes.data_as(ctypes.c_void_p) for each in (weight_bytes, work)),
        message,
        len(message),
    )
    if count < 0:
        raise EmulatorFault(message.value.decode())
    return outputs, {(SCOPES[each // 100], BARRIERS[each % 100]) for each in passed[:count]}


@dataclass(frozen=True)
class Plan:
    """A plan chosen by plugins/tensorrt/plan.h."""

    path: str
    blocks: int
    members: int
    alone: int
    on_chip: bool
    shared_bytes: int
    workspace_bytes: int


@dataclass(frozen=True)
class Gpu:
    """The properties of a GPU that plans and launches depend on."""

    multiprocessors: int
    shared_bytes: int
    clusters: int = 0  # that run at once
    cooperative: bool = True
    compiled_for: int = 90  # architecture of the kernels' PTX; 0: none this GPU can run
    most_of_a_cluster: int = 8  # maximum number of blocks in a cluster
    resident: int = 1  # blocks of a grid per multiprocessor

    def take(self) -> None:
        """Make this the current GPU, with no kernel's shared memory limit raised yet."""
        library().vcdeploy_gpu(
            (ctypes.c_int * 7)(
                self.multiprocessors,
                self.shared_bytes,
                self.cooperative,
                self.clusters,
                self.compiled_for,
                self.most_of_a_cluster,
                self.resident,
            )
        )


WANTED = ("automatic", *PATHS, "grid-off-chip", "grid-together")


def plan(gates: int, weight_bytes: int, B: int, D: int, gpu: Gpu, wanted: str = "automatic", rooms: int = 128) -> Plan:
    grid_blocks = gpu.multiprocessors * gpu.resident if gpu.cooperative else 0
    device = (ctypes.c_int * 5)(gpu.multiprocessors, gpu.shared_bytes, grid_blocks, gpu.clusters, rooms)
    found, message = (ctypes.c_longlong * 7)(), ctypes.create_string_buffer(300)
    if library().vcdeploy_plan(gates, weight_bytes, B, D, device, WANTED.index(wanted), found, message, len(message)):
        raise ValueError(message.value.decode())
    path, blocks, members, alone, on_chip, shared_bytes, workspace_bytes = found
    return Plan(WANTED[path], blocks, members, alone, bool(on_chip), shared_bytes, workspace_bytes)


def launch(
    case: Case,
    inputs: list[NDArray[Any]],
    types: str,
    epsilon: float,
    wanted: str = "automatic",
    seed: int = 1,
    between: int = 0,
    shift: int = 0,
) -> tuple[list[NDArray[Any]], Plan]:
    """The op's outputs from plugins/tensorrt/launch.cu on the current GPU, and its plan.

    between: dimensions of another layer that is prepared before this one is launched; 0 for none. shift: bytes between
    V and a multiple of 16.
    """
    sizes, tensors, outputs = _call(inputs, types)
    V = tensors[3]
    if shift and V is not None:
        tensors[3] = _aligned(V, shift)
    found, message = (ctypes.c_longlong * 6)(), ctypes.create_string_buffer(300)
    if library().vcdeploy_launch(
        list(GATES).index(case.unit),
        list(TYPES).index(types),
        sizes,
        (ctypes.c_double * 2)(case.sharpness, epsilon),
        _addresses(tensors),
        (ctypes.c_longlong * 12)(*(0 if each is None else each.nbytes for each in tensors)),
        WANTED.index(wanted),
        between,
        ctypes.c_ulonglong(seed),
        found,
        message,
        len(message),
    ):
        raise ValueError(message.value.decode())
    path, blocks, members, alone, on_chip, shared_bytes = found
    return outputs, Plan(WANTED[path], blocks, members, alone, bool(on_chip), shared_bytes, 0)


def enqueue(
    case: Case,
    inputs: list[NDArray[Any]],
    types: str,
    epsilon: float,
    most: tuple[int, int],
    seed: int = 1,
    tactic: int = -1,
) -> tuple[list[NDArray[Any]], int, str]:
    """The op's outputs from the plugin, from its creator to enqueue, on the current GPU.

    Also the number of its tactics, and what its widest barriers joined (of SCOPES): the kernel that ran.

    most: maximum T and B of the profile. tactic: the index of the one to use, or -1. Needs TensorRT's headers.
    """
    need_tensorrt()
    _, some, outputs = _call(inputs, types)
    tensors = [each for each in some if each is not None]
    shapes = [size for each in tensors for size in (*each.shape, 0, 0, 0, 0)[:5]]
    message = ctypes.create_string_buffer(300)
    widest = ctypes.c_int(0)
    tactics = library().vcdeploy_enqueue(
        list(GATES).index(case.unit),
        (ctypes.c_float * 2)(case.sharpness, epsilon),
        (ctypes.c_int * 2)(*most),
        len(inputs),
        len(outputs),
        _addresses([*tensors]),
        (ctypes.c_int * len(tensors))(*(each.ndim for each in tensors)),
        (ctypes.c_longlong * len(shapes))(*shapes),
        (ctypes.c_int * len(tensors))(*(each.dtype == np.float16 for each in tensors)),
        ctypes.c_ulonglong(seed),
        tactic,
        ctypes.byref(widest),
        message,
        len(message),
    )
    if tactics < 0:
        raise ValueError(message.value.decode())
    return outputs, tactics, SCOPES[widest.value]
