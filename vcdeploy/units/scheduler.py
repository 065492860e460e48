"""The scheduler: how much of the state a step updates (docs/design.md, section 1).

    m = sigmoid(u·h + v·x + b)                     the share of the D dimensions
    e_i = Thres(sigmoid(sharpness * (m*D - i)))    the soft mask, i = 1 … D
    a = the largest i with e_i > 0                 active dimensions; past them nothing changes

Thres makes the mask exact: what is above 1 - epsilon becomes 1, what is below epsilon becomes 0.
"""

import torch
from torch import Tensor


def share(x: Tensor, h: Tensor, u: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """m for inputs x and states h, both [..., D]: a tensor [...] of shares between 0 and 1."""
    return torch.sigmoid(h @ u + x @ v + b)


def mask(m: Tensor, dim: int, sharpness: float, epsilon: float) -> Tensor:
    """e for shares m [...]: the soft mask [..., D], exactly 0 past the active dimensions."""
    i = torch.arange(1, dim + 1, dtype=m.dtype, device=m.device)
    e = torch.sigmoid(sharpness * (m.unsqueeze(-1) * dim - i))
    e = torch.where(e > 1 - epsilon, torch.ones_like(e), e)
    return torch.where(e < epsilon, torch.zeros_like(e), e)


def active(m: Tensor, dim: int, sharpness: float, epsilon: float) -> Tensor:
    """a for shares m [...]: how many leading dimensions the step updates, int64 [...]."""
    return (mask(m, dim, sharpness, epsilon) > 0).sum(-1)
