"""Cost of a model: active dimensions, multiply-accumulates, and the paper's "equivalent RNN".

docs/design.md, section 1, has the definitions. `macs` and `rnn_d` are means per step, computed from the mean of a² of
each layer. `macs` is exact: the products of the unit, plus u·h + v·x for each scheduler. `rnn_d` follows the paper's
convention, so that results compare with its tables: the size of the Elman unit of equal cost, with a GRU counted as two
Elman units and an LSTM as four (their true macs are 3 and 4 times an Elman unit's), and without the scheduler.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy.spec import UNITS


def reach(sharpness: float, epsilon: float) -> float:
    """Dimensions past m·D where the mask is still above 0, and before m·D where it is already below 1."""
    return math.log((1 - epsilon) / epsilon) / sharpness


def active(m: NDArray[Any], config: Mapping[str, Any]) -> NDArray[np.int64]:
    """Active dimensions a for each m of a variable unit, as units.scheduler counts them."""
    return _extent(m, config, 1)


def certain(m: NDArray[Any], config: Mapping[str, Any]) -> NDArray[np.int64]:
    """Number of leading dimensions whose mask is exactly 1."""
    return _extent(m, config, -1)


def _extent(m: NDArray[Any], config: Mapping[str, Any], side: int) -> NDArray[np.int64]:
    D, soft = config["dim"], reach(config["sharpness"], config["epsilon"])
    return np.floor(m.astype(np.float64) * D + side * soft).clip(0, D).astype(np.int64)


def macs(unit: str, dim: int, mean_squares: Sequence[float], projected: Sequence[int] = ()) -> float:
    """Multiply-accumulates per step; mean_squares holds the mean of a² of each layer.

    projected: sizes of the inputs that a matrix brings to dim.
    """
    if unit == "crnn":  # fast: U, V at every step; slow: U', V' and the cached product W·slow, at boundaries
        fast, slow = mean_squares
        return 2 * fast + 3 * slow
    scheduler = 2 * dim * len(mean_squares) if UNITS[unit].variable else 0
    return UNITS[unit].products * sum(mean_squares) + scheduler + dim * sum(projected)


def rnn_d(unit: str, dim: int, mean_squares: Sequence[float]) -> float:
    """The dimension of the Elman unit of equal cost, in the paper's convention."""
    if unit == "crnn":
        return math.sqrt(macs(unit, dim, mean_squares) / 2)
    return math.sqrt(UNITS[unit].elman_units * sum(mean_squares))
