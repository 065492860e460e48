"""The units computed with only the upper-left a × a sub-matrices, one sequence at a time.

The algorithm of the kernels in its simplest form: it reads no row or column past a and changes no dimension past a.
"""

from typing import Any

import torch
from torch import Tensor

from vcdeploy.reference.cells import active, mask, update_fraction


def prefix_form(
    unit: str,
    X: Tensor,
    H0: Tensor,
    U: Tensor,
    V: Tensor,
    u: Tensor,
    v: Tensor,
    b: Tensor,
    *rest: Any,
) -> tuple[Tensor, ...]:
    """Y, H, M (and C) as in vcdeploy.reference.cells, from prefixes. rest: C0 (vclstm only), sharpness, epsilon."""
    *cell, sharpness, epsilon = rest
    D, G = X.shape[2], len(U) // X.shape[2]
    outputs = []
    for n in range(X.shape[1]):
        h = H0[n]
        c = cell[0][n] if cell else h
        states, fractions = [], []
        for x in X[:, n]:
            m = update_fraction(x, h, u, v, b)
            a = int(active(m, D, sharpness, epsilon)[0])
            e = mask(m, D, sharpness, epsilon)[0, :a]
            blocks = [(U[k * D : k * D + a, :a], V[k * D : k * D + a, :a]) for k in range(G)]
            hbar, xbar = e * h[:a], e * x[:a]
            if unit == "vcrnn":
                ((Uh, Vh),) = blocks
                new = e * torch.tanh(Uh @ hbar + Vh @ xbar) + (1 - e) * h[:a]
            elif unit == "vcgru":
                (Ur, Vr), (Uz, Vz), (Uh, Vh) = blocks
                r = torch.sigmoid(Ur @ hbar + Vr @ xbar)
                z = e * torch.sigmoid(Uz @ hbar + Vz @ xbar)
                new = z * torch.tanh(Uh @ (r * hbar) + Vh @ xbar) + (1 - z) * h[:a]
            else:
                i, f, g, o = (Uk @ hbar + Vk @ xbar for Uk, Vk in blocks)
                inner = torch.sigmoid(f) * c[:a] + torch.sigmoid(i) * torch.tanh(g)
                new_c = e * inner + (1 - e) * c[:a]
                new = e * (torch.sigmoid(o) * torch.tanh(new_c)) + (1 - e) * h[:a]
                c = torch.cat([new_c, c[a:]])
            h = torch.cat([new, h[a:]])
            states.append(h)
            fractions.append(m[0])
        outputs.append((torch.stack(states), h, torch.stack(fractions), c))
    Y, H, M, C = zip(*outputs, strict=True)
    result = torch.stack(Y, 1), torch.stack(H), torch.stack(M, 1)
    return (*result, torch.stack(C)) if cell else result
