"""The training passes of every instruction set: steps against the reference, gradients against its autograd."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from cases import CASES, DENSE, DENSE_CASES, EPSILON, GATES, REFERENCE, Case, small
from plugins.bounds import check_steps, step_bounds
from torch import Tensor

from vcdeploy import _native
from vcdeploy.kernels import native
from vcdeploy.reference.cells import STEPS
from vcdeploy.spec import TRAINED_UNITS, UNITS

ISAS = [isa for isa in _native.instruction_sets() if isa != "avx512vl"]  # which trains as avx512
# Sorted batches, tiles of every size, more tokens than fit into a block and a stretch.
WIDE = [
    Case(unit, T, B, D, level, sharpness)
    for unit in GATES
    for T, B, D, level, sharpness in [
        (3, 13, 97, "ragged", 1.0),
        (20, 32, 40, "ragged", 1.0),
        (2, 32, 130, "ragged", 0.2),
    ]
]
DENSE_WIDE = [small(unit, *sizes) for unit in DENSE for sizes in [(3, 13, 97), (20, 32, 40), (2, 32, 130)]]


def forward(case: Case, inputs: list[Tensor], isa: str = "auto", gates: Tensor | None = None) -> tuple[Tensor, ...]:
    return native.forward(case.unit, *inputs, *case.mask, gates=gates, isa=isa)


def backward(case: Case, inputs: list[Tensor], isa: str = "auto", seed: int = 5) -> tuple[Tensor, ...]:
    """Gradients of the inputs for random gradients of the outputs."""
    X = inputs[0]
    gates = native.new_gates(case.unit, X).fill_(torch.nan)
    outputs = forward(case, inputs, isa, gates)
    draw = torch.Generator().manual_seed(seed)
    d = [torch.randn(each.shape, generator=draw, dtype=X.dtype) for each in outputs]
    made = dict(zip(UNITS[case.unit].outputs, outputs, strict=True))
    saved = [made[name] for name in UNITS[case.unit].saved_outputs]
    return native.backward(case.unit, *d, *inputs, *saved, gates, *case.mask, isa=isa)


def same_bits(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.numpy().tobytes() == other.numpy().tobytes()


@pytest.fixture
def threads() -> Any:
    """Sets PyTorch's number of threads, which the passes use, for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", [*CASES, *WIDE], ids=str)
def test_every_step_is_the_reference_step(case: Case, isa: str) -> None:
    check_steps(case, "f32", lambda inputs: forward(case, inputs, isa))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", [*DENSE_CASES, *DENSE_WIDE], ids=str)
