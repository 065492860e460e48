"""Reference implementation of each variable-computation unit, single step and sequence, in plain PyTorch.

Every kernel of the project is tested against this file. It computes densely and masks. The mask e is exactly 0 past a,
so rows and columns past a are multiplied by zeros only, and a kernel that reads only the upper-left a × a blocks of
U and V gets the same numbers, forward and backward.

Shapes: x, h, c [B, D]; U, V [G·D, D] with the gates stacked by rows; u, v [D]; b [1]; m [B].
Sequences: X [T, B, D], H0 [B, D] -> Y [T, B, D], H [B, D], M [T, B].
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from vcdeploy.reference.scheduler import mask, update_fraction


def blend(e: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """e ⊙ new + (1 - e) ⊙ old; bit-identical to old where e = 0 (the sum would turn -0 into 0)."""
    return torch.where(e == 0, old, e * new + (1 - e) * old)


def vcrnn_step(
    x: Tensor,
    h: Tensor,
    U: Tensor,
    V: Tensor,
    u: Tensor,
    v: Tensor,
    b: Tensor,
    sharpness: float,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """One VCRNN step. Returns the new h and m."""
    m = update_fraction(x, h, u, v, b)
    e = mask(m, h.shape[-1], sharpness, epsilon)
    new = torch.tanh(linear(e * h, U) + linear(e * x, V))
    return blend(e, new, h), m


def vcgru_step(
    x: Tensor,
    h: Tensor,
    U: Tensor,
    V: Tensor,
    u: Tensor,
    v: Tensor,
    b: Tensor,
    sharpness: float,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """One VCGRU step. Returns the new h and m. Gates: r, z, h; the reset gate is applied before the matrix product."""
    D = h.shape[-1]
    m = update_fraction(x, h, u, v, b)
    e = mask(m, D, sharpness, epsilon)
    hbar = e * h
    from_x = linear(e * x, V)
    r, z = torch.sigmoid(linear(hbar, U[: 2 * D]) + from_x[:, : 2 * D]).chunk(2, -1)
    g = torch.tanh(linear(r * hbar, U[2 * D :]) + from_x[:, 2 * D :])
    return blend(e * z, g, h), m


def vclstm_step(
    x: Tensor,
    h: Tensor,
    c: Tensor,
    U: Tensor,
    V: Tensor,
    u: Tensor,
    v: Tensor,
    b: Tensor,
    sharpness: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """One VCLSTM step. Returns the new h, the new c and m. Gates: i, f, g, o."""
    m = update_fraction(x, h, u, v, b)
    e = mask(m, h.shape[-1], sharpness, epsilon)
    i, f, g, o = (linear(e * h, U) + linear(e * x, V)).chunk(4, -1)
    c = blend(e, torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g), c)
    return blend(e, torch.sigmoid(o) * torch.tanh(c), h), c, m


STEPS: dict[str, Callable[..., tuple[Tensor, ...]]] = {"vcrnn": vcrnn_step, "vcgru": vcgru_step, "vclstm": vclstm_step}


def vcrnn(
    X: Tensor, H0: Tensor, U: Tensor, V: Tensor, u: Tensor, v: Tensor, b: Tensor, sharpness: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """A VCRNN over a sequence. Returns Y, H, M."""
    return _sequence(vcrnn_step, X, H0, U, V, u, v, b, sharpness, epsilon)


def vcgru(
    X: Tensor, H0: Tensor, U: Tensor, V: Tensor, u: Tensor, v: Tensor, b: Tensor, sharpness: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """A VCGRU over a sequence. Returns Y, H, M."""
    return _sequence(vcgru_step, X, H0, U, V, u, v, b, sharpness, epsilon)


def _sequence(
    step: Callable[..., tuple[Tensor, Tensor]], X: Tensor, H0: Tensor, *weights: Any
) -> tuple[Tensor, Tensor, Tensor]:
    h, states, fractions = H0, [], []
    for x in X:
        h, m = step(x, h, *weights)
        states.append(h)
        fractions.append(m)
    return torch.stack(states), h, torch.stack(fractions)


def vclstm(
    X: Tensor,
    H0: Tensor,
    U: Tensor,
    V: Tensor,
    u: Tensor,
    v: Tensor,
    b: Tensor,
    C0: Tensor,
    sharpness: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A VCLSTM over a sequence. Returns Y, H, M, C."""
    h, c, states, fractions = H0, C0, [], []
    for x in X:
        h, c, m = vclstm_step(x, h, c, U, V, u, v, b, sharpness, epsilon)
        states.append(h)
        fractions.append(m)
    return torch.stack(states), h, torch.stack(fractions), c
