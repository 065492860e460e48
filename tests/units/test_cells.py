"""The reference: its equations, and the exactness of skipping."""

import math

import pytest
import torch
from cases import CASES, EPSILON, GATES, REFERENCE, Case, mask_of, small
from prefix_form import prefix_form
from torch import Tensor

from vcdeploy.reference import cells
from vcdeploy.reference.cells import active, mask


def weigh(outputs: tuple[Tensor, ...]) -> Tensor:
    """A scalar that depends on every element of every output, each with a different weight."""
    return sum(
        ((each * torch.linspace(-1, 1, each.numel(), dtype=each.dtype).view_as(each)).sum() for each in outputs),
        torch.zeros((), dtype=outputs[0].dtype),
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_prefix_form_is_exact_forward_and_backward(case: Case) -> None:
    inputs = [each.requires_grad_() for each in case.inputs()]
    dense = REFERENCE[case.unit](*inputs, case.sharpness, EPSILON)
    prefix = prefix_form(case.unit, *inputs, case.sharpness, EPSILON)
    for name, one, other in zip("YHMC", dense, prefix, strict=False):
        assert (one - other).abs().max() <= 1e-12, name
    gradients = torch.autograd.grad(weigh(dense), inputs)
    from_prefix = torch.autograd.grad(weigh(prefix), inputs)
    for name, one, other in zip(("X", "H0", "U", "V", "u", "v", "b", "C0"), gradients, from_prefix, strict=False):
        # relative to the largest element: rounding in sums of up to T·B·D terms
        assert (one - other).abs().max() <= 1e-12 * max(1, one.abs().max().item()), name


@pytest.mark.parametrize("unit", GATES)
@pytest.mark.parametrize("level", ["zero", "ragged", "edge", "one"])
def test_gradcheck(unit: str, level: str) -> None:
    case = Case(unit, 3, 2, 6, level, 0.8)
    inputs = [each.requires_grad_() for each in case.inputs()]

    def call(*tensors: Tensor) -> tuple[Tensor, ...]:
        return REFERENCE[unit](*tensors, case.sharpness, EPSILON)

    assert torch.autograd.gradcheck(call, inputs)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_past_the_active_dimensions_the_bits_are_untouched(case: Case, dtype: torch.dtype) -> None:
    X, H0, *rest = case.inputs(dtype)
    H0[:, ::3] = -0.0  # adding 0 would turn it into +0
    cell = rest[-1].clone() if case.unit == "vclstm" else None
    Y, _, M, *C = REFERENCE[case.unit](X, H0, *rest, case.sharpness, EPSILON)
    a = active(M, case.D, case.sharpness, EPSILON)
    before = torch.cat([H0.unsqueeze(0), Y[:-1]])
    past = torch.arange(1, case.D + 1) > a.unsqueeze(-1)  # [T, B, D]
    integers = torch.int32 if dtype == torch.float32 else torch.int64
    assert torch.equal(Y.view(integers)[past], before.view(integers)[past])
    if cell is not None:
        never = past.all(0)
        assert torch.equal(C[0].view(integers)[never], cell.view(integers)[never])


def test_the_cases_reach_what_they_are_for() -> None:
    seen = {}
    for case in CASES:
        M = REFERENCE[case.unit](*case.inputs(), case.sharpness, EPSILON)[2]
        a = active(M, case.D, case.sharpness, EPSILON)
        seen[case.level, case.D, case.sharpness] = a
    assert (seen["edge", 97, 1.0] == 64).all()
    assert (seen["edge", 256, 1.0] == 64).all()
    assert (seen["one", 97, 1.0] == 97).all()
    assert seen["zero", 97, 1.0].max() < 10
    assert seen["ragged", 97, 0.5].unique().numel() > 5


def test_small_sharpness_uses_the_whole_state() -> None:
    for m in (0.01, 0.5, 0.99):
        assert active(torch.tensor([m]), 64, 0.01, EPSILON) == 64


def test_the_mask_matches_a_manual_calculation() -> None:
    D, m, sharpness = 32, 0.5, 1.0
    e = mask(torch.tensor([m], dtype=torch.float64), D, sharpness, EPSILON)[0]
    for i in range(1, D + 1):
        soft = 1 / (1 + math.exp(-sharpness * (m * D - i)))
        wanted = 1.0 if soft > 1 - EPSILON else 0.0 if soft < EPSILON else soft
        assert e[i - 1] == pytest.approx(wanted, abs=1e-15)
    assert e[8] == 1 and e[9] < 1  # 16 - 9 = 7 > ln(999) = 6.907
    assert e[21] > 0 and e[22] == 0


@pytest.mark.parametrize("unit", GATES)
def test_one_step_matches_a_manual_calculation(unit: str) -> None:
    """D = 1, B = 1, T = 1: the equations of docs/design.md in Python floats."""
    x, h, c, u, v, b, sharpness = 0.7, -0.3, 0.4, 0.2, -0.5, 0.9, 0.6
    U, V = [0.5, -0.8, 1.1, 0.3][: GATES[unit]], [-0.4, 0.9, 0.6, -1.2][: GATES[unit]]

    def sigmoid(value: float) -> float:
        return 1 / (1 + math.exp(-value))

    m = sigmoid(u * h + v * x + b)
    e = sigmoid(sharpness * (m * 1 - 1))
    hbar, xbar = e * h, e * x
    new_c = c
    if unit == "vcrnn":
        new = e * math.tanh(U[0] * hbar + V[0] * xbar) + (1 - e) * h
    elif unit == "vcgru":
        r = sigmoid(U[0] * hbar + V[0] * xbar)
        z = e * sigmoid(U[1] * hbar + V[1] * xbar)
        g = math.tanh(U[2] * (r * hbar) + V[2] * xbar)
        new = z * g + (1 - z) * h
    else:
        i, f, g, o = (U[k] * hbar + V[k] * xbar for k in range(4))
        new_c = e * (sigmoid(f) * c + sigmoid(i) * math.tanh(g)) + (1 - e) * c
        new = e * (sigmoid(o) * math.tanh(new_c)) + (1 - e) * h

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64).view(-1, 1)

    one = [column([x]).view(1, 1, 1), column([h]), column(U), column(V)]
    rest = [torch.tensor([each], dtype=torch.float64) for each in (u, v, b)]
    cell = [column([c])] if unit == "vclstm" else []
    Y, H, M, *C = REFERENCE[unit](*one, *rest, *cell, sharpness, EPSILON)
    assert Y.item() == pytest.approx(new, abs=1e-15)
    assert H.item() == Y.item()
    assert M.item() == pytest.approx(m, abs=1e-15)
    assert [each.item() for each in C] == [pytest.approx(new_c, abs=1e-15)] * len(cell)


