"""The CPU kernels against the reference, step by step, for every unit, instruction set and precision.

Each step starts from the kernel's own state, and the reference uses the kernel's own m, so only the rounding of one
step is compared, and an m that rounding moves across a threshold does not matter. m is compared separately. Another
test checks that a sequence equals its steps bit for bit.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from cases import CASES, EPSILON, GATES, Case
from numpy.typing import NDArray
from plugins.bounds import ACTIVATION, check_steps
from torch import Tensor

from vcdeploy import _native
from vcdeploy.format.precision import TANH_ERROR
from vcdeploy.spec import PRECISIONS, QUANTIZED_PRECISIONS, UNITS

ISAS = _native.instruction_sets()


def arrays(tensors: list[Tensor]) -> list[NDArray[np.float32]]:
    return [each.numpy() for each in tensors]


def run(case: Case, inputs: list[Tensor], **options: Any) -> tuple[NDArray[np.float32], ...]:
    return _native.op(case.unit, *arrays(inputs), sharpness=case.sharpness, epsilon=EPSILON, **options)


def same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_step_is_the_reference_step(case: Case, precision: str, isa: str) -> None:
    def forward(inputs: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(map(torch.from_numpy, run(case, inputs, precision=precision, isa=isa)))

    check_steps(case, precision, forward)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("case", [case for case in CASES if case.T > 1], ids=str)
def test_a_sequence_is_its_steps_and_runs_repeat(case: Case, precision: str, isa: str) -> None:
    X, H0, *weights = case.inputs(torch.float32)
    cell = weights[5:]
    whole = run(case, [X, H0, *weights], precision=precision, isa=isa)
    again = run(case, [X, H0, *weights], precision=precision, isa=isa)
    assert all(same_bits(one, other) for one, other in zip(whole, again, strict=True))
    Y, H, M, *C = whole
    h = H0
    for t in range(case.T):
        y, last, m, *last_cell = run(case, [X[t : t + 1], h, *weights[:5], *cell], precision=precision, isa=isa)
        assert same_bits(y[0], Y[t]) and same_bits(m[0], M[t])
        h, cell = torch.from_numpy(last), [torch.from_numpy(each) for each in last_cell]
    assert same_bits(last, H)
    assert all(same_bits(one, other) for one, other in zip(last_cell, C, strict=True))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("unit", GATES)
def test_a_sequence_has_the_same_bits_in_a_batch(unit: str, precision: str, isa: str) -> None:
    """Groups of every size, with very different a; one sequence has a NaN state, one an m of 0."""
    draw = np.random.default_rng(0)

    def normal(*shape: int) -> NDArray[np.float32]:
        return draw.standard_normal(shape).astype(np.float32)

    options: dict[str, Any] = {
        "sharpness": 0.5, "epsilon": EPSILON, "precision": precision, "isa": isa, "threads": 2,
    }  # fmt: skip
    for D, B in ((7, 3), (97, 21)):
        states = [normal(B, D) for _ in UNITS[unit].state]
        states[0][1, D // 2] = np.nan
        X, m = normal(3, B, D), draw.uniform(0, 1, (3, B)).astype(np.float32)
        m[:, 2] = 0
        size = GATES[unit] * D
        weights = [normal(size, D) / D**0.5, normal(size, D) / D**0.5, normal(D), normal(D), normal(1)]
        for given in (None, m):
            batch = _native.op(unit, X, states[0], *weights, *states[1:], m=given, **options)
            for n in range(B):
                mine = slice(n, n + 1)
                h, *c = (np.ascontiguousarray(each[mine]) for each in states)
                fraction = None if given is None else np.ascontiguousarray(given[:, mine])
                one = _native.op(unit, np.ascontiguousarray(X[:, mine]), h, *weights, *c, m=fraction, **options)
                for place, (alone, all_) in enumerate(zip(one, batch, strict=True)):
                    along = all_[:, mine] if place in (0, 2) else all_[mine]
                    assert same_bits(alone, np.ascontiguousarray(along))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_prescribed_m_replaces_the_schedulers(case: Case, isa: str) -> None:
    inputs = case.inputs(torch.float32)
    own = run(case, inputs, isa=isa)
    given = run(case, [*inputs[:4], inputs[4] + 1, *inputs[5:]], isa=isa, m=own[2])  # with another u
    assert all(same_bits(one, other) for one, other in zip(own, given, strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_m_has_the_same_bits_on_every_instruction_set(case: Case) -> None:
    """And in every precision, except that quantized ones share a sigmoid of their own."""
    X, *rest = case.inputs(torch.float32)
    fractions = {
        (isa, each): run(case, [X[:1], *rest], isa=isa, precision=each)[2] for isa in ISAS for each in PRECISIONS
    }
    for (_, precision), m in fractions.items():
        assert same_bits(m, fractions[ISAS[0], "int8" if precision in QUANTIZED_PRECISIONS else "f32"])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("unit", GATES)
def test_threads_give_the_same_bits(unit: str, precision: str, isa: str) -> None:
    case = Case(unit, 3, 2, 300, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    alone, *others = (run(case, inputs, precision=precision, isa=isa, threads=threads) for threads in (1, 2, 3))
    for other in others:
        assert all(same_bits(one, each) for one, each in zip(alone, other, strict=True))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("unit", GATES)
@pytest.mark.parametrize("where", ["X", "H0", "m"])
def test_nan_in_nan_out(unit: str, precision: str, isa: str, where: str) -> None:
    """As in the reference, that sequence is entirely NaN from then on, and other sequences are bit-identical."""
    case = Case(unit, 4, 3, 37, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    clean = run(case, inputs, precision=precision, isa=isa)
    fractions = clean[2].copy()
    if where == "X":
        inputs[0][1, 2, 30] = math.nan
    elif where == "H0":
        inputs[1][2, 30] = math.nan
    else:
        fractions[1, 2] = math.nan
    Y, H, M, *C = run(case, inputs, precision=precision, isa=isa, m=fractions if where == "m" else None)
    first = 0 if where == "H0" else 1
    assert np.isnan(Y[first:, 2]).all() and np.isnan(H[2]).all() and all(np.isnan(c[2]).all() for c in C)
    assert np.isnan(M[first : first + (1 if where == "m" else 4), 2]).all()
    assert same_bits(Y[:, :2], clean[0][:, :2]) and same_bits(Y[:first], clean[0][:first])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("unit", GATES)
def test_infinity_neither_crashes_nor_reaches_other_sequences(unit: str, precision: str, isa: str) -> None:
    case = Case(unit, 3, 2, 37, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    clean = run(case, inputs, precision=precision, isa=isa)
    fractions = clean[2].copy()
    fractions[:, 1] = 1  # so that the infinities below are in the prefix
    inputs[1][1, ::2] = math.inf
    inputs[0][1, 1, 3] = -math.inf
    for m in (None, fractions):
        Y = run(case, inputs, precision=precision, isa=isa, m=m)[0]
        assert same_bits(Y[:, 0], clean[0][:, 0])


@pytest.mark.parametrize("isa", ISAS)
def test_sigmoid_and_tanh(isa: str) -> None:
    """Both are within ACTIVATION everywhere, including very large inputs: many sequences of one dimension each.

    m is 1 and the mask 1. With U = 0 and V = 1 a VCRNN's h' is tanh x. With V_z = 1, all else 0 and h = 1 a
    VCGRU's h' is 1 - sigmoid x.
    """
    near = np.linspace(-20, 20, 40_001, dtype=np.float32)
    x = np.concatenate([near, np.array([-1e30, -200, -89, -1e-3, 1e-30, 89, 200, 1e30], np.float32)])
    X, ones = x.reshape(1, -1, 1), np.ones((len(x), 1), np.float32)
    zero, one = np.zeros((1, 1), np.float32), np.ones((1, 1), np.float32)
    v = np.zeros(1, np.float32)
    options: dict[str, Any] = {
        "sharpness": 1e3,
        "epsilon": EPSILON,
        "m": np.full((1, len(x)), 1.5, np.float32),
        "isa": isa,
    }
    h = _native.op("vcrnn", X, 0 * ones, zero, one, v, v, v, **options)[1][:, 0]
    assert np.abs(h - np.tanh(x.astype(np.float64))).max() <= ACTIVATION
    three = np.zeros((3, 1), np.float32)
    Vz = np.array([[0], [1], [0]], np.float32)
    h = _native.op("vcgru", X, ones, three, Vz, v, v, v, **options)[1][:, 0]
    with np.errstate(over="ignore"):
        wanted = 1 - 1 / (1 + np.exp(-x.astype(np.float64)))
    assert np.abs(h - wanted).max() <= ACTIVATION


@pytest.mark.parametrize("isa", ISAS)
def test_f16_and_bf16_weights_are_rounded_to_nearest(isa: str) -> None:
    """A VCRNN of one dimension multiplies one weight by one input, which returns the weight as rounded by NumPy."""
    draw = np.random.default_rng(0)
    spread = draw.standard_normal(300) * 10.0 ** draw.uniform(-9, 0, 300)
    w = np.concatenate([spread, [0.0, 2**-14, 2**-25, 3 * 2**-25]])
    zero = np.zeros(1, np.float32)
    for each in w.astype(np.float32):
        scale = np.float32(2.0**-12 / max(abs(each), 1e-30))  # so small that tanh is the identity up to float rounding
        options: dict[str, Any] = {
            "sharpness": 1e3,
            "epsilon": EPSILON,
            "m": np.full((1, 1), 1.5, np.float32),
            "isa": isa,
        }
        inputs = scale.reshape(1, 1, 1), zero.reshape(1, 1), zero.reshape(1, 1), each.reshape(1, 1), zero, zero, zero
        got = _native.op("vcrnn", *inputs, precision="f16", **options)[1][0, 0]
        assert got == pytest.approx(float(np.float16(each)) * scale, abs=ACTIVATION)
        bits = each.view(np.uint32)
        nearest = np.uint32((int(bits) + 0x7FFF + ((int(bits) >> 16) & 1)) & 0xFFFF0000).view(np.float32)
        got = _native.op("vcrnn", *inputs, precision="bf16", **options)[1][0, 0]
        assert got == pytest.approx(float(nearest) * scale, abs=ACTIVATION)


@pytest.mark.parametrize("precision", QUANTIZED_PRECISIONS)
def test_quantized_sums_do_not_overflow(precision: str) -> None:
    """With all weights and inputs at their maximum, 3,000 columns of 127 · 2^14 would exceed 2^31; so int8 has fewer
    levels. In w8a8 no pair of products may saturate."""
    D = 3000
    one = np.ones(D, np.float32)
    U, V, zero = np.zeros((D, D), np.float32), np.full((D, D), 0.25 / D, np.float32), np.zeros(D, np.float32)
    m = np.full((1, 1), 1.5, np.float32)
    options: dict[str, Any] = {"sharpness": 1e3, "epsilon": EPSILON, "m": m, "precision": precision}
    for isa in ISAS:
        h = _native.op("vcrnn", one.reshape(1, 1, D), zero[None], U, V, zero, zero, zero[:1], isa=isa, **options)[1]
        # Constant rows and a constant input are exact levels: only float rounding is left.
        assert np.abs(h - math.tanh(0.25)).max() <= ACTIVATION


@pytest.mark.parametrize("precision", QUANTIZED_PRECISIONS)
@pytest.mark.parametrize("D", [1, 15, 97, 1000])
def test_levels_at_their_ends_with_any_sign(D: int, precision: str) -> None:
    """All weights are ±127 levels and all inputs ±L, in a batch: products of every sign and the largest size."""
    draw = np.random.default_rng(D)
    signs, inputs = draw.choice([-1, 1], (D, D)), draw.choice([-1, 1], (1, 70, D))
    V, X = (signs / np.float32(8)).astype(np.float32), inputs.astype(np.float32)
    U, zero, m = np.zeros((D, D), np.float32), np.zeros(D, np.float32), np.full((1, 70), 1.5, np.float32)
    options: dict[str, Any] = {"sharpness": 1e3, "epsilon": EPSILON, "m": m, "precision": precision}
    wanted = np.tanh(inputs[0] @ signs.T / 8)
    results = [_native.op("vcrnn", X, X[0] * 0, U, V, zero, zero, zero[:1], isa=isa, **options)[1] for isa in ISAS]
    for result in results:
        assert same_bits(result, results[0])
        # A scale has 17 bits, and x P(x²) / Q(x²) is accurate to TANH_ERROR.
        assert np.abs(result - wanted).max() <= TANH_ERROR + 2.0**-17


def test_denormals_are_flushed_inside_and_nowhere_else() -> None:
    case = Case("vcgru", 2, 1, 37, "ragged", 1.0)
    run(case, case.inputs(torch.float32))
    tiny = np.full(64, 1e-30, np.float32)
    assert (tiny * np.float32(1e-12) > 0).all()


@pytest.mark.parametrize("unit", GATES)
def test_an_empty_batch(unit: str) -> None:
    case = Case(unit, 3, 0, 7, "ragged", 1.0)
    Y, H, M, *C = run(case, case.inputs(torch.float32))
    assert (Y.shape, H.shape, M.shape) == ((3, 0, 7), (0, 7), (3, 0))
    assert [c.shape for c in C] == ([(0, 7)] if unit == "vclstm" else [])


def wrong(**changed: Any) -> dict[str, Any]:
    X, H0, U, V, u, v, b, C0 = arrays(Case("vclstm", 2, 3, 5, "ragged", 1.0).inputs(torch.float32))
    right = {"unit": "vclstm", "X": X, "H0": H0, "U": U, "V": V, "u": u, "v": v, "b": b, "C0": C0}
    return {**right, "sharpness": 1.0, "epsilon": EPSILON, **changed}


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"unit": "crnn"}, ValueError, "no unit 'crnn': choose from vcrnn, vcgru, vclstm"),
        ({"precision": "f8"}, ValueError, "no precision 'f8': choose from f32, f16, bf16, int8, w8a8"),
        ({"isa": "mmx"}, ValueError, "no instruction set 'mmx' on this processor: auto, or one of .*portable"),
        ({"threads": 0}, ValueError, "threads must be between 1 and 256, not 0"),
        ({"sharpness": 0.0}, ValueError, "sharpness must be above 0"),
        ({"sharpness": math.nan}, ValueError, "sharpness must be above 0"),
        ({"epsilon": 0.5}, ValueError, "epsilon must be between 0 and 0.5"),
        ({"X": np.zeros((2, 3), np.float32)}, ValueError, r"X must have the shape \[T, B, D\] .*, not \[2, 3\]"),
        ({"X": np.zeros((0, 3, 5), np.float32)}, ValueError, r"with T and D above 0, not \[0, 3, 5\]"),
        (
            {"X": np.zeros((1, 0, 70_000), np.float32)},
            ValueError,
            "70000 dimensions is too large: the kernels take up to 65536",
        ),
        ({"X": np.zeros((2, 3, 5))}, TypeError, "X must be an array of float32"),
        ({"H0": np.zeros((2, 5), np.float32)}, ValueError, r"H0 must have the shape \[3, 5\], not \[2, 5\]"),
        ({"U": np.zeros((15, 5), np.float32)}, ValueError, r"U must have the shape \[20, 5\], not \[15, 5\]"),
        ({"V": np.zeros((5, 20), np.float32).T}, ValueError, "V must be contiguous"),
        ({"U": np.full((20, 5), math.inf, np.float32)}, ValueError, "a weight is inf"),
        ({"u": np.full(5, math.nan, np.float32)}, ValueError, "a weight of the scheduler"),
        ({"V": np.full((20, 5), 1e5, np.float32), "precision": "f16"}, ValueError, "beyond f16"),
        ({"b": np.zeros(2, np.float32)}, ValueError, r"b must have the shape \[1\], not \[2\]"),
        ({"m": np.zeros((3, 2), np.float32)}, ValueError, r"m must have the shape \[2, 3\], not \[3, 2\]"),
        ({"C0": None}, ValueError, "vclstm needs C0"),
        ({"unit": "vcgru"}, ValueError, "vcgru has no cell"),
    ],
)
def test_what_is_wrong_is_said(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        _native.op(**wrong(**changed))
