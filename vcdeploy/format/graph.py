"""The graph of an exported model: one self-contained ONNX file (docs/design.md, section 2).

| | name | type, shape |
|---|---|---|
| in | tokens | int64 [T, B] |
| in | state | float32 [S, B, D]: one row per layer; two, h then c, for VCLSTM and LSTM |
| out | logits | float32 [T, B, vocab] |
| out | state_out | float32 [S, B, D] |
| out | compute | float32 [T, B, layers]: m; 1 for the dense units |
"""

import json
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from vcdeploy import __version__
from vcdeploy.errors import VcdeployError
from vcdeploy.format.bucketed import bucketed_layer
from vcdeploy.format.dense import ORDER, dense_layer, onnx_gates
from vcdeploy.format.functions import DOMAIN, OLDEST_OPSET, WEIGHTS, attach_functions, check, op_attributes, op_outputs
from vcdeploy.format.nodes import Nodes
from vcdeploy.format.precision import Array, Weights, activation_levels
from vcdeploy.format.steps import Int8
from vcdeploy.spec import PRECISIONS, UNITS, is_variable
from vcdeploy.vocabulary import Vocabulary

CONFIG_KEY, VOCAB_KEY = "vcdeploy.config", "vcdeploy.vocab"
DEFAULT_OPSET = 18  # supported by the oldest ONNX Runtime we support and by TensorRT 10
LARGEST_FILE = 2**31 - 1  # protobuf's limit, in bytes


def newest_opset() -> int:
    """The newest opset the installed onnx package writes."""
    return int(onnx.defs.onnx_opset_version())


class Trained(Protocol):
    """A trained model, such as a checkpoint."""

    config: dict[str, Any]
    vocab: Vocabulary
    progress: dict[str, Any]

    def parameters(self) -> dict[str, Array]:
        """The float32 weights by PyTorch name."""


def build(
    checkpoint: Trained, *, precision: str = "f32", opset: int = DEFAULT_OPSET, bucketed: bool = False
) -> ModelProto:
    """The ONNX model of a checkpoint, checked by onnx's checker and shape inference."""
    unit = str(checkpoint.config.get("unit"))
    if unit == "crnn":
        raise VcdeployError(
            "crnn is a training-only baseline and cannot be exported: an exported model has no input for boundaries. "
            "Export a vcrnn, vcgru, vclstm, rnn, gru or lstm."
        )
    if bucketed and not is_variable(unit):
        raise VcdeployError(f"--bucketed skips inactive dimensions, but {unit} has none: leave it out")
    if precision not in PRECISIONS:
        raise VcdeployError(f"no precision {precision!r}: choose from {', '.join(PRECISIONS)}")
    if not OLDEST_OPSET <= opset <= newest_opset():
        raise VcdeployError(f"--opset must be {OLDEST_OPSET} to {newest_opset()}, not {opset}")
    training = {name: checkpoint.progress[name] for name in ("step", "epoch") if name in checkpoint.progress}
    config = {**checkpoint.config, "precision": precision, "bucketed": bucketed, "training": training}
    return assemble(config, checkpoint.vocab, checkpoint.parameters(), opset)


