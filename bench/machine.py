"""The machine a benchmark ran on: processor, caches, versions; nothing that identifies a single machine."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from vcdeploy.runtime import backends

PACKAGES = ("numpy", "onnx", "onnxruntime", "onnxruntime-gpu", "torch", "openvino", "jax", "tensorrt", "cuda-python")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNKNOWN_CACHE = 64 * 2**20


def describe() -> dict[str, Any]:
    found: dict[str, Any] = {
        "processor": _processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "caches": _caches(),
        "load": _load(),
    }
    if backends.native_fault() is None:
        from vcdeploy import _native

        found["instruction_sets"] = _native.instruction_sets()
    return found


def gpu() -> dict[str, Any]:
    """The GPU and its current clocks."""
    from vcdeploy.gpu import cuda

    return {**cuda.device().to_json(), "clocks": clocks()}


def clocks() -> dict[str, str] | None:
    """MHz of the multiprocessors, current and maximum, and of the memory; None without nvidia-smi."""
    names = ("clocks.sm", "clocks.max.sm", "clocks.mem")
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(zip(names, (part.strip() for part in said.split(",")), strict=False))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _caches() -> dict[str, str]:
    """Sizes by name, as reported by Linux: L1d, L2, L3."""
    found = {}
    for folder in sorted(CACHES.glob("index*")):
        level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found[f"L{level}{'d' if kind == 'Data' else ''}"] = size
    return found


def largest_cache() -> int:
    """Bytes of the last-level cache; if the system does not report it, as much as most machines have."""
    sizes = [int(size[:-1]) * 2 ** {"K": 10, "M": 20}[size[-1]] for size in _caches().values() if size[-1] in "KM"]
    return max(sizes, default=UNKNOWN_CACHE)


def _load() -> float | None:
    """Load average of the last minute: a busy machine gives noisy figures."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
