"""How far a kernel's step may be off the reference: derived from where it rounds, never fitted to what it gave."""

from collections.abc import Callable
from unittest.mock import patch

import torch
from cases import EPSILON, Case
from torch import Tensor

from vcdeploy.format.precision import TANH_ERROR
from vcdeploy.reference import cells
from vcdeploy.reference.scheduler import active, mask, update_fraction

STEPS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "vcrnn": cells.vcrnn_step,
    "vcgru": cells.vcgru_step,
    "vclstm": cells.vclstm_step,
}

ROUNDING = 2.0**-24  # of a float: half a unit in the last place of a number between 1 and 2, as a share of it
SQUASHING = 2.0**-22  # what sigmoid and tanh may be off: test_sigmoid_and_tanh; in int8 TANH_ERROR
# Errors that are independent, of mean 0 and at most d_1, d_2, … add up to more than 6·sqrt(Σ d²) with a probability
# below 2 exp(-18) = 3e-8 (Hoeffding); the cases below come to less than a million sums.
SURE = 6.0
LEVELS = 2**14  # of an activation in int8, up to D = 1032


def reference_step(
    unit: str,
    x: Tensor,
    h: Tensor,
    weights: list[Tensor],
    cell: list[Tensor],
    m: Tensor,
    sharpness: float,
    epsilon: float,
) -> list[Tensor]:
    """h' (and c') of the reference, with m given instead of scheduled."""
    with patch.object(cells, "update_fraction", lambda *inputs: m):
        *after, _ = STEPS[unit](x, h, *cell, *weights, sharpness, epsilon)
    return after


def m_bound(precision: str) -> float:
    """How far m may be off: rounded once; in int8 of a sigmoid of its own, of a logit in float32."""
    return TANH_ERROR / 2 + 2 * ROUNDING if precision == "int8" else ROUNDING


def state_range(h: Tensor) -> Tensor:
    """What all levels of a state make up in int8, [B, 1]."""
    return h.abs().amax(1, keepdim=True).clamp(min=1)


def product_bound(
    W: Tensor, x: Tensor, precision: str, x_error: Tensor | float = 0.0, reach: Tensor | None = None
) -> Tensor:
    """How far W x may be off, for W [rows, D] and x [B, D]; x_error is how far x itself may be.

    reach [B, 1]: what all levels of x make up in int8; by default those of a state.
    """
    kept = {"f32": 0.0, "f16": 2.0**-11, "bf16": 2.0**-8}  # a weight is rounded to 24, 11 or 8 significant bits
    if precision == "int8":  # half a level of the row's 127, half a level of the vector's
        W_error = W.abs().amax(1, keepdim=True).expand_as(W) / 254
        x_error = x_error + (state_range(x) if reach is None else reach) / (2 * LEVELS)
    else:
        W_error = kept[precision] * W.abs()
        if precision == "f16":  # below 2^-14 its steps are all 2^-24
            W_error = torch.clamp(W_error, min=2.0**-25)
    x_error = x_error + 2 * ROUNDING * x.abs()  # e as a float, times x
    of_storage = x.square() @ W_error.square().T + x_error.square() @ W.square().T
    # Every addition rounds a partial sum, which is at most Σ |w| |x|; there are as many as columns, and a few.
    additions = x.shape[1] + 16
    of_sums = additions**0.5 * ROUNDING * (x.abs() @ W.abs().T)
    return SURE * (of_storage.sqrt() + of_sums)


