"""Explicit gradients of the units, batched over time.

The forward pass saves only its outputs. Y and M determine every h_{t-1} and every mask, so the gates of all T steps
are recomputed in a few large matrix products. The loop keeps only what depends on the following step, and each weight
gradient is one large product. The tests compare these functions with autograd on the reference
(vcdeploy.reference.cells).

Names: dX is the gradient of the loss with respect to X. P is h_{t-1} for every t [T, B, D].
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear

from vcdeploy.reference.cells import mask


def _before(Y: Tensor, H0: Tensor) -> Tensor:
    """The state before every step: [H0, Y_1, …, Y_{T-1}]."""
    return torch.cat([H0.unsqueeze(0), Y[:-1]])


def _slopes(M: Tensor, e: Tensor, P: Tensor, X: Tensor, sharpness: float) -> tuple[Tensor, Tensor, Tensor]:
    """de/dm [T, B, D] (0 where thresholded), d(hbar, xbar)/dm [T, B, 2D] and dm/d(u·h + v·x + b) [T, B]."""
    de_dm = (sharpness * e.shape[-1]) * e * (1 - e)
    return de_dm, torch.cat([P * de_dm, X * de_dm], -1), M * (1 - M)


def _weights(d_gates: Tensor, inputs: Tensor) -> Tensor:
    """The gradient of a weight matrix: the sum of outer products over all steps and sequences."""
    return d_gates.flatten(0, 1).t() @ inputs.flatten(0, 1)


def _inputs_and_scheduler(
    dbar: Tensor, ds: Tensor, e: Tensor, P: Tensor, X: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dX, du, dv, db from dbar [T, B, 2D], the gradient of (hbar, xbar), and ds [T, B], that of u·h + v·x + b."""
    dX = dbar[..., X.shape[-1] :] * e + ds.unsqueeze(-1) * v
    flat = ds.flatten()
    return dX, flat @ P.flatten(0, 1), flat @ X.flatten(0, 1), flat.sum().view(1)


