"""The variant of an exported model for TensorRT: ops as plugin nodes, without function bodies.

Without a body, only the plugin can run an op. U and V stored in float16 are passed to it unchanged: networks in
TensorRT 11 are strongly typed, so half precision must be in the tensor types. Everything else stays float32. The
domain is the one that ONNX Runtime's TensorRT provider expects; TensorRT itself uses only the op type.
"""

from onnx import ModelProto, NodeProto, TensorProto, helper

from vcdeploy.errors import VcdeployError
from vcdeploy.format.checksum import seal
from vcdeploy.format.functions import check_bodies, used_ops
from vcdeploy.format.graph import check
from vcdeploy.format.steps import DOMAIN, OP_VERSION
from vcdeploy.spec import TENSORRT_PRECISIONS

PLUGIN_DOMAIN = "trt.plugins"
MATRICES = (2, 3)  # indices of U and V among the op's inputs


def plugin_graph(model: ModelProto) -> ModelProto:
    """The variant of a model for TensorRT; the model itself is not changed. A model without our ops is copied."""
    variant = ModelProto()
    variant.CopyFrom(model)
    if not used_ops(model):
        return variant
    check_bodies(model, "the model")
    kept = [each for each in variant.functions if each.domain != DOMAIN]
    del variant.functions[:]
    variant.functions.extend(kept)
    makers = {output: node for node in variant.graph.node for output in node.output}
    types = {each.name: each.data_type for each in variant.graph.initializer}
    for node in variant.graph.node:
        if node.domain == DOMAIN:
            node.domain = PLUGIN_DOMAIN
            for place in MATRICES:
                node.input[place] = _narrow(node.input[place], makers, types)
    _drop_unused(variant)
    for opset in variant.opset_import:
        if opset.domain == DOMAIN:
            opset.CopyFrom(helper.make_opsetid(PLUGIN_DOMAIN, OP_VERSION))
    check(variant)
    return seal(variant)


def _narrow(value: str, makers: dict[str, NodeProto], types: dict[str, int]) -> str:
    """The initializer behind a matrix: the value itself, or the float16 tensor that the graph casts."""
    maker = makers.get(value)
    if maker is None:
        return value
    stored = types.get(maker.input[0]) if maker.op_type == "Cast" else None
    if stored != TensorProto.FLOAT16:
        precisions = " or ".join(TENSORRT_PRECISIONS)
        raise VcdeployError(
            f"the TensorRT plugin takes matrices in {precisions}, but {value} is stored differently: "
            f"export with --precision {precisions}"
        )
    return str(maker.input[0])


def _drop_unused(model: ModelProto) -> None:
    """Remove casts whose output is no longer used."""
    read = {name for node in model.graph.node for name in node.input} | {each.name for each in model.graph.output}
    kept = [node for node in model.graph.node if node.op_type != "Cast" or set(node.output) & read]
    del model.graph.node[:]
    model.graph.node.extend(kept)
