"""Layers of standard ops in the graph itself, without a custom op, a function or our domain: two forms.

The portable form has one Loop over T per layer, for runtimes that know neither functions nor Scan.

The bucketed form skips in any stock runtime that knows Scan. At every step a tree of If nodes picks the smallest
prefix, a multiple of 128 dimensions, that covers the active dimensions of every sequence in the batch; only that prefix
of the weights is multiplied. A file holds each matrix once; a runtime that folds constants, as ONNX Runtime does,
creates the prefixes at load, one copy per bucket.
"""

from typing import Any

import numpy as np

from vcdeploy.format.nodes import BOOL, INT64, Nodes
from vcdeploy.format.nodes import FLOAT as FLOAT32
from vcdeploy.format.steps import FLOAT, FRACTION, INPUT_RANGE, MASK, MATRICES, QUANTIZED, scheduler, step
from vcdeploy.spec import UNITS

STEP = 128


def bucket_sizes(dim: int) -> list[int]:
    """The prefix sizes: 128, 256, …, and finally the whole state.

    >>> bucket_sizes(300)
    [128, 256, 300]
    """
    return [*range(STEP, dim, STEP), dim]


# The mask is a prefix in every sequence, so the longest prefix is the number of dimensions with any e ≠ 0.
ACTIVE = """
touched = Not(Equal(e, zero))
batch = [0]
any_touched = ReduceMax(Cast(touched, to=float32), batch, keepdims=0)  # [D]
active = ReduceSum(any_touched, keepdims=0)
"""

PREFIX = "def prefix(matrix): return rows(matrix)"
PREFIX_OF_PAIR = """
def prefix(matrix):
    levels, scale = matrix
    return rows(levels), scales(scale)
"""


def inlined_layer(
    nodes: Nodes,
    unit: str,
    dim: int,
    name: str,
    x: str,
    state: list[str],
    weights: dict[str, str],
    sharpness: float,
    epsilon: float,
    int8: dict[str, Any] | None,
    kind: int,
    portable: bool,
) -> tuple[str, list[str], str]:
    """Add one layer over x [T, B, D]; returns y, the final state and m [T, B]. `name` prefixes its value names.

    int8: the values of steps.INT8. kind: as in steps.scheduler. portable: that form, instead of the bucketed one.
    """
    mask = {"sharpness": nodes.constant(sharpness, np.float32), "epsilon": nodes.constant(epsilon, np.float32)}
    text = scheduler(kind) + QUANTIZED if int8 else FLOAT + scheduler(kind)
    values = nodes.run(text, {**(int8 or {}), **weights, **mask})
    rounded = int8 is not None
    matrices = {
        size: nodes.run(_prefixes(unit, dim, size, rounded), values)
        for size in ([dim] if portable else bucket_sizes(dim))
    }

    body = Nodes(f"{name}.step_", nodes.named)
    before = {part: f"{name}.{part}" for part in UNITS[unit].state}
    x_t = f"{name}.x"
    text = FRACTION + MASK + (INPUT_RANGE if rounded else "") + (ACTIVE if len(matrices) > 1 else "")
    of_step = body.run(text, {**values, **before, "x": x_t})

    def bucket(into: Nodes, size: int) -> list[str]:
        """The state after a step on the first `size` dimensions."""
        if size == dim:
            after = into.run(step(unit, rounded), {**of_step, **matrices[size]})
            return [after[part] for part in before]
        sizes = into.constant([size, dim - size], np.int64)

        def cut(value: str) -> tuple[str, str]:
            head, tail = (f"{into.fresh('Split')}_{part}" for part in ("head", "tail"))
            into.add_many("Split", value, sizes, outputs=[head, tail], axis=1)
            return head, tail

        heads, tails = {}, {}
        for part in before:
            heads[part], tails[part] = cut(before[part])
        heads |= {part: cut(of_step[part])[0] for part in ("e", "x")}
        after = into.run(step(unit, rounded), {**of_step, **matrices[size], **heads})
        return [into.add("Concat", after[part], tails[part], axis=1) for part in before]

    def choose(into: Nodes, sizes: list[int], active: str, path: str) -> list[str]:
        """A binary tree over the buckets. NaN in the mask counts as active and thus selects the whole state."""
        if len(sizes) == 1:
            return bucket(into, sizes[0])
        half = len(sizes) // 2
        fits = into.add("LessOrEqual", active, into.constant(sizes[half - 1], np.float32))
        branches: dict[str, Any] = {}
        for side, part in (("then", sizes[:half]), ("else", sizes[half:])):
            branch = Nodes(f"{name}.{path}{side}_", nodes.named)
            outputs = choose(branch, part, active, f"{path}{side}.")
            branches[f"{side}_branch"] = branch.graph(f"{name}.{path}{side}", [], outputs)
        outputs = [f"{into.fresh('If')}_{part}" for part in UNITS[unit].state]
        return list(into.add_many("If", fits, outputs=outputs, **branches))

    after = choose(body, list(matrices), of_step.get("active", ""), "")
    if portable:
        return _loop(nodes, body, dim, name, x, state, [*before.values()], x_t, after, of_step["m"])
    y = body.add("Identity", after[0])
    graph = body.graph(f"{name}.step", [*before.values(), x_t], [*after, y, of_step["m"]])
    final = [f"{name}.{part.upper()}" for part in before]
    outputs = [*final, f"{name}.Y", f"{name}.M"]
    nodes.add_many("Scan", *state, x, outputs=outputs, name=name, body=graph, num_scan_inputs=1)
    return f"{name}.Y", final, f"{name}.M"