def vcrnn_backward(
    dY: Tensor,
    dH: Tensor,
    dM: Tensor,
    X: Tensor,
    H0: Tensor,
    U: Tensor,
    V: Tensor,
    u: Tensor,
    v: Tensor,
    Y: Tensor,
    M: Tensor,
    sharpness: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of X, H0, U, V, u, v, b."""
    D = X.shape[-1]
    P = _before(Y, H0)
    e = mask(M, D, sharpness, epsilon)
    de_dm, dbar_dm, dm_ds = _slopes(M, e, P, X, sharpness)
    hbar, xbar = e * P, e * X
    new = torch.tanh(linear(hbar, U) + linear(xbar, V))
    UV = torch.cat([U, V], 1)  # [D, 2D]

    d_gates, dbar, ds = torch.empty_like(new), torch.empty_like(dbar_dm), torch.empty_like(M)
    dh_dm, to_gates, keep = (new - P) * de_dm, e * (1 - new * new), 1 - e
    dh = dH
    for t in range(len(X) - 1, -1, -1):
        dh = dh + dY[t]
        torch.mul(dh, to_gates[t], out=d_gates[t])
        torch.mm(d_gates[t], UV, out=dbar[t])
        dm = (dh * dh_dm[t]).sum(-1) + (dbar[t] * dbar_dm[t]).sum(-1) + dM[t]
        torch.mul(dm, dm_ds[t], out=ds[t])
        dh = torch.addcmul(dh * keep[t], dbar[t, :, :D], e[t]).addr_(ds[t], u)
    dX, du, dv, db = _inputs_and_scheduler(dbar, ds, e, P, X, v)
    return dX, dh, _weights(d_gates, hbar), _weights(d_gates, xbar), du, dv, db


def vcgru_backward(
    dY: Tensor,
    dH: Tensor,
    dM: Tensor,
    X: Tensor,
    H0: Tensor,
    U: Tensor,
    V: Tensor,
    u: Tensor,
    v: Tensor,
    Y: Tensor,
    M: Tensor,
    sharpness: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of X, H0, U, V, u, v, b."""
    D = X.shape[-1]
    P = _before(Y, H0)
    e = mask(M, D, sharpness, epsilon)
    de_dm, dbar_dm, dm_ds = _slopes(M, e, P, X, sharpness)
    hbar, xbar = e * P, e * X
    from_x = linear(xbar, V)  # [T, B, 3D]
    r, s = torch.sigmoid(linear(hbar, U[: 2 * D]) + from_x[..., : 2 * D]).chunk(2, -1)  # z = e * s
    rh = r * hbar
    g = torch.tanh(linear(rh, U[2 * D :]) + from_x[..., 2 * D :])
    z = e * s
    UV_rz = torch.cat([U[: 2 * D], V[: 2 * D]], 1)  # [2D, 2D]
    UV_g = torch.cat([U[2 * D :], V[2 * D :]], 1)  # [D, 2D]

    d_gates, dbar, ds = torch.empty_like(from_x), torch.empty_like(dbar_dm), torch.empty_like(M)
    dh_dm, keep = (g - P) * s * de_dm, 1 - z
    to_g, to_s, to_r = z * (1 - g * g), (g - P) * z * (1 - s), hbar * r * (1 - r)
    dh = dH
    for t in range(len(X) - 1, -1, -1):
        dh = dh + dY[t]
        d_r, d_s, d_g = d_gates[t].split(D, -1)
        torch.mul(dh, to_g[t], out=d_g)
        torch.mul(dh, to_s[t], out=d_s)
        of_g = d_g @ UV_g  # [B, 2D]: gradient of (r ⊙ hbar, xbar)
        torch.mul(of_g[:, :D], to_r[t], out=d_r)
        of_g[:, :D] *= r[t]
        torch.addmm(of_g, d_gates[t, :, : 2 * D], UV_rz, out=dbar[t])
        dm = (dh * dh_dm[t]).sum(-1) + (dbar[t] * dbar_dm[t]).sum(-1) + dM[t]
        torch.mul(dm, dm_ds[t], out=ds[t])
        dh = torch.addcmul(dh * keep[t], dbar[t, :, :D], e[t]).addr_(ds[t], u)
    dU = torch.cat([_weights(d_gates[..., : 2 * D], hbar), _weights(d_gates[..., 2 * D :], rh)])
    dX, du, dv, db = _inputs_and_scheduler(dbar, ds, e, P, X, v)
    return dX, dh, dU, _weights(d_gates, xbar), du, dv, db


def vclstm_backward(
    dY: Tensor,
    dH: Tensor,
    dM: Tensor,
    dC: Tensor,
    X: Tensor,
    H0: Tensor,
    U: Tensor,
    V: Tensor,
    u: Tensor,
    v: Tensor,
    C0: Tensor,
    Y: Tensor,
    M: Tensor,
    sharpness: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of X, H0, U, V, u, v, b, C0."""
    D = X.shape[-1]
    P = _before(Y, H0)
    e = mask(M, D, sharpness, epsilon)
    de_dm, dbar_dm, dm_ds = _slopes(M, e, P, X, sharpness)
    hbar, xbar = e * P, e * X
    gates = linear(hbar, U) + linear(xbar, V)  # [T, B, 4D]
    i, f, o = (torch.sigmoid(gates[..., k * D : (k + 1) * D]) for k in (0, 1, 3))
    g = torch.tanh(gates[..., 2 * D : 3 * D])
    cells = [C0]  # the gates do not depend on c, so its recurrence needs no matrix products
    for t in range(len(X)):
        cells.append(e[t] * (f[t] * cells[-1] + i[t] * g[t]) + (1 - e[t]) * cells[-1])
    c_before, c_after = torch.stack(cells[:-1]), torch.stack(cells[1:])
    tanh_c = torch.tanh(c_after)
    UV = torch.cat([U, V], 1)  # [4D, 2D]

    d_gates, dbar, ds = torch.empty_like(gates), torch.empty_like(dbar_dm), torch.empty_like(M)
    dh_dm, keep = (o * tanh_c - P) * de_dm, 1 - e
    dc_dm, keep_c = (f * c_before + i * g - c_before) * de_dm, e * f + keep
    to_c = e * o * (1 - tanh_c * tanh_c)
    to_i, to_f = e * g * i * (1 - i), e * c_before * f * (1 - f)
    to_g, to_o = e * i * (1 - g * g), e * tanh_c * o * (1 - o)
    dh, dc = dH, dC
    for t in range(len(X) - 1, -1, -1):
        dh = dh + dY[t]
        dc = dc + dh * to_c[t]
        d_i, d_f, d_g, d_o = d_gates[t].split(D, -1)
        torch.mul(dc, to_i[t], out=d_i)
        torch.mul(dc, to_f[t], out=d_f)
        torch.mul(dc, to_g[t], out=d_g)
        torch.mul(dh, to_o[t], out=d_o)
        torch.mm(d_gates[t], UV, out=dbar[t])
        dm = (dh * dh_dm[t] + dc * dc_dm[t]).sum(-1) + (dbar[t] * dbar_dm[t]).sum(-1) + dM[t]
        torch.mul(dm, dm_ds[t], out=ds[t])
        dc = dc * keep_c[t]
        dh = torch.addcmul(dh * keep[t], dbar[t, :, :D], e[t]).addr_(ds[t], u)
    dX, du, dv, db = _inputs_and_scheduler(dbar, ds, e, P, X, v)
    return dX, dh, _weights(d_gates, hbar), _weights(d_gates, xbar), du, dv, db, dc


Gradients = Callable[..., tuple[Tensor, ...]]


def _dense(variable: Gradients, dY: Tensor, dH: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    """The gradients of a dense unit, those of its variable unit where m is 2: the mask is 1 everywhere, and flat.

    rest: dC (lstm only), X, H0, U, V, C0 (lstm only), Y. Returns the gradients of X, H0, U, V and C0.
    """
    *others, Y = rest
    dC, others, C0 = (others[:1], others[1:5], others[5:]) if len(others) > 4 else ([], others, [])
    M, none = Y.new_full(Y.shape[:2], 2), Y.new_zeros(Y.shape[2])
    inputs = (dY, dH, torch.zeros_like(M), *dC, *others, none, none, *C0, Y, M)
    dX, dH0, dU, dV, _, _, _, *dC0 = variable(*inputs, sharpness=8.0, epsilon=1e-3)
    return dX, dH0, dU, dV, *dC0


BACKWARD: dict[str, Gradients] = {
    "vcrnn": vcrnn_backward,
    "vcgru": vcgru_backward,
    "vclstm": vclstm_backward,
    "rnn": partial(_dense, vcrnn_backward),
    "gru-reset-first": partial(_dense, vcgru_backward),
    "lstm": partial(_dense, vclstm_backward),
}
