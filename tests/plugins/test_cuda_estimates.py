"""The estimates in the kernels' header comments follow from their formulas and the data sheets (not run on a GPU)."""

import math
import re
from pathlib import Path

import pytest
from cases import EPSILON, GATES

KERNELS = Path(__file__).parents[2] / "plugins" / "tensorrt"
# From the data sheets: clock in GHz, multiprocessors, memory in GB/s, L2 cache bandwidth in bytes/clock.
GPUS = {"A100": (1.41, 108, 1555, 5120), "L4": (2.04, 58, 300, math.inf), "H100": (1.98, 132, 3350, math.inf)}
WIDTH = 64  # bytes/clock from the L2 cache to one multiprocessor
BARRIER = {"cluster": 0.3, "grid": 1.5}  # microseconds, as in plan.h


def from_l2(size: float, gpu: str, multiprocessors: int) -> float:
    """Time to read size bytes from the L2 cache, in microseconds."""
    clock, _, _, most = GPUS[gpu]
    return size / (min(WIDTH * multiprocessors, most) * clock * 1e3)


def cells(path: str, gates: int, D: int) -> list[str]:
    """A row of the path's table, for m = 0.4 and sharpness 1."""
    a = math.floor(0.4 * D + math.log((1 - EPSILON) / EPSILON))
    size = 2 * gates * a * a * 4
    shown = f"{size / 1e6:.3g} MB" if size >= 1e6 else f"{size / 1e3:.3g} KB"
    if path == "block":
        return [shown, *(f"{from_l2(each, gpu, 1):.1f}" for each in (size, size / 2) for gpu in GPUS)]
    barriers = f" + {BARRIER[path] * (2 if gates == GATES['vcgru'] else 1):.1f}"
    if path == "cluster":
        return [shown, "no clusters", *(f"{from_l2(each, 'H100', 8):.1f}{barriers}" for each in (size, size / 2))]
    return [
        shown,
        *(f"{from_l2(size, gpu, count):.1f} or {size / (memory * 1e3):.1f}{barriers}"
          for gpu, (_, count, memory, _) in GPUS.items()),
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["block", "cluster", "grid"])
def test_the_tables_are_what_the_data_sheets_give(path: str) -> None:
    source = (KERNELS / f"{path}.cuh").read_text()
    rows = re.findall(r"^//     \| (VC\w+)-(\d+) +\|(.*)\|$", source, re.MULTILINE)
    assert {unit.lower() for unit, _, _ in rows} == set(GATES)
    for unit, D, rest in rows:
        assert [cell.strip() for cell in rest.split("|")] == cells(path, GATES[unit.lower()], int(D)), (unit, D)


def test_the_barriers_are_the_plans() -> None:
    source = (KERNELS / "plan.h").read_text()
    for path, microseconds in BARRIER.items():
        assert f"k{path.capitalize()}Barrier = {microseconds};" in source
