"""Writes the graph of an exported model: one self-contained ONNX file (docs/design.md, section 2)."""

import json
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    checker,
    helper,
    shape_inference,
)

from vcdeploy import __version__
from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.format.checksum import seal
from vcdeploy.format.dense import onnx_gates
from vcdeploy.format.functions import OLDEST_OPSET
from vcdeploy.format.precision import Array, packed
from vcdeploy.format.reader import CONFIG_KEY, VOCAB_KEY
from vcdeploy.format.steps import DOMAIN, OP_VERSION
from vcdeploy.format.structure import Structure, layer_values, structure
from vcdeploy.spec import DENSE_UNITS, PRECISIONS, UNITS, VARIABLE_UNITS
from vcdeploy.vocabulary import Vocabulary

DEFAULT_OPSET = 18  # supported by the oldest ONNX Runtime we support and by TensorRT 10
LARGEST_FILE = 2**31 - 1  # protobuf's limit, in bytes


def newest_opset() -> int:
    """The newest opset the installed onnx package writes."""
    return int(onnx.defs.onnx_opset_version())


class Trained(Protocol):
    """A trained model: a checkpoint, or any source of vcdeploy.runtime.sources."""

    config: dict[str, Any]
    vocab: Vocabulary
    progress: dict[str, Any]

    def parameters(self) -> dict[str, Array]:
        """The float32 weights by PyTorch name."""


def build(
    checkpoint: Trained,
    *,
    precision: str = "f32",
    opset: int = DEFAULT_OPSET,
    bucketed: bool = False,
    portable: bool = False,
) -> ModelProto:
    """The ONNX model of a checkpoint, checked by onnx's checker and shape inference."""
    unit = str(checkpoint.config.get("unit"))
    if unit == "crnn":
        raise VcdeployError(
            "crnn is a training-only baseline and cannot be exported: an exported model has no input for boundaries. "
            f"Export a {', '.join((*VARIABLE_UNITS, *DENSE_UNITS))}."
        )
    if bucketed and portable:
        raise BadValue("--bucketed and --portable are two forms of a file: choose one")
    if bucketed and not UNITS[unit].variable:
        raise BadValue(f"--bucketed skips inactive dimensions, but {unit} has none: leave it out")
    if portable and not UNITS[unit].variable:
        raise BadValue(f"--portable replaces our ops by standard ones, but {unit} is one already: leave it out")
    if precision not in PRECISIONS:
        raise VcdeployError(f"no precision {precision!r}: choose from {', '.join(PRECISIONS)}")
    if not OLDEST_OPSET <= opset <= newest_opset():
        raise BadValue(f"--opset must be {OLDEST_OPSET} to {newest_opset()}, not {opset}")
    training = {name: checkpoint.progress[name] for name in ("step", "epoch") if name in checkpoint.progress}
    config = {**checkpoint.config, "precision": precision, "bucketed": bucketed, "training": training}
    config |= {"portable": True} if portable else {}
    return assemble(config, checkpoint.vocab, checkpoint.parameters(), opset)


def assemble(
    config: dict[str, Any], vocab: Vocabulary, parameters: dict[str, Array], opset: int = DEFAULT_OPSET
) -> ModelProto:
    """The ONNX model of weights named as in a checkpoint; needs no PyTorch.

    config is stored as vcdeploy.config: how to run the model (unit, dim, layers, precision, bucketed, portable, …), and
    its origin.
    """
    parts = structure(config, len(vocab), opset)
    graph = GraphProto(
        node=map(NodeProto.FromString, parts.nodes),
        name=f"{config['unit']}_language_model",
        initializer=_initializers(config, parameters, parts),
        input=map(ValueInfoProto.FromString, parts.inputs),
        output=map(ValueInfoProto.FromString, parts.outputs),
        value_info=map(ValueInfoProto.FromString, layer_values(config)),
    )
    opsets = [helper.make_opsetid("", opset)]
    ir_version = max(9, helper.find_min_ir_version_for(opsets))  # 9: the first with default attributes of functions
    if parts.functions:
        opsets.append(helper.make_opsetid(DOMAIN, OP_VERSION))
    functions = map(FunctionProto.FromString, parts.functions)
    model = helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=ir_version)
    model.producer_name, model.producer_version = "vcdeploy", __version__
    symbols = json.dumps(vocab.symbols, ensure_ascii=False)
    helper.set_model_props(model, {CONFIG_KEY: json.dumps(config), VOCAB_KEY: symbols})
    if (size := model.ByteSize()) > LARGEST_FILE:
        raise VcdeployError(
            f"the file would be {size / 1e9:.1f} GB, more than ONNX's limit of 2 GB per file: "
            f"choose a smaller --precision than {config['precision']}"
        )
    check(model)
    return seal(model)


def check(model: ModelProto) -> None:
    """Run onnx's full checker and strict shape inference."""
    checker.check_model(model, full_check=True)
    shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)


def _initializers(config: dict[str, Any], parameters: dict[str, Array], parts: Structure) -> list[TensorProto]:
    stored = []
    for name, array in _arrays(config["unit"], config["layers"], parameters).items():
        stored += packed(name, array, config["precision"])
    return [
        TensorProto(
            dims=values.shape,
            data_type=parts.initializers[name].kind,
            name=name,
            raw_data=values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes(),
        )
        for name, values in stored
    ]


def _arrays(unit: str, layers: int, parameters: dict[str, Array]) -> dict[str, Array]:
    """The weights by their name in the file."""
    arrays = {"embedding": parameters["embedding.weight"]}
    for index in range(layers):
        name, source = f"layers.{index}", f"unit.layers.{index}"
        if not UNITS[unit].variable:
            for part, kind in (("W", "ih"), ("R", "hh")):
                arrays[f"{name}.{part}"] = onnx_gates(unit, parameters[f"{source}.weight_{kind}_l0"])[np.newaxis]
            biases = [f"{source}.bias_{kind}_l0" for kind in ("ih", "hh")]
            if biases[0] in parameters:
                arrays[f"{name}.B"] = np.concatenate([onnx_gates(unit, parameters[each]) for each in biases])
        else:
            arrays |= {f"{name}.{part}": parameters[f"{source}.{part}"] for part in UNITS[unit].weights}
    return arrays | {name: parameters[name] for name in ("output.weight", "output.bias")}
