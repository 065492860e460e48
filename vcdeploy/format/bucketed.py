"""The bucketed form of a layer, which skips in any stock runtime, without a custom op or our domain.

At every step a tree of If nodes picks the smallest prefix, a multiple of 128 dimensions, that covers the active
dimensions of every sequence in the batch; only that prefix of the weights is multiplied. A file holds each matrix
once; a runtime that folds constants, as ONNX Runtime does, creates the prefixes at load, one copy per bucket.
"""

from typing import Any

import numpy as np

from vcdeploy.format.nodes import Nodes
from vcdeploy.format.steps import Int8, Matrix, Range, Scheduler, advance, weights_of_step
from vcdeploy.spec import UNITS

STEP = 128


def bucket_sizes(dim: int) -> list[int]:
    """The prefix sizes: 128, 256, …, and finally the whole state.

    >>> bucket_sizes(300)
    [128, 256, 300]
    """
    return [*range(STEP, dim, STEP), dim]


def bucketed_layer(
    nodes: Nodes,
    unit: str,
    dim: int,
    name: str,
    x: str,
    state: list[str],
    weights: dict[str, str],
    sharpness: float,
    epsilon: float,
    int8: Int8 | None = None,
) -> tuple[str, list[str], str]:
    """Add one layer over x [T, B, D]; returns y, the final state and m [T, B]. `name` prefixes its value names."""
    scheduler = Scheduler.prepare(
        nodes,
        weights["u"],
        weights["v"],
        weights["b"],
        nodes.constant(sharpness, np.float32),
        nodes.constant(epsilon, np.float32),
    )
    U, V = (int8.matrix(nodes, weights[name]) if int8 else Matrix(weights[name]) for name in ("U", "V"))
    matrices = {size: _prefixes(nodes, unit, dim, size, U, V) for size in bucket_sizes(dim)}

    body = Nodes(f"{name}.step_")
    before = [f"{name}.{part}" for part in UNITS[unit].state]
    x_t = f"{name}.x"
    m = scheduler.update_fraction(body, x_t, before[0], int8)
    e = scheduler.mask(body, m, int8)
    of_input: Range = int8.of_input(body, x_t) if int8 else ("", "")

    def bucket(into: Nodes, size: int) -> list[str]:
        """The state after a step on the first `size` dimensions."""
        if size == dim:
            return advance(into, unit, scheduler, e, x_t, before, matrices[size], int8, of_input)
        sizes = into.constant([size, dim - size], np.int64)

        def cut(value: str) -> tuple[str, str]:
            head, tail = (f"{into.fresh('Split')}_{part}" for part in ("head", "tail"))
            into.add_many("Split", value, sizes, outputs=[head, tail], axis=1)
            return head, tail

        heads, tails = zip(*map(cut, before), strict=True)
        head = cut(e)[0], cut(x_t)[0], list(heads)
        after = advance(into, unit, scheduler, *head, matrices[size], int8, of_input)
        return [into.add("Concat", *pair, axis=1) for pair in zip(after, tails, strict=True)]

    def choose(into: Nodes, sizes: list[int], active: str, path: str) -> list[str]:
        """A binary tree over the buckets. NaN in the mask counts as active and thus selects the whole state."""
        if len(sizes) == 1:
            return bucket(into, sizes[0])
        half = len(sizes) // 2
        fits = into.add("LessOrEqual", active, into.constant(sizes[half - 1], np.float32))
        branches: dict[str, Any] = {}
        for side, part in (("then", sizes[:half]), ("else", sizes[half:])):
            branch = Nodes(f"{name}.{path}{side}_")
            outputs = choose(branch, part, active, f"{path}{side}.")
            branches[f"{side}_branch"] = branch.graph(f"{name}.{path}{side}", [], outputs)
        outputs = [f"{into.fresh('If')}_{part}" for part in UNITS[unit].state]
        return list(into.add_many("If", fits, outputs=outputs, **branches))

    active = ""
    if len(matrices) > 1:
        # The mask is a prefix in every sequence, so the longest prefix is the number of dimensions with any e ≠ 0.
        touched = body.add("Not", body.add("Equal", e, scheduler.zero))
        batch = body.constant([0], np.int64)
        any_touched = body.add("ReduceMax", body.add("Cast", touched, to=1), batch, keepdims=0)  # [D]
        active = body.add("ReduceSum", any_touched, keepdims=0)
    after = choose(body, list(matrices), active, "")
    y = body.add("Identity", after[0])
    step = body.graph(f"{name}.step", [*before, x_t], [*after, y, m])
    final = [f"{name}.{part.upper()}" for part in UNITS[unit].state]
    outputs = [*final, f"{name}.Y", f"{name}.M"]
    nodes.add_many("Scan", *state, x, outputs=outputs, name=name, body=step, num_scan_inputs=1)
    return f"{name}.Y", final, f"{name}.M"


def _prefixes(nodes: Nodes, unit: str, dim: int, size: int, U: Matrix, V: Matrix) -> list[Matrix]:
    """The weights of a step on the first `size` dimensions: the first rows of every gate, and the first columns."""

    def cut(stacked: str, columns: list[int]) -> str:
        """stacked: [G·D, D], or [G·D] without columns."""
        gates = nodes.add("Reshape", stacked, nodes.constant([len(UNITS[unit].gates), dim, *columns], np.int64))
        ends, axes = [size, *([size] if columns else [])], [1, *([2] if columns else [])]
        start, end, along = (nodes.constant(each, np.int64) for each in ([0] * len(axes), ends, axes))
        block = nodes.add("Slice", gates, start, end, along)
        shape = [len(UNITS[unit].gates) * size, *([size] if columns else [])]
        return nodes.add("Reshape", block, nodes.constant(shape, np.int64))

    if size < dim:
        U, V = (Matrix(cut(each.values, [dim]), each.scale and cut(each.scale, [])) for each in (U, V))
    return weights_of_step(nodes, unit, U, V)
