"""The CUDA kernels on the CPU, with the emulator's adversarial schedules, against the reference (not run on a GPU).

In double they agree with the reference to 1e-13, which is rounding, so the algorithm is correct. In float every step is
within its rounding bounds. All paths and schedules must give the same bits.
"""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from cases import CASES, EPSILON, GATES, REFERENCE, Case
from numpy.typing import NDArray
from plugins.bounds import ROUNDING, check_steps
from plugins.emulated import BARRIERS, KERNELS, PATHS, SCOPES, EmulatorFault, Launch, emulate
from torch import Tensor

# m: the logit is rounded to a float (|s| m(1-m) ≤ 0.23 roundings of 1), the error of exp is two roundings, of which a
# quarter counts, and that of 1 + … and 1 / … one each.
M_ERROR = 3 * ROUNDING
# e: sharpness as a float, m·D - i and their product are rounded, with a magnitude of at most ln(999) = 6.9 (17
# roundings of e^-s, and 2 of exp itself), then 1 + …, 1 / … and the product with h.
MASK_ERROR = 24 * ROUNDING

# Variants of the kernels: several reductions per step, one or several rounds of teams per batch, vectors off chip, and
# one block continuing alone.
WAYS = {
    "block": Launch("block"),
    "block-tiles": Launch("block", tile=1),
    "cluster": Launch("cluster"),
    "grid": Launch("grid"),
    "grid-tiles": Launch("grid", tile=2),
    "grid-rounds": Launch("grid", members=2, teams=2),
    "grid-off-chip": Launch("grid", on_chip=False),
    "grid-alone": Launch("grid", alone=40),
}


def run(case: Case, inputs: list[Tensor], launch: Launch) -> list[NDArray[Any]]:
    return emulate(case, [each.numpy() for each in inputs], launch, EPSILON)[0]


def same_bits(some: list[NDArray[Any]], others: list[NDArray[Any]]) -> bool:
    return all(one.tobytes() == other.tobytes() for one, other in zip(some, others, strict=True))


def first_sequence(inputs: list[Tensor]) -> list[Tensor]:
    X, H0, *weights = inputs
    return [X[:, :1], H0[:1], *weights[:5], *(cell[:1] for cell in weights[5:])]


def of_way(way: str, inputs: list[Tensor]) -> list[Tensor]:
    """The inputs for a variant: only one sequence if a block continues alone."""
    return first_sequence(inputs) if way == "grid-alone" else inputs


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_in_double_it_is_the_reference(case: Case, way: str) -> None:
    inputs = of_way(way, case.inputs())
    wanted = REFERENCE[case.unit](*inputs, case.sharpness, EPSILON)
    got = run(case, inputs, replace(WAYS[way], types="f64", seed=case.D))
    for name, one, other in zip(("Y", "H", "M", "C"), got, wanted, strict=False):
        assert np.abs(one - other.numpy()).max() <= 1e-13, name