def _loop(
    nodes: Nodes,
    body: Nodes,
    dim: int,
    name: str,
    x: str,
    state: list[str],
    before: list[str],
    x_t: str,
    after: list[str],
    m: str,
) -> tuple[str, list[str], str]:
    """Add a Loop over x, whose body computes `after` and m from `before` and x_t; returns y, the final state and m."""
    going, still, index = f"{name}.going", f"{name}.still", f"{name}.index"
    step = Nodes(f"{name}.")
    step.add("Gather", x, index, output=x_t, axis=0)
    step.add("Identity", going, output=still)
    kept = [body.add("Identity", each) for each in (after[0], m)]  # the outputs of a graph must differ
    step.nodes += body.nodes
    types: dict[str, Any] = {going: ((), BOOL), still: ((), BOOL), index: ((), INT64)}
    types |= dict.fromkeys((*before, *after, kept[0]), (("B", dim), FLOAT32)) | {kept[1]: (("B",), FLOAT32)}
    graph = step.graph(f"{name}.step", [index, going, *before], [still, *after, *kept], types)
    zero = nodes.constant(0, np.int64)
    length = nodes.add("Gather", nodes.add("Shape", x), zero, axis=0)
    start = nodes.add("Greater", length, zero)
    final = [f"{each.rsplit('.', 1)[0]}.{each.rsplit('.', 1)[1].upper()}" for each in before]
    outputs = [*final, f"{name}.Y", f"{name}.M"]
    nodes.add_many("Loop", length, start, *state, outputs=outputs, name=name, body=graph)
    return f"{name}.Y", final, f"{name}.M"


def _prefixes(unit: str, dim: int, size: int, rounded: bool) -> str:
    """Equations of the matrices of a step on the first `size` dimensions: the first rows of every gate, and columns."""
    if size == dim:
        return MATRICES[unit]
    G = len(UNITS[unit].gates)
    prefix = PREFIX_OF_PAIR if rounded else PREFIX
    return f"""
def rows(stacked):  # [G·D, D]
    block = Slice(Reshape(stacked, [{G}, {dim}, {dim}]), [0, 0], [{size}, {size}], [1, 2])
    return Reshape(block, [{G * size}, {size}])

def scales(stacked):  # [G·D]
    return Reshape(Slice(Reshape(stacked, [{G}, {dim}]), [0], [{size}], [1]), [{G * size}])

{prefix}

U = prefix(U)
V = prefix(V)
{MATRICES[unit]}"""