def test_every_dense_step_is_the_reference_step(case: Case, isa: str) -> None:
    X, h, U, V, *cell = case.inputs(torch.float32)
    weights = [U, V]
    for x in X:
        y, after, *after_cell = forward(case, [x.unsqueeze(0), h, *weights, *cell], isa)
        assert torch.equal(y[0], after)
        before = [each.double() for each in (x, h, *cell)]
        wide = [each.double() for each in weights]
        wanted = STEPS[case.unit](*before, *wide)
        bounds = step_bounds(case.unit, "f32", before[0], before[1], torch.ones_like(before[1]), wide, before[2:])
        for got, want, bound in zip((after, *after_cell), wanted if cell else [wanted], bounds, strict=False):
            assert ((got - want).abs() - bound).max().item() <= 0
        h, cell = after, after_cell


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", [case for case in [*CASES, *WIDE] if case.T > 1], ids=str)
def test_a_sequence_is_its_steps_and_runs_repeat(case: Case, isa: str) -> None:
    X, h, *weights = case.inputs(torch.float32)
    cell = weights[5:]
    whole = forward(case, [X, h, *weights], isa)
    assert all(map(same_bits, whole, forward(case, [X, h, *weights], isa)))
    Y, H, M, *C = whole
    for t in range(case.T):
        y, h, m, *cell = forward(case, [X[t : t + 1], h, *weights[:5], *cell], isa)
        assert same_bits(y[0], Y[t]) and same_bits(m[0], M[t])
    assert same_bits(h, H) and all(map(same_bits, cell, C))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", [*CASES, *DENSE_CASES, *WIDE, *DENSE_WIDE], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_the_references(case: Case, dtype: torch.dtype, isa: str) -> None:
    inputs = case.inputs(dtype)
    of_kernel = backward(case, inputs, isa)
    known = [each.clone().requires_grad_() for each in inputs]
    outputs = REFERENCE[case.unit](*known, *case.mask)
    draw = torch.Generator().manual_seed(5)
    d = [torch.randn(each.shape, generator=draw, dtype=dtype) for each in outputs]
    # Rounding of sums of up to T·B·D products, amplified by the slope of the mask in everything that depends on m.
    bound = torch.finfo(dtype).eps * case.T * (case.B * case.D) ** 0.5 * (1 + case.sharpness * case.D / 4)
    names = UNITS[case.unit].inputs
    for name, one, other in zip(names, torch.autograd.grad(outputs, known, d), of_kernel, strict=True):
        assert (one - other).abs().max().item() <= bound * max(1, one.abs().max().item()), name


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_threads_give_the_same_bits(unit: str, isa: str, threads: Callable[[int], None]) -> None:
    case = small(unit, 5, 32, 150)
    inputs = case.inputs(torch.float32)
    results = []
    for number in (1, 2, 3, 2):
        threads(number)
        results.append([*forward(case, inputs, isa), *backward(case, inputs, isa)])
    for other in results[1:]:
        assert all(map(same_bits, results[0], other))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("unit", GATES)
def test_nothing_past_the_active_dimensions_is_read(unit: str, isa: str) -> None:
    case = Case(unit, 6, 9, 150, "edge", 1.0)  # 64 of 150 dimensions are active in every step
    inputs = case.inputs(torch.float32)
    poisoned = [each.clone() for each in inputs]
    for matrix in poisoned[2:4]:
        for gate in matrix.split(case.D):
            gate[64:], gate[:, 64:] = torch.nan, torch.nan
    assert all(map(same_bits, forward(case, inputs, isa), forward(case, poisoned, isa)))
    clean = backward(case, inputs, isa)
    assert all(map(same_bits, clean, backward(case, poisoned, isa)))
    for matrix in clean[2:4]:
        for gate in matrix.split(case.D):
            assert gate[:64, :64].ne(0).all() and not gate[64:].any() and not gate[:, 64:].any()


@pytest.mark.parametrize("unit", GATES)
def test_small_numbers_count_again_afterwards(unit: str) -> None:
    case = Case(unit, 3, 2, 20, "ragged", 1.0)
    backward(case, case.inputs(torch.float32))
    assert np.float32(1e-40) * np.float32(0.5) > 0


def test_what_is_wrong_is_said() -> None:
    case = Case("vcgru", 3, 2, 20, "ragged", 1.0)
    X, *rest = case.inputs(torch.float32)
    with pytest.raises(ValueError, match=r"H0 must have the shape \[2, 20\], not \[2, 19\]"):
        forward(case, [X, rest[0][:, :-1], *rest[1:]])
    with pytest.raises(TypeError, match="U must be an array of float32"):
        forward(case, [X, rest[0], rest[1].double(), *rest[2:]])
    with pytest.raises(ValueError, match="no instruction set 'abacus'"):
        forward(case, [X, *rest], isa="abacus")
    arrays = [each.numpy() for each in (X, *rest[:5])]
    for unit, cell, fault in (("vclstm", None, "vclstm needs its cell"), ("lstm", arrays[1], "lstm has no scheduler")):
        given: Any = (*arrays, 0.0, cell, arrays[0], arrays[0][:, :, 0].copy(), None)
        with pytest.raises(ValueError, match=fault):
            _native.train_forward(unit, *given, sharpness=1.0, epsilon=EPSILON)