def step_bounds(
    unit: str,
    precision: str,
    x: Tensor,
    h: Tensor,
    e: Tensor,
    weights: list[Tensor],
    cell: list[Tensor],
    *,
    tabulated: bool = False,
    mask_error: float = 0.0,
) -> list[Tensor]:
    """How far h' (and c') of one step may be off the reference: the equations of docs/design.md, differentiated.

    tabulated: V xbar is a sum looked up, less or more the columns between, which may lie past the active dimensions:
    any column's weight may count with the whole of x. In int8 whole numbers are looked up, and nothing is lost.
    mask_error: how far e may be off, as a share of it, beyond its rounding to a float.
    """
    U, V = weights[:2]
    D = h.shape[1]
    squashing = SQUASHING
    if precision == "int8":  # a sigmoid of its own makes the mask, too, of a float32 m*D - i
        squashing = TANH_ERROR
        mask_error = max(mask_error, (TANH_ERROR / 2 + ROUNDING) / EPSILON + 4 * ROUNDING * D)
    c = cell[0] if cell else torch.zeros_like(h)
    hbar, xbar = e * h, e * x
    sums = hbar @ U.T + xbar @ V.T
    inputs = x if tabulated and precision != "int8" else xbar
    of_input = product_bound(V, inputs, precision, mask_error * xbar.abs(), reach=x.abs().amax(1, keepdim=True))
    off = (product_bound(U, hbar, precision, mask_error * hbar.abs()).square() + of_input.square()).sqrt()
    gate = off / 4 + squashing  # sigmoid's slope is 1/4 at most, tanh's 1
    roundings = 8 * ROUNDING * (1 + h.abs() + c.abs()) + mask_error * e * (1 + h.abs() + 2 * c.abs())
    if unit == "vcrnn":
        return [e * (off + squashing) + roundings]
    if unit == "vcgru":
        r, z = torch.sigmoid(sums[:, :D]), torch.sigmoid(sums[:, D : 2 * D])
        Uh, Vh = U[2 * D :], V[2 * D :]
        # r's own error; in int8 r ⊙ hbar has hbar's levels
        x_error = gate[:, :D] * hbar.abs() / SURE + mask_error * hbar.abs()
        reset = product_bound(Uh, r * hbar, precision, x_error, state_range(hbar))
        g_off = (reset.square() + of_input[:, 2 * D :].square()).sqrt() + squashing
        g = torch.tanh((r * hbar) @ Uh.T + xbar @ Vh.T)
        return [e * (gate[:, D : 2 * D] * (g - h).abs() + z * g_off) + roundings]
    i, f, g, o = sums.chunk(4, 1)
    i_off, f_off, _, o_off = gate.chunk(4, 1)
    g_off = off[:, 2 * D : 3 * D] + squashing
    new_c = e * (torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)) + (1 - e) * c
    c_off = e * (f_off * c.abs() + i_off * torch.tanh(g).abs() + torch.sigmoid(i) * g_off) + roundings
    h_off = e * (o_off * torch.tanh(new_c).abs() + torch.sigmoid(o) * (c_off + squashing)) + roundings
    return [h_off, c_off]


def check_steps(
    case: Case,
    precision: str,
    forward: Callable[[list[Tensor]], tuple[Tensor, ...]],
    *,
    m_error: float = ROUNDING,
    mask_error: float = 0.0,
) -> None:
    """Every step of a kernel, from its own state, is the reference's within the bounds, and nothing changes past a.

    forward: of X, H0, U, V, u, v, b and, for vclstm, C0. m_error: how far m may be off; where the logit is exact to
    double's rounding, m is rounded to a float once. mask_error: as in step_bounds.
    """
    X, H, U, V, u, v, b, *cell = case.inputs(torch.float32)
    H[:, ::3] = -0.0  # past the active dimensions its sign has to stay
    weights = [each.double() for each in (U, V, u, v, b)]
    for t in range(case.T):
        y, after, M, *after_cell = forward([X[t : t + 1], H, U, V, u, v, b, *cell])
        assert torch.equal(y[0], after)
        x, h, *c = (each.double() for each in (X[t], H, *cell))
        m = M[0].double()
        assert (m - update_fraction(x, h, *weights[2:])).abs().max() <= max(m_error, m_bound(precision))
        e = mask(m, case.D, case.sharpness, EPSILON)
        wanted = reference_step(case.unit, x, h, weights, c, m, case.sharpness, EPSILON)
        bounds = step_bounds(case.unit, precision, x, h, e, weights, c, mask_error=mask_error)
        for name, got, want, bound in zip("hc", (after, *after_cell), wanted, bounds, strict=False):
            excess = ((got - want).abs() - bound).max().item()
            assert excess <= 0, f"{name} of step {t} is {excess:.2e} beyond its bound"
        past = torch.arange(1, case.D + 1) > active(m, case.D, case.sharpness, EPSILON).unsqueeze(-1)
        for before, now in zip((H, *cell), (after, *after_cell), strict=True):
            assert torch.equal(now.view(torch.int32)[past], before.view(torch.int32)[past])
        H, cell = after, after_cell
