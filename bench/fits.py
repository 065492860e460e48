"""Exponents: how a cost grows with a size, as the slope of a line fitted in log-log space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vcdeploy.errors import VcdeployError


class Fit(NamedTuple):
    """cost = factor · size ** exponent, fitted from low to high; off: the largest relative error of the fit."""

    exponent: float
    factor: float
    low: float
    high: float
    off: float


def fit(sizes: Sequence[float], costs: Sequence[float]) -> Fit:
    """Fit by least squares over the logarithms, all points weighted equally."""
    if len(sizes) != len(costs) or len(set(sizes)) < 2 or min(*sizes, *costs) <= 0:
        raise VcdeployError(
            f"no exponent: two different positive sizes with positive costs are needed, not {sizes}, {costs}"
        )
    x, y = np.log(sizes), np.log(costs)
    exponent, height = np.polyfit(x, y, 1)
    off = float(np.abs(np.expm1(y - exponent * x - height)).max())
    return Fit(float(exponent), float(np.exp(height)), float(min(sizes)), float(max(sizes)), off)
