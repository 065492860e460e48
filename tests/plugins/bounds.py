"""Error bounds of a kernel's step against the reference, derived from its roundings and never fitted to its output."""

from collections.abc import Callable
from unittest.mock import patch

import torch
from cases import EPSILON, Case
from torch import Tensor

from vcdeploy.format.precision import TANH_ERROR
from vcdeploy.reference import cells
from vcdeploy.reference.cells import active, mask, update_fraction

STEPS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "vcrnn": cells.vcrnn_step,
    "vcgru": cells.vcgru_step,
    "vclstm": cells.vclstm_step,
}

ROUNDING = 2.0**-24  # relative rounding error of a float
ACTIVATION = 2.0**-22  # error of sigmoid and tanh (test_sigmoid_and_tanh); if quantized TANH_ERROR
# The sum of independent errors with mean 0 and magnitudes up to d_1, d_2, … exceeds 6·sqrt(Σ d²) with a probability
# below 2 exp(-18) = 3e-8 (Hoeffding); the cases below have less than a million sums.
SURE = 6.0
LEVELS = {"int8": 2**14, "w8a8": 127}  # levels of an activation, up to D = 1032


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
    """h' (and c') of the reference, with a given m instead of the scheduler's."""
    with patch.object(cells, "update_fraction", lambda *inputs: m):
        *after, _ = STEPS[unit](x, h, *cell, *weights, sharpness, epsilon)
    return after


def m_bound(precision: str) -> float:
    """Error bound of m: one rounding; if quantized that of its own sigmoid and of a float32 logit."""
    return TANH_ERROR / 2 + 2 * ROUNDING if precision in LEVELS else ROUNDING


def state_range(h: Tensor) -> Tensor:
    """The magnitude of a state's highest level, [B, 1]."""
    return h.abs().amax(1, keepdim=True).clamp(min=1)


