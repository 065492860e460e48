"""The structure of a model file: everything in its graph but the values of its weights. Needs no onnx.

`vcdeploy export` writes it, and a reader that uses only the weights compares it with the file's: a graph that computes
anything else must not run as if it were this one.

| | name | type, shape |
|---|---|---|
| in | tokens | int64 [T, B] |
| in | state | float32 [S, B, D]: one row per layer; two, h then c, for VCLSTM and LSTM |
| out | logits | float32 [T, B, vocab] |
| out | state_out | float32 [S, B, D] |
| out | compute | float32 [T, B, layers]: m; 1 for the dense units |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from vcdeploy.format.dense import dense_layer
from vcdeploy.format.functions import OLDEST_OPSET
from vcdeploy.format.inlined import inlined_layer
from vcdeploy.format.nodes import FLOAT, INT64, Initializer, Nodes, Weights, node_message, value_message
from vcdeploy.format.precision import activation_levels
from vcdeploy.format.reader import Graph
from vcdeploy.format.steps import DOMAIN, EARLY, INT8, OP_VERSION, function, op_attributes
from vcdeploy.spec import PRECISIONS, UNITS


class Structure(NamedTuple):
    """The parts of a graph as protobuf messages.

    functions: the bodies of our ops; none in the bucketed and portable forms and in dense units.
    """

    nodes: list[bytes]
    initializers: dict[str, Initializer]
    inputs: list[bytes]
    outputs: list[bytes]
    functions: list[bytes]


def structure(config: Mapping[str, Any], symbols: int, opset: int, kind: int = FLOAT) -> Structure:
    """The structure of the model that a configuration describes.

    symbols: size of its vocabulary. kind: FLOAT, or EARLY for what version 0.2 wrote.
    """
    weights = declared(config, symbols, named=kind != EARLY)
    unit, precision, D, layers = config["unit"], config["precision"], config["dim"], config["layers"]
    nodes, variable = weights.nodes, UNITS[unit].variable
    x = weights.rows("embedding", "tokens")  # [T, B, D]
    int8 = None
    if variable:
        if PRECISIONS[precision].levels:
            int8 = nodes.run(INT8, {"levels": nodes.constant(activation_levels(precision, D), np.float32)})
        x, states, m = _variable_stack(nodes, weights, config, x, int8, kind)
    else:
        x, states, m = _dense_stack(nodes, weights, config, x)
    nodes.add("Concat", *states, axis=0, output="state_out")
    nodes.add("Identity", m, output="compute")
    output = weights.whole("output.weight")
    if int8:
        equation = "scores = product(quantized(output), rounded(x, range_of(x, least_state)))"
        scores = nodes.run(equation, {**int8, "output": output, "x": x})["scores"]
    else:
        scores = nodes.add("MatMul", x, nodes.add("Transpose", output, perm=[1, 0]))
    nodes.add("Add", scores, weights.whole("output.bias"), output="logits")
    if kind != EARLY:
        nodes.prune(["logits", "state_out", "compute"])
    rows = len(states)
    body = variable and not inlined(config)
    return Structure(
        [node_message(each) for each in nodes.nodes],
        weights.initializers,
        [value_message("tokens", ["T", "B"], INT64), value_message("state", [rows, "B", D])],
        [
            value_message("logits", ["T", "B", symbols]),
            value_message("state_out", [rows, "B", D]),
            value_message("compute", ["T", "B", layers]),
        ],
        [function(UNITS[unit].op, opset, int8 is not None, kind)] if body else [],
    )


def inlined(config: Mapping[str, Any]) -> bool:
    """Whether the layers of a variable unit are standard ops in the graph itself."""
    return bool(config.get("bucketed") or config.get("portable"))


def declared(config: Mapping[str, Any], symbols: int, named: bool = True) -> Weights:
    """The stored weights of the model that a configuration describes, in the order of the file, and no nodes yet."""
    unit, D = config["unit"], config["dim"]
    stacked = len(UNITS[unit].gates) * D
    weights = Weights(Nodes(named=named), config["precision"])
    weights.add("embedding", (symbols, D))
    for index in range(config["layers"]):
        if not UNITS[unit].variable:
            for part in ("W", "R"):
                weights.add(f"layers.{index}.{part}", (1, stacked, D))
            if config.get("bias"):
                weights.add(f"layers.{index}.B", (2 * stacked,))
            continue
        shapes = ((stacked, D), (stacked, D), (D,), (D,), (1,))
        for part, shape in zip(UNITS[unit].weights, shapes, strict=True):
            weights.add(f"layers.{index}.{part}", shape)
    weights.add("output.weight", (symbols, D))
    weights.add("output.bias", (symbols,))
    return weights


def difference(graph: Graph, config: Mapping[str, Any], symbols: int) -> str | None:
    """How a file's graph differs from the one its configuration describes; None if it computes exactly the same.

    symbols: size of its vocabulary. Names, shapes of inner values and documentation are not compared.
    """
    if config["layers"] > len(graph.initializers):  # before anything is built for so many
        return f"it has {len(graph.initializers)} weights for {config['layers']} layers"
    wanted = declared(config, symbols).initializers
    for name, each in wanted.items():
        if name not in graph.initializers:
            return f"it has no weights {name}"
        if graph.initializers[name] != (each.kind, each.shape):
            kind, shape = graph.initializers[name]
            return f"{name} has the shape {list(shape)} and type {kind}, not {list(each.shape)} and {each.kind}"
    if unknown := graph.initializers.keys() - wanted.keys():
        return f"it has the weights {min(unknown)} as well"
    if graph.others:
        return f"it has {graph.others[0]} as well"
    opset = graph.opsets.get("ai.onnx", 0)
    if opset < OLDEST_OPSET:
        return f"it has opset {opset}, not {OLDEST_OPSET} or newer"
    if graph.functions and graph.opsets.get(DOMAIN) != OP_VERSION:
        return f"it doesn't import version {OP_VERSION} of the domain {DOMAIN}"
    # The likely form first: only early function bodies have a CastLike.
    kinds = (EARLY, FLOAT) if any(b"CastLike" in bytes(each) for each in graph.functions) else (FLOAT, EARLY)
    return _first_difference(graph, structure(config, symbols, opset, kinds[0])) and _first_difference(
        graph, structure(config, symbols, opset, kinds[1])
    )


def _first_difference(graph: Graph, expected: Structure) -> str | None:
    for what in ("nodes", "inputs", "outputs", "functions"):
        here, there = getattr(graph, what), getattr(expected, what)
        if len(here) != len(there):
            return f"it has {len(here)} {what}, not {len(there)}"
        for index, (mine, other) in enumerate(zip(here, there, strict=True)):
            if mine != other:
                return f"number {index + 1} of its {len(there)} {what} is different"
    return None


def layer_values(config: Mapping[str, Any]) -> list[bytes]:
    """The shapes of the layer outputs, which only inform tools that do not look into functions."""
    if not UNITS[config["unit"]].variable:
        return []
    D = config["dim"]
    shapes: dict[str, list[int | str]] = {"Y": ["T", "B", D], "H": ["B", D], "M": ["T", "B"], "C": ["B", D]}
    return [
        value_message(f"layers.{index}.{part}", shapes[part])
        for index in range(config["layers"])
        for part in UNITS[config["unit"]].outputs
    ]


def _variable_stack(
    nodes: Nodes, weights: Weights, config: Mapping[str, Any], x: str, int8: dict[str, Any] | None, kind: int
) -> tuple[str, list[str], str]:
    """Add the layers of a variable unit; returns y [T, B, D], state rows [1, B, D] each, and m [T, B, layers]."""
    unit = config["unit"]
    rows = UNITS[unit].state_rows
    settings = config["sharpness"], config["epsilon"]
    states, fractions = [], []
    for index in range(config["layers"]):
        name = f"layers.{index}"
        places = range(index * rows, (index + 1) * rows)
        before = [nodes.add("Gather", "state", nodes.constant(place, np.int64)) for place in places]  # [B, D]
        wide = {part: weights.whole(f"{name}.{part}") for part in UNITS[unit].weights}
        if inlined(config):
            portable = bool(config.get("portable"))
            x, after, m = inlined_layer(
                nodes, unit, config["dim"], name, x, before, wide, *settings, int8, kind, portable
            )
        else:
            h, *c = before
            outputs = [f"{name}.{part}" for part in UNITS[unit].outputs]
            levels = activation_levels(config["precision"], config["dim"]) if int8 else None
            attributes = op_attributes(*settings, levels)
            nodes.add_many(
                unit.upper(), x, h, *wide.values(), *c, outputs=outputs, name=name, domain=DOMAIN, **attributes
            )
            x, h, m, *c = outputs
            after = [h, *c]
        first, last = nodes.constant([0], np.int64), nodes.constant([2], np.int64)
        states += [nodes.add("Unsqueeze", row, first) for row in after]
        fractions.append(nodes.add("Unsqueeze", m, last))
    return x, states, nodes.add("Concat", *fractions, axis=2)


def _dense_stack(nodes: Nodes, weights: Weights, config: Mapping[str, Any], x: str) -> tuple[str, list[str], str]:
    """Add the layers of a dense unit, which updates every dimension at every step: m is 1."""
    unit = config["unit"]
    rows = UNITS[unit].state_rows
    total = config["layers"] * rows
    before = nodes.split("state", total, axis=0)  # [1, B, D] each
    states: list[str] = []
    for index in range(config["layers"]):
        part = before[index * rows : (index + 1) * rows]
        x, after = dense_layer(nodes, weights, unit, config["dim"], f"layers.{index}", x, part)
        states += after
    shape = nodes.add("Concat", nodes.add("Shape", "tokens"), nodes.constant([config["layers"]], np.int64), axis=0)
    return x, states, nodes.add("Expand", nodes.constant(1, np.float32), shape)
