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

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy.format.nodes import Nodes, Weights
from vcdeploy.format.precision import Array
from vcdeploy.format.reader import Stored
from vcdeploy.spec import UNITS

ORDER = {  # index in our stack of each ONNX gate
    "rnn": [0],
    "gru-reset-first": [1, 0, 2],
    "gru": [1, 0, 2],
    "lstm": [0, 3, 1, 2],
}
LINEAR_BEFORE_RESET = {"gru-reset-first": 0, "gru": 1}


def onnx_gates(unit: str, stacked: Array) -> Array:
    """Our weights [G·D, D] or biases [G·D] with the order and the sign of the gates that ONNX has."""
    gates = np.split(stacked, len(ORDER[unit]))
    if unit == "gru-reset-first":
        gates[1] = -gates[1]
    return np.concatenate([gates[place] for place in ORDER[unit]])


def dense_layer(
    nodes: Nodes, weights: Weights, unit: str, dim: int, name: str, x: str, state: list[str]
) -> tuple[str, list[str]]:
    """Add one layer over x [T, B, D]; returns y and the final state. State rows are h (and c), each [1, B, D]."""
    W, R = (weights.whole(f"{name}.{part}") for part in ("W", "R"))
    after = [f"{name}.{part}" for part in ("H", "C")[: len(state)]]
    attributes: dict[str, Any] = {"hidden_size": dim}
    if unit in LINEAR_BEFORE_RESET:
        attributes["linear_before_reset"] = LINEAR_BEFORE_RESET[unit]
    B = ""  # left out, like the sequence lengths after it
    if f"{name}.B" in weights.initializers:
        B = nodes.add("Unsqueeze", weights.whole(f"{name}.B"), nodes.constant([0], np.int64))  # [1, 2·G·D]
    (with_directions, *_) = nodes.add_many(
        UNITS[unit].op, x, W, R, B, "", *state, outputs=[f"{name}.Y.directions", *after], name=name, **attributes
    )
    y = nodes.add("Squeeze", with_directions, nodes.constant([1], np.int64), output=f"{name}.Y")  # [T, 1, B, D]
    return y, after


def own_weights(unit: str, weights: Mapping[str, Stored]) -> dict[str, Stored]:
    """The weights of a dense unit's file with our names, order and signs of gates."""
    own: dict[str, Stored] = {}
    for name, stored in weights.items():
        layer, _, part = name.rpartition(".")
        if part in ("W", "R"):
            own[f"{layer}.weight_{'ih' if part == 'W' else 'hh'}_l0"] = _own_gates(unit, stored)
        elif part == "B":
            for kind, values in zip(("ih", "hh"), np.split(stored.values, 2), strict=True):
                own[f"{layer}.bias_{kind}_l0"] = _own_gates(unit, Stored(values, stored.precision))
        else:
            own[name] = stored
    return own


def _own_gates(unit: str, stored: Stored) -> Stored:
    """The inverse of onnx_gates, without the axis of directions, for an array as stored in a file."""

    def split(rows: NDArray[Any]) -> list[NDArray[Any]]:
        gates = np.split(rows, len(ORDER[unit]))
        return [gates[ORDER[unit].index(place)] for place in range(len(gates))]

    gates = split(stored.values.reshape(stored.shape[-2:]))
    if unit == "gru-reset-first":
        gates[1] = gates[1] ^ np.uint16(0x8000) if stored.precision == "bf16" else -gates[1]
    scale = None if stored.scale is None else np.concatenate(split(stored.scale.reshape(-1, 1)))
    return Stored(np.concatenate(gates), stored.precision, scale)


def joined_bias(unit: str, of_input: Array, of_state: Array) -> Array:
    """PyTorch's two biases as the kernels and the reference take them: one per gate; for gru, also that of U_n h."""
    both = of_input + of_state
    if unit != "gru":
        return both
    D = len(both) // 3
    return np.concatenate([both[: 2 * D], of_input[2 * D :], of_state[2 * D :]])