@pytest.mark.parametrize(("unit", "variable"), [("rnn", "vcrnn"), ("gru-reset-first", "vcgru"), ("lstm", "vclstm")])
def test_a_dense_unit_is_its_variable_unit_with_a_mask_of_ones(
    unit: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, scheduled = small(unit).inputs(), small(variable).inputs()
    assert all(map(torch.equal, inputs[:4], scheduled[:4]))
    monkeypatch.setattr(cells, "mask", lambda m, dim, *_: m.new_ones(*m.shape, dim))
    Y, H, _, *C = REFERENCE[variable](*scheduled, *mask_of(variable))
    for one, other in zip(REFERENCE[unit](*inputs), (Y, H, *C), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("unit", GATES)
@pytest.mark.parametrize("where", ["X", "H0"])
def test_nan_in_nan_out(unit: str, where: str) -> None:
    """A NaN makes m NaN, so the whole state of that sequence is NaN from then on; other sequences are unaffected."""
    case = Case(unit, 4, 3, 7, "ragged", 1.0)
    inputs = case.inputs()
    if where == "X":
        inputs[0][1, 2, 5] = math.nan
    else:
        inputs[1][2, 5] = math.nan
    Y = REFERENCE[unit](*inputs, case.sharpness, EPSILON)[0]
    first = 1 if where == "X" else 0
    assert Y[first:, 2].isnan().all()
    assert not Y[:, :2].isnan().any()
