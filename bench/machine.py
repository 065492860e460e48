"""What a benchmark ran on: the processor, its caches, the versions; nothing that tells one machine from its like."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from vcdeploy.runtime import loading

PACKAGES = ("numpy", "onnx", "onnxruntime", "torch", "openvino")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def describe() -> dict[str, Any]:
    found: dict[str, Any] = {
        "processor": _processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "caches": _caches(),
        "load": _load(),
    }
    if loading.native_fault() is None:
        from vcdeploy import _native

        found["instruction_sets"] = _native.instruction_sets()
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _caches() -> dict[str, str]:
    """Sizes by name, as Linux tells them: L1d, L2, L3."""
    found = {}
    for folder in sorted(CACHES.glob("index*")):
        level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found[f"L{level}{'d' if kind == 'Data' else ''}"] = size
    return found


def _load() -> float | None:
    """Programs that wanted a core in the last minute: a busy machine makes for poor figures."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
