"""Estimates of the weights a step reads and of the working set, in bytes, from measured m.

Activations are not counted: they stay in the L1 cache. A step reads per layer, with G gates:

| | |
|---|---|
| tensorrt, onnxruntime's TensorRT provider | U and V: G · a · a each, in the precision of the file |
| native, onnxruntime custom op | U and V: G · a · a each, rows rounded up to whole panels; with a table, V only for the columns past the table row, plus that row |
| onnxruntime function | all of U and V |
| onnxruntime bucketed | U and V up to the smallest multiple of 128 that covers the batch |
| dense | all of W and R; in a sequence W once for all steps |

plus the scheduler's vectors, the embedding and the output layer: whole, and in native, after the first step of a call,
the blocks of columns up to a. On the CPU groups of the sequences of a batch, sorted by a, share what they read; with a
table each reads its own columns of V.
"""  # noqa: E501

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vcdeploy.bench.engines import BUCKETED, CUSTOM_OP, PLUGIN, Engine
from vcdeploy.cost import active, certain
from vcdeploy.spec import PRECISIONS, UNITS

# plugins/cpu: weights/layout.h, weights/input_table.h, kernels/table.h, engine/output.h; vcdeploy/format/inlined.py
PANEL, SPACING, BLOCK, BUCKET = 16, 64, 64, 128
TOGETHER, TOGETHER_IN_OUTPUT = 16, 64  # sequences that share weights


class Traffic(NamedTuple):
    """bytes: weights read per step (of the whole batch), the mean. working_set: those that any step reads."""

    bytes: float
    working_set: float


def traffic(engine: Engine, config: dict[str, Any], vocab: int, steps: int, fractions: NDArray[np.float32]) -> Traffic:
    """The traffic of an engine. fractions: m [n, B, layers] of measured steps; steps: per call."""
    D, G, size = config["dim"], len(UNITS[engine.unit].gates), PRECISIONS[engine.precision].bytes
    layers = config["layers"]
    vectors = 4 * D * (1 + (2 * layers if engine.variable else 0))  # embedding; u, v
    if engine.runtime == "native":
        batch = fractions.shape[1]
        blocks = (-(-active(fractions, config)[..., -1] // BLOCK) * BLOCK).clip(max=D)
        changed = _shared(blocks, TOGETHER_IN_OUTPUT).sum(-1).mean()
        columns = (D * -(-batch // TOGETHER_IN_OUTPUT) + (steps - 1) * changed) / steps
        panels = -(-vocab // PANEL) * PANEL * columns * size
        return _prefixes(engine, config, vocab, fractions, panels + vectors * batch)
    output = 4 * vocab * D / steps
    if engine.form in (CUSTOM_OP, PLUGIN):
        return _prefixes(engine, config, vocab, fractions, output + vectors)
    if engine.form == BUCKETED:
        covering = -(-active(fractions, config).max(1) // BUCKET) * BUCKET  # [n, layers]
        covering = covering.clip(min=BUCKET).clip(max=D)
        read = 2 * G * size * (covering.astype(float) ** 2).sum(-1).mean()
        buckets = sum((np.unique(covering[:, each]).astype(float) ** 2).sum() for each in range(layers))
        return Traffic(read + output + vectors, 2 * G * size * buckets + output + vectors)
    whole = G * D * D * size * layers
    read = 2 * whole if engine.variable else whole + whole / steps
    return Traffic(read + output + vectors, read + output + vectors)


def _shared(read: NDArray[np.float64], together: int) -> NDArray[np.float64]:
    """What each group of a batch reads, from what its sequences [n, B, …] would read alone: the largest of its own."""
    return -np.sort(-read, axis=1)[:, ::together]


def _prefixes(
    engine: Engine, config: dict[str, Any], vocab: int, fractions: NDArray[np.float32], besides: float
) -> Traffic:
    """What our kernels read; besides: bytes read by the other layers."""
    D, G, size = config["dim"], len(UNITS[engine.unit].gates), PRECISIONS[engine.precision].bytes
    a = active(fractions, config)  # [n, B, layers]
    ones = certain(fractions, config) if engine.variable else a
    rows = a if engine.form == PLUGIN else -(-a // PANEL) * PANEL
    of_U = G * size * rows * a
    columns, of_table = a.copy(), np.zeros_like(a)
    if engine.table:  # of the first layer
        kept = np.array([*range(0, D, SPACING), D])
        nearest = kept[np.searchsorted((kept[1:] + kept[:-1]) / 2, a[..., 0])]
        columns[..., 0] = np.maximum(a[..., 0], nearest) - np.minimum(ones[..., 0], nearest)
        of_table[..., 0] = 4 * G * rows[..., 0]
    of_V = G * size * rows * columns
    weights = of_U + of_V
    if engine.form == PLUGIN:  # every sequence by itself
        shared, alone = np.zeros_like(of_U), weights + of_table
    else:
        shared, alone = of_U.copy(), of_table
        first = 1 if engine.table else 0
        alone[..., :first] += of_V[..., :first]
        shared[..., first:] += of_V[..., first:]
    read = (_shared(shared, TOGETHER).sum((1, 2)) + alone.sum((1, 2))).mean() + besides
    # Each symbol has its own table rows; the columns of V read in addition differ from step to step, but are few.
    working = weights.sum(-1).max() + of_table.sum(-1).mean() * vocab + besides
    return Traffic(float(read), float(working))
