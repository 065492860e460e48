"""The dense baselines as ONNX's own RNN, GRU and LSTM ops.

| | PyTorch stacks | ONNX stacks |
|---|---|---|
| GRU | r, z, n | z, r, h |
| LSTM | i, f, g, o | i, o, f, c |

In both, a GRU's z keeps the old state: h' = (1 - z) ⊙ n + z ⊙ h. PyTorch applies the reset gate after the matrix
product, which is linear_before_reset = 1.
"""

from typing import Any

import numpy as np

from vcdeploy.format.nodes import Nodes, Weights
from vcdeploy.format.precision import Array

ORDER = {"rnn": [0], "gru": [1, 0, 2], "lstm": [0, 3, 1, 2]}  # index in PyTorch's stack of each ONNX gate


def onnx_gates(unit: str, stacked: Array) -> Array:
    """PyTorch's weights [G·D, D] in ONNX's gate order, with the axis of directions: [1, G·D, D]."""
    gates = np.split(stacked, len(ORDER[unit]))
    return np.concatenate([gates[place] for place in ORDER[unit]])[np.newaxis]


def dense_layer(
    nodes: Nodes, weights: Weights, unit: str, dim: int, name: str, x: str, state: list[str]
) -> tuple[str, list[str]]:
    """Add one layer over x [T, B, D]; returns y and the final state. State rows are h (and c), each [1, B, D]."""
    W, R = (weights.whole(f"{name}.{part}") for part in ("W", "R"))
    after = [f"{name}.{part}" for part in ("H", "C")[: len(state)]]
    attributes: dict[str, Any] = {"hidden_size": dim, **({"linear_before_reset": 1} if unit == "gru" else {})}
    # No biases and no sequence lengths: two inputs are left out.
    (with_directions, *_) = nodes.add_many(
        unit.upper(), x, W, R, "", "", *state, outputs=[f"{name}.Y.directions", *after], name=name, **attributes
    )
    y = nodes.add("Squeeze", with_directions, nodes.constant([1], np.int64), output=f"{name}.Y")  # [T, 1, B, D]
    return y, after


def torch_gates(unit: str, stacked: Array) -> Array:
    """The inverse of onnx_gates: ONNX's weights [1, G·D, D] in PyTorch's gate order, [G·D, D]."""
    gates = np.split(stacked[0], len(ORDER[unit]))
    return np.concatenate([gates[ORDER[unit].index(place)] for place in range(len(gates))])