def assemble(
    config: dict[str, Any], vocab: Vocabulary, parameters: dict[str, Array], opset: int = DEFAULT_OPSET
) -> ModelProto:
    """The ONNX model of weights named as in a checkpoint; needs no PyTorch.

    config is stored as vcdeploy.config: how to run the model (unit, dim, layers, precision, bucketed, …), and its
    origin.
    """
    unit, precision, bucketed = config["unit"], config["precision"], config["bucketed"]
    nodes = Nodes()
    weights = Weights(nodes, precision)
    _add_weights(weights, unit, config["layers"], parameters)

    x = weights.rows("embedding", "tokens")  # [T, B, D]
    int8 = None
    if is_variable(unit):
        if precision == "int8":
            int8 = Int8.prepare(nodes, nodes.constant(activation_levels(config["dim"]), np.float32))
        x, states, m = _variable_stack(nodes, weights, config, x, int8)
    else:
        x, states, m = _dense_stack(nodes, weights, config, x)
    nodes.add("Concat", *states, axis=0, output="state_out")
    nodes.add("Identity", m, output="compute")
    output = weights.whole("output.weight")
    if int8:
        scores = int8.product(nodes, int8.matrix(nodes, output), int8.round(nodes, x, int8.of_state(nodes, x)))
    else:
        scores = nodes.add("MatMul", x, nodes.add("Transpose", output, perm=[1, 0]))
    nodes.add("Add", scores, weights.whole("output.bias"), output="logits")

    D, rows = config["dim"], len(states)
    graph = helper.make_graph(
        nodes.nodes,
        f"{unit}_language_model",
        [_value("tokens", ["T", "B"], TensorProto.INT64), _value("state", [rows, "B", D])],
        [
            _value("logits", ["T", "B", len(vocab)]),
            _value("state_out", [rows, "B", D]),
            _value("compute", ["T", "B", config["layers"]]),
        ],
        weights.initializers,
        value_info=_layer_values(config) if is_variable(unit) else [],
    )
    opsets = [helper.make_opsetid("", opset)]
    ir_version = max(9, helper.find_min_ir_version_for(opsets))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    model.producer_name, model.producer_version = "vcdeploy", __version__
    symbols = json.dumps(vocab.symbols, ensure_ascii=False)
    helper.set_model_props(model, {CONFIG_KEY: json.dumps(config), VOCAB_KEY: symbols})
    if is_variable(unit) and not bucketed:
        attach_functions(model)
    if (size := model.ByteSize()) > LARGEST_FILE:
        raise VcdeployError(
            f"the file would be {size / 1e9:.1f} GB, more than ONNX's limit of 2 GB per file: "
            f"choose a smaller --precision than {precision}"
        )
    check(model)
    return model


def _value(name: str, shape: Sequence[int | str], kind: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _layer_values(config: dict[str, Any]) -> list[ValueInfoProto]:
    """The shapes of the layer outputs, for tools that do not look into functions."""
    D = config["dim"]
    shapes: dict[str, list[int | str]] = {"Y": ["T", "B", D], "H": ["B", D], "M": ["T", "B"], "C": ["B", D]}
    return [
        _value(f"layers.{index}.{part}", shapes[part])
        for index in range(config["layers"])
        for part in op_outputs(config["unit"])
    ]


def _add_weights(weights: Weights, unit: str, layers: int, parameters: dict[str, Array]) -> None:
    weights.add("embedding", parameters["embedding.weight"])
    for index in range(layers):
        name, source = f"layers.{index}", f"unit.layers.{index}"
        if unit in ORDER:
            weights.add(f"{name}.W", onnx_gates(unit, parameters[f"{source}.weight_ih_l0"]))
            weights.add(f"{name}.R", onnx_gates(unit, parameters[f"{source}.weight_hh_l0"]))
            continue
        for part in WEIGHTS:
            weights.add(f"{name}.{part}", parameters[f"{source}.{part}"])
    weights.add("output.weight", parameters["output.weight"])
    weights.add("output.bias", parameters["output.bias"])


def _variable_stack(
    nodes: Nodes, weights: Weights, config: dict[str, Any], x: str, int8: Int8 | None
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
        wide = {part: weights.whole(f"{name}.{part}") for part in WEIGHTS}
        if config["bucketed"]:
            x, after, m = bucketed_layer(nodes, unit, config["dim"], name, x, before, wide, *settings, int8)
        else:
            h, *c = before
            outputs = [f"{name}.{part}" for part in op_outputs(unit)]
            attributes = op_attributes(*settings, activation_levels(config["dim"]) if int8 else None)
            nodes.add_many(
                unit.upper(), x, h, *wide.values(), *c, outputs=outputs, name=name, domain=DOMAIN, **attributes
            )
            x, h, m, *c = outputs
            after = [h, *c]
        first, last = nodes.constant([0], np.int64), nodes.constant([2], np.int64)
        states += [nodes.add("Unsqueeze", row, first) for row in after]
        fractions.append(nodes.add("Unsqueeze", m, last))
    return x, states, nodes.add("Concat", *fractions, axis=2)


def _dense_stack(nodes: Nodes, weights: Weights, config: dict[str, Any], x: str) -> tuple[str, list[str], str]:
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
