"""The dense units as ONNX's own RNN, GRU and LSTM ops.

| unit | our weights | ONNX stacks |
|---|---|---|
| gru-reset-first | r, z, h | z, r, h |
| gru | r, z, n | z, r, h |
| lstm | i, f, g, o | i, o, f, c |

In gru, as in ONNX, z keeps the old state: h' = (1 - z) ⊙ n + z ⊙ h. In gru-reset-first, as in the paper, it replaces
it. Since 1 - sigmoid(x) = sigmoid(-x), the file has the negated weights of z. PyTorch's gru applies the reset gate
after the matrix product, which is linear_before_reset = 1.
"""

from typing import Any

import numpy as np

from vcdeploy.format.nodes import Nodes, Weights
from vcdeploy.format.precision import Array
from vcdeploy.spec import UNITS

ORDER = {  # index in our stack of each ONNX gate
    "rnn": [0],
    "gru-reset-first": [1, 0, 2],
    "gru": [1, 0, 2],
    "lstm": [0, 3, 1, 2],
}
LINEAR_BEFORE_RESET = {"gru-reset-first": 0, "gru": 1}


def onnx_gates(unit: str, stacked: Array) -> Array:
    """Our weights [G·D, D] as ONNX's, with the axis of directions: [1, G·D, D]."""
    gates = _signed(unit, np.split(stacked, len(ORDER[unit])))
    return np.concatenate([gates[place] for place in ORDER[unit]])[np.newaxis]


def dense_layer(
    nodes: Nodes, weights: Weights, unit: str, dim: int, name: str, x: str, state: list[str]
) -> tuple[str, list[str]]:
    """Add one layer over x [T, B, D]; returns y and the final state. State rows are h (and c), each [1, B, D]."""
    W, R = (weights.whole(f"{name}.{part}") for part in ("W", "R"))
    after = [f"{name}.{part}" for part in ("H", "C")[: len(state)]]
    attributes: dict[str, Any] = {"hidden_size": dim}
    if unit in LINEAR_BEFORE_RESET:
        attributes["linear_before_reset"] = LINEAR_BEFORE_RESET[unit]
    # No biases and no sequence lengths: two inputs are left out.
    (with_directions, *_) = nodes.add_many(
        UNITS[unit].op, x, W, R, "", "", *state, outputs=[f"{name}.Y.directions", *after], name=name, **attributes
    )
    y = nodes.add("Squeeze", with_directions, nodes.constant([1], np.int64), output=f"{name}.Y")  # [T, 1, B, D]
    return y, after


def own_gates(unit: str, stacked: Array) -> Array:
    """The inverse of onnx_gates."""
    gates = np.split(stacked[0], len(ORDER[unit]))
    return np.concatenate(_signed(unit, [gates[ORDER[unit].index(place)] for place in range(len(gates))]))


def _signed(unit: str, gates: list[Array]) -> list[Array]:
    """Our gates with the sign they have in ONNX, or the other way round."""
    if unit == "gru-reset-first":
        gates[1] = -gates[1]
    return gates