@pytest.mark.parametrize(("types", "precision"), [("f32", "f32"), ("half-weights", "f16")])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_step_is_the_reference_step(case: Case, types: str, precision: str) -> None:
    def forward(inputs: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(map(torch.from_numpy, run(case, inputs, Launch("block", types))))

    check_steps(case, precision, forward, m_error=M_ERROR, mask_error=MASK_ERROR)


@pytest.mark.parametrize("types", ["f32", "half-weights"])
@pytest.mark.parametrize("case", [case for case in CASES if case.D < 256], ids=str)
def test_all_paths_and_schedules_give_the_same_bits(case: Case, types: str) -> None:
    inputs = case.inputs(torch.float32)
    wanted = run(case, inputs, Launch("block", types, seed=0))
    alone = run(case, first_sequence(inputs), Launch("block", types, seed=0))
    for way, launch in WAYS.items():
        got = run(case, of_way(way, inputs), replace(launch, types=types, seed=case.T))
        assert same_bits(got, alone if way == "grid-alone" else wanted), way


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("unit", GATES)
def test_a_sequence_is_its_steps(unit: str, path: str) -> None:
    X, H, *weights = (case := Case(unit, 5, 2, 40, "ragged", 0.5)).inputs(torch.float32)
    Y, last, M, *last_cell = run(case, [X, H, *weights], Launch(path))
    cell = weights[5:]
    for t in range(case.T):
        y, h, m, *c = run(case, [X[t : t + 1], H, *weights[:5], *cell], Launch(path, seed=t))
        assert same_bits([y[0], m[0]], [Y[t], M[t]])
        H, cell = torch.from_numpy(h), [torch.from_numpy(each) for each in c]
    assert same_bits([h, *c], [last, *last_cell])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", [case for case in CASES if case.D < 256], ids=str)
def test_half_is_half_weights_with_rounded_outputs(case: Case, way: str) -> None:
    """Within a call the state is float; inputs and outputs are half."""
    inputs = [each.half().float() for each in of_way(way, case.inputs())]
    half = run(case, inputs, replace(WAYS[way], types="half"))
    wide = run(case, inputs, replace(WAYS[way], types="half-weights"))
    assert same_bits(half, [each.astype(np.float16) for each in wide])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("unit", GATES)
def test_half_weights_are_those_weights_as_floats(unit: str, path: str) -> None:
    case = Case(unit, 4, 2, 40, "ragged", 0.5)
    inputs = [each.half().float() for each in case.inputs()]
    narrow = run(case, inputs, Launch(path, "half-weights"))
    assert same_bits(narrow, run(case, inputs, Launch(path, "f32-by-8")))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("unit", GATES)
def test_weights_past_the_prefix_are_not_read(unit: str, way: str) -> None:
    """Setting them all to NaN changes nothing. The prefix is rounded up to panels of 8."""
    case = Case(unit, 3, 2, 112, "edge", 1.0)
    inputs = of_way(way, case.inputs(torch.float32))
    launch = replace(WAYS[way], alone=80 if way == "grid-alone" else 0)
    wanted = run(case, inputs, launch)
    spoilt = torch.arange(112) >= 72
    for k in (2, 3):
        W = inputs[k].reshape(-1, 112, 112)
        W[:, spoilt] = math.nan
        W[:, :, spoilt] = math.nan
    assert same_bits(run(case, inputs, launch), wanted)
    inputs[2][0, 60] = math.nan
    assert not same_bits(run(case, inputs, launch), wanted)


@pytest.mark.parametrize("path", ["cluster", "grid"])
@pytest.mark.parametrize("unit", GATES)
def test_the_rows_of_any_prefix_are_spread_over_all_blocks(unit: str, path: str) -> None:
    """With as many warps as on a GPU: if only some blocks had rows of the prefix, cost would grow with a, not a²."""
    case = Case(unit, 1, 1, 112, "edge", 1.0)
    inputs = [each.numpy() for each in case.inputs(torch.float32)]
    read = np.zeros(8, np.uint64)
    emulate(case, inputs, Launch(path, threads=512, members=len(read)), EPSILON, weight_bytes=read)
    extent = 72  # 64 and 2 to spare, rounded up to a panel
    chunk = 4 * 2 * GATES[unit] * extent * 4  # rows are assigned in chunks of 4
    assert read.sum() == chunk * extent / 4
    assert read.max() - read.min() <= chunk


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("unit", GATES)
@pytest.mark.parametrize("where", ["X", "H0"])
def test_nan_in_nan_out(unit: str, path: str, where: str) -> None:
    """As in the reference, that sequence is entirely NaN from then on, and other sequences are bit-identical."""
    case = Case(unit, 4, 3, 37, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    clean = run(case, inputs, Launch(path))
    first = 1 if where == "X" else 0
    (inputs[0][1] if where == "X" else inputs[1])[2, 30] = math.nan
    Y, H, M, *C = run(case, inputs, Launch(path))
    assert np.isnan(Y[first:, 2]).all() and np.isnan(H[2]).all() and np.isnan(M[first:, 2]).all()
    assert all(np.isnan(c[2]).all() for c in C)
    assert same_bits([Y[:, :2], Y[:first], M[:, :2]], [clean[0][:, :2], clean[0][:first], clean[2][:, :2]])


@pytest.mark.parametrize("unit", GATES)
def test_infinity_is_what_it_is_in_the_reference(unit: str) -> None:
    case = Case(unit, 2, 2, 37, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    inputs[0][0, 1, 36] = math.inf  # m is 0 or 1
    *_, M = run(case, inputs, Launch("block"))[:3]
    wanted = REFERENCE[unit](*inputs, case.sharpness, EPSILON)[2].numpy()
    assert M[0, 1] == wanted[0, 1] and M[0, 1] in (0, 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("unit", GATES)
def test_every_barrier_that_is_left_out_is_noticed(unit: str, way: str) -> None:
    """Omit each barrier in turn: some schedule must give different bits or raise an emulator fault."""
    case = Case(unit, 9 if way == "grid-alone" else 5, 3, 56, "ragged", 1.0)
    inputs = [each.numpy() for each in of_way(way, case.inputs(torch.float32))]
    launch = replace(WAYS[way], alone=48 if way == "grid-alone" else 0)  # rows of more than one warp
    wanted, passed = emulate(case, inputs, launch, EPSILON)
    assert len(passed) >= 3
    for barrier in sorted(passed):
        for seed in range(1, 12):
            try:
                got, _ = emulate(case, inputs, replace(launch, seed=seed, without=barrier), EPSILON)
            except EmulatorFault:
                break
            if not same_bits(got, wanted):
                break
        else:
            pytest.fail(f"no schedule detected that {barrier} was omitted")


def test_the_paths_together_pass_every_barrier_of_the_source() -> None:
    """Otherwise the previous test would miss a barrier. The kernels use no barriers other than the named ones."""
    case = Case("vcgru", 5, 3, 40, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    passed = set()
    for way, launch in WAYS.items():
        arrays = [each.numpy() for each in of_way(way, inputs)]
        passed |= emulate(case, arrays, replace(launch, alone=24 if way == "grid-alone" else 0), EPSILON)[1]
    written = set()
    scopes = {"block_barrier": ("block",), "cluster_barrier": ("cluster",), "grid_barrier": ("grid",)}
    for file in sorted(KERNELS.glob("*.cuh")):
        source = re.sub(r"//[^\n]*", "", file.read_text())
        if file.name != "device.cuh":
            assert not re.search(r"__sync|__barrier|\bsync\(|cooperative_groups|\basm\b", source), file.name
        for function, name in re.findall(r"(\w*barrier)<Barrier::(\w+)>\(\)", source):
            written |= {(each, name) for each in scopes.get(function, SCOPES)}  # `barrier` has the scope of the team
    assert {name for _, name in written} == set(BARRIERS)
    assert passed == written
