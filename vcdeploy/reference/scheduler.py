"""The scheduler: how much of the state a step updates (docs/design.md, section 1).

    m = sigmoid(u·h + v·x + b)                     update fraction: m·D of the D dimensions
    e_i = Thres(sigmoid(sharpness * (m*D - i)))    soft mask, i = 1 … D
    a = the largest i with e_i > 0                 active dimensions; the rest of the state is unchanged

Thres makes the mask exact: values above 1 - epsilon become 1, values below epsilon become 0.
"""

import torch
from torch import Tensor


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