def product_bound(
    W: Tensor, x: Tensor, precision: str, x_error: Tensor | float = 0.0, reach: Tensor | None = None
) -> Tensor:
    """Error bound of W x, for W [rows, D] and x [B, D]. x_error: error bound of x.

    reach [B, 1]: the magnitude of the highest level of x; by default that of a state.
    """
    kept = {"f32": 0.0, "f16": 2.0**-11, "bf16": 2.0**-8}  # a weight is rounded to 24, 11 or 8 significant bits
    if precision in LEVELS:  # half a level of the row (127 levels) and half a level of the vector
        W_error = W.abs().amax(1, keepdim=True).expand_as(W) / 254
        x_error = x_error + (state_range(x) if reach is None else reach) / (2 * LEVELS[precision])
    else:
        W_error = kept[precision] * W.abs()
        if precision == "f16":  # subnormal below 2^-14: the spacing is 2^-24
            W_error = torch.clamp(W_error, min=2.0**-25)
    x_error = x_error + 2 * ROUNDING * x.abs()  # e as a float, times x
    of_storage = x.square() @ W_error.square().T + x_error.square() @ W.square().T
    # Every addition rounds a partial sum, which is at most Σ |w| |x|; one per column, plus a few.
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
    bias: Tensor | None = None,
    *,
    tabulated: bool = False,
    mask_error: float = 0.0,
) -> list[Tensor]:
    """Error bounds of h' (and c') of one step, by differentiating the equations of docs/design.md.

    e: the mask; ones for a dense unit. bias: of a dense unit, as the reference takes it.
    tabulated: V xbar is a table entry plus or minus the columns in between, which may be past the active dimensions, so
    every column's weight counts with the full x. If quantized, the table holds integers, and is exact.
    mask_error: relative error bound of e beyond its rounding to a float.
    """
    U, V = weights[:2]
    D = h.shape[1]
    activation = ACTIVATION
    if precision in LEVELS:  # the mask also uses another sigmoid, on a float32 m*D - i
        activation = TANH_ERROR
        mask_error = max(mask_error, (TANH_ERROR / 2 + ROUNDING) / EPSILON + 4 * ROUNDING * D)
    c = cell[0] if cell else torch.zeros_like(h)
    hbar, xbar = e * h, e * x
    G = len(U)
    added = torch.zeros(G) if bias is None else bias[:G].double()
    sums = hbar @ U.T + xbar @ V.T + added
    inputs = x if tabulated and precision not in LEVELS else xbar
    of_input = product_bound(V, inputs, precision, mask_error * xbar.abs(), reach=x.abs().amax(1, keepdim=True))
    of_input = of_input + 4 * ROUNDING * added.abs()  # added to a sum that is rounded again twice
    off = (product_bound(U, hbar, precision, mask_error * hbar.abs()).square() + of_input.square()).sqrt()
    gate = off / 4 + activation  # the slope of sigmoid is at most 1/4, that of tanh 1
    roundings = 8 * ROUNDING * (1 + h.abs() + c.abs()) + mask_error * e * (1 + h.abs() + 2 * c.abs())
    if unit in ("vcrnn", "rnn"):
        return [e * (off + activation) + roundings]
    if unit in ("vcgru", "gru-reset-first"):
        r, z = torch.sigmoid(sums[:, :D]), torch.sigmoid(sums[:, D : 2 * D])
        Uh, Vh = U[2 * D :], V[2 * D :]
        # the error of r; if quantized, r ⊙ hbar has the levels of hbar
        x_error = gate[:, :D] * hbar.abs() / SURE + mask_error * hbar.abs()
        reset = product_bound(Uh, r * hbar, precision, x_error, state_range(hbar))
        g_off = (reset.square() + of_input[:, 2 * D :].square()).sqrt() + activation
        g = torch.tanh((r * hbar) @ Uh.T + xbar @ Vh.T)
        return [e * (gate[:, D : 2 * D] * (g - h).abs() + z * g_off) + roundings]
    if unit == "gru":
        z, Un = torch.sigmoid(sums[:, D : 2 * D]), U[2 * D :]
        extra = torch.zeros(D) if bias is None else bias[G:].double()
        product = h @ Un.T + extra
        product_off = product_bound(Un, h, precision) + 4 * ROUNDING * extra.abs()
        n = torch.tanh(torch.sigmoid(sums[:, :D]) * product + x @ V[2 * D :].T + added[2 * D :])
        n_off = gate[:, :D] * product.abs() + product_off + of_input[:, 2 * D :] + activation
        return [gate[:, D : 2 * D] * (h - n).abs() + (1 - z) * n_off + roundings * (1 + product.abs())]
    i, f, g, o = sums.chunk(4, 1)
    i_off, f_off, _, o_off = gate.chunk(4, 1)
    g_off = off[:, 2 * D : 3 * D] + activation
    new_c = e * (torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)) + (1 - e) * c
    c_off = e * (f_off * c.abs() + i_off * torch.tanh(g).abs() + torch.sigmoid(i) * g_off) + roundings
    h_off = e * (o_off * torch.tanh(new_c).abs() + torch.sigmoid(o) * (c_off + activation)) + roundings
    return [h_off, c_off]


def check_steps(
    case: Case,
    precision: str,
    forward: Callable[[list[Tensor]], tuple[Tensor, ...]],
    *,
    m_error: float = ROUNDING,
    mask_error: float = 0.0,
) -> None:
    """Check that every step of a kernel, from its own state, is within the bounds, and that nothing changes past a.

    forward: takes X, H0, U, V, u, v, b and, for vclstm, C0. m_error: error bound of m; with a logit computed in double,
    m is rounded to a float once. mask_error: as in step_bounds.
    """
    X, H, U, V, u, v, b, *cell = case.inputs(torch.float32)
    H[:, ::3] = -0.0  # the sign must be kept past the active dimensions
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
            assert excess <= 0, f"{name} of step {t} exceeds its bound by {excess:.2e}"
        past = torch.arange(1, case.D + 1) > active(m, case.D, case.sharpness, EPSILON).unsqueeze(-1)
        for before, now in zip((H, *cell), (after, *after_cell), strict=True):
            assert torch.equal(now.view(torch.int32)[past], before.view(torch.int32)[past])
        H, cell = after, after_cell
