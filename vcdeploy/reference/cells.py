"""Reference implementation: the scheduler and each unit, single step and sequence, in plain PyTorch.

Every kernel of the project is tested against this file. The scheduler decides how much of the state a step updates
(docs/design.md, section 1):

    m = sigmoid(u·h + v·x + b)                     update fraction: m·D of the D dimensions
    e_i = Thres(sigmoid(sharpness * (m*D - i)))    soft mask, i = 1 … D
    a = the largest i with e_i > 0                 active dimensions; the rest of the state is unchanged

Thres makes the mask exact: values above 1 - epsilon become 1, values below epsilon become 0.

A variable unit computes densely and masks. The mask is exactly 0 past a, so rows and columns past a are multiplied by
zeros only, and a kernel that reads only the upper-left a × a blocks of U and V gets the same numbers, forward and
backward. A dense unit has the same equations with e = 1; one imported from PyTorch has biases.

Shapes: x, h, c [B, D]; U, V [G·D, D] with the gates stacked by rows; u, v [D]; b [1]; m [B]; bias [G·D].
Sequences: X [T, B, D], H0 [B, D] -> Y [T, B, D], H [B, D], M [T, B].
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear


def update_fraction(x: Tensor, h: Tensor, u: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """Update fraction m in [0, 1], shape [...], for inputs x and states h, both [..., D]."""
    return torch.sigmoid(h @ u + x @ v + b)


def mask(m: Tensor, dim: int, sharpness: float, epsilon: float) -> Tensor:
    """Soft mask e [..., D] for m [...]; exactly 0 past the active dimensions."""
    i = torch.arange(1, dim + 1, dtype=m.dtype, device=m.device)
    e = torch.sigmoid(sharpness * (m.unsqueeze(-1) * dim - i))
    e = torch.where(e > 1 - epsilon, torch.ones_like(e), e)
    return torch.where(e < epsilon, torch.zeros_like(e), e)


def active(m: Tensor, dim: int, sharpness: float, epsilon: float) -> Tensor:
    """Number of active dimensions a for m [...], int64 [...]."""
    return (mask(m, dim, sharpness, epsilon) > 0).sum(-1)


def blend(e: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """e ⊙ new + (1 - e) ⊙ old; bit-identical to old where e = 0 (the sum would turn -0 into 0)."""
    return torch.where(e == 0, old, e * new + (1 - e) * old)


def rnn_step(x: Tensor, h: Tensor, U: Tensor, V: Tensor, bias: Tensor | None = None) -> Tensor:
    """One RNN step. Returns the new h."""
    return torch.tanh(linear(h, U) + linear(x, V, bias))


def _gru_gates(x: Tensor, h: Tensor, U: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    """The gate z and the candidate g. Gates: r, z, h; the reset gate is applied before the matrix product."""
    D = h.shape[-1]
    from_x = linear(x, V)
    r, z = torch.sigmoid(linear(h, U[: 2 * D]) + from_x[:, : 2 * D]).chunk(2, -1)
    return z, torch.tanh(linear(r * h, U[2 * D :]) + from_x[:, 2 * D :])


def gru_reset_first_step(x: Tensor, h: Tensor, U: Tensor, V: Tensor) -> Tensor:
    """One GRU step, in the paper's form. Returns the new h."""
    z, g = _gru_gates(x, h, U, V)
    return z * g + (1 - z) * h


def gru_step(x: Tensor, h: Tensor, U: Tensor, V: Tensor, bias: Tensor | None = None) -> Tensor:
    """One GRU step, in PyTorch's form. Returns the new h. Gates: r, z, n; the reset gate multiplies the product U_n h.

    bias [4D]: of r, z and n, then of the product U_n h.
    """
    D = h.shape[-1]
    of_gates, of_product = (None, None) if bias is None else bias.split([3 * D, D])
    from_x, from_h = linear(x, V, of_gates), linear(h, U)
    r, z = torch.sigmoid(from_h[:, : 2 * D] + from_x[:, : 2 * D]).chunk(2, -1)
    product = from_h[:, 2 * D :] if of_product is None else from_h[:, 2 * D :] + of_product
    return z * h + (1 - z) * torch.tanh(r * product + from_x[:, 2 * D :])


def _lstm_gates(
    x: Tensor, h: Tensor, c: Tensor, U: Tensor, V: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The new cell and the gate o. Gates: i, f, g, o."""
    i, f, g, o = (linear(h, U) + linear(x, V, bias)).chunk(4, -1)
    return torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g), torch.sigmoid(o)


def lstm_step(
    x: Tensor, h: Tensor, c: Tensor, U: Tensor, V: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """One LSTM step. Returns the new h and the new c."""
    c, o = _lstm_gates(x, h, c, U, V, bias)
    return o * torch.tanh(c), c


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
    return blend(e, rnn_step(e * x, e * h, U, V), h), m


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
    """One VCGRU step. Returns the new h and m."""
    m = update_fraction(x, h, u, v, b)
    e = mask(m, h.shape[-1], sharpness, epsilon)
    z, g = _gru_gates(e * x, e * h, U, V)
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
    """One VCLSTM step. Returns the new h, the new c and m."""
    m = update_fraction(x, h, u, v, b)
    e = mask(m, h.shape[-1], sharpness, epsilon)
    new, o = _lstm_gates(e * x, e * h, c, U, V)
    c = blend(e, new, c)
    return blend(e, o * torch.tanh(c), h), c, m


STEPS: dict[str, Callable[..., Any]] = {
    "vcrnn": vcrnn_step,
    "vcgru": vcgru_step,
    "vclstm": vclstm_step,
    "rnn": rnn_step,
    "gru-reset-first": gru_reset_first_step,
    "gru": gru_step,
    "lstm": lstm_step,
}


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


def rnn(X: Tensor, H0: Tensor, U: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    """An RNN over a sequence. Returns Y, H."""
    return _dense_sequence(rnn_step, X, H0, U, V)


def gru_reset_first(X: Tensor, H0: Tensor, U: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    """A GRU of the paper's form over a sequence. Returns Y, H."""
    return _dense_sequence(gru_reset_first_step, X, H0, U, V)


def _dense_sequence(
    step: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], X: Tensor, H0: Tensor, U: Tensor, V: Tensor
) -> tuple[Tensor, Tensor]:
    h, states = H0, []
    for x in X:
        h = step(x, h, U, V)
        states.append(h)
    return torch.stack(states), h


def lstm(X: Tensor, H0: Tensor, U: Tensor, V: Tensor, C0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM over a sequence. Returns Y, H, C."""
    h, c, states = H0, C0, []
    for x in X:
        h, c = lstm_step(x, h, c, U, V)
        states.append(h)
    return torch.stack(states), h, c


SEQUENCES: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "vcrnn": vcrnn,
    "vcgru": vcgru,
    "vclstm": vclstm,
    "rnn": rnn,
    "gru-reset-first": gru_reset_first,
    "lstm": lstm,
}
