"""The work of a step, as the emulator counts it, follows formulas in the active dimensions (not run on a GPU).

Counted: instructions of warps, which are loads, stores, multiply-adds, two-float sums, exp and tanh, shuffles and
barriers (plugins/emulator/emulator.h). Not counted: addresses, comparisons, conversions and other plain arithmetic.
"""

import math
from functools import cache

import numpy as np
import pytest
import torch
from cases import EPSILON, GATES, Case
from plugins.emulated import WORK, Launch, emulate

Counts = dict[str, int]
D = 256
WARPS = 16
LOGIT = 2  # warps that share the logit: 128 dimensions each
SLICES = 8  # at D = 256
RESETS = "vcgru"
SUMS = {"vcrnn": (1,), "vcgru": (3, 1), "vclstm": (4,)}  # per row, in every phase
M = {72: 0.25, 256: 1.0}  # extent: m


@cache
def step(unit: str, extent: int, types: str = "f32", path: str = "block", members: int = 1) -> tuple[Counts, int]:
    """The work of one step that is neither the first nor the last, and the bytes of weights it reads."""
    work, read = [], []
    for T in (2, 3):
        inputs = [each.numpy() for each in Case(unit, T, 1, D, "edge", 1.0).inputs(torch.float32)]
        m = M[extent]
        inputs[6][:] = math.log(m / (1 - m)) if m < 1 else 20.0  # u and v are 0
        work.append(np.zeros(len(WORK), np.uint64))
        read.append(np.zeros(members, np.uint64))
        launch = Launch(path, types, threads=32 * WARPS, members=members)
        emulate(Case(unit, T, 1, D, "edge", 1.0), inputs, launch, EPSILON, read[-1], work[-1])
    return dict(zip(WORK, map(int, work[1] - work[0]), strict=True)), int(read[1].sum() - read[0].sum())


def steps_over_columns(extent: int, columns: int, chunk: int) -> int:
    """Turns of all warps' loops over column blocks: each has 32 / chunk slices, and waits for the longest."""
    blocks, a_warp = extent // columns, 32 // chunk
    return extent // chunk * sum(max(0, math.ceil((blocks - first) / SLICES)) for first in range(0, SLICES, a_warp))


@pytest.mark.parametrize(
    ("unit", "extent", "types", "columns"),
    [
        *((unit, 72, types, columns) for unit in GATES for types, columns in (("f32", 4), ("half-weights", 8))),
        ("vcgru", 256, "f32", 4),
    ],
)
def test_every_instruction_of_a_block(unit: str, extent: int, types: str, columns: int) -> None:
    gates, phases = GATES[unit], SUMS[unit]
    turns, wide = steps_over_columns(extent, columns, 8), columns // 4  # loads of 16 bytes of a vector
    rows, past = math.ceil(extent / 32), math.ceil((D - extent) / 32)  # warps with a dimension each
    items = extent // 8 * SLICES // 4  # warps' parts of the products, in every phase
    a_logit = LOGIT * D // (LOGIT * 32)  # dimensions of the logit, per lane and warp
    merge = 9  # sums to add two two-float sums; 9 for a product as well, 7 for a plain number
    own = {"vcrnn": (0, 0, 1, 1), "vcgru": (3, 3, 3, 1), "vclstm": (1, 1, 5, 3)}  # of a row, below
    loads, stores, functions, blends = own[unit]
    wanted = {
        "global_load": turns * 2 * gates + 3 * a_logit + WARPS,  # weights; x, v, u; b
        "global_store": 1 + rows + past,  # M, Y
        "load": turns * wide * (2 + len(phases) - 1)  # hbar, xbar, r ⊙ hbar
        + a_logit + 2 * WARPS + 2 * rows  # h, partial logits, h and x for the mask
        + SLICES * sum(phases) * rows + (1 + loads) * rows + past,  # partial sums, the row's own, h past the extent
        "store": a_logit + 2 * LOGIT + 2 * rows + items * sum(phases) + (1 + stores) * rows,
        "multiply_add": turns * 2 * gates * columns + 2 * a_logit + (2 + blends) * rows,
        "sum": 2 * 9 * a_logit + merge * 5 * LOGIT + (merge + 7 + 1) * WARPS + SLICES * sum(phases) * rows,
        "function": WARPS + (2 + functions) * rows,  # m, masks, gates
        "shuffle": 2 * (5 * LOGIT + WARPS),  # two levels of trees
        "block_barrier": WARPS * (3 + len(phases) + (unit == RESETS)),
        "cluster_barrier": 0,
        "grid_barrier": 0,
    }  # fmt: skip
    work, read = step(unit, extent, types)
    assert work == wanted
    assert read == 2 * gates * extent**2 * 16 // columns


@pytest.mark.parametrize("path", ["cluster", "grid"])
@pytest.mark.parametrize("unit", GATES)
def test_blocks_share_the_products(unit: str, path: str) -> None:
    members, extent, gates = 3, 72, GATES[unit]
    work, read = step(unit, extent, path=path, members=members)
    assert read == 2 * gates * extent**2 * 4
    turns = steps_over_columns(extent, 4, 4)
    assert 0 <= work["multiply_add"] - turns * 2 * gates * 4 <= members * (16 + 8 * math.ceil(extent / 32))
    assert work["shuffle"] == members * 2 * (5 * LOGIT + WARPS)
    assert work[f"{path}_barrier"] == members * WARPS * (2 if unit == RESETS else 1)
    gathers = 1 if unit == RESETS and path == "grid" else 0
    assert work["block_barrier"] == members * WARPS * (2 + len(SUMS[unit]) + gathers)


def test_time_follows_the_work_from_a_quarter_of_the_state_to_all() -> None:
    """VCGRU-256 in f32: a² would be 0.08. The minimum is the loads and multiply-adds of the weights."""
    small, whole = (sum(step("vcgru", extent)[0].values()) for extent in (72, 256))
    assert small <= 0.16 * whole
    weights = 6 * D * D // 32
    assert whole <= 2 * (weights + weights // 4)
