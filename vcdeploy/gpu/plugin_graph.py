"""The variant of an exported model for TensorRT: ops as plugin nodes, without function bodies.

Without a body, only the plugin can run an op. U and V are packed as the kernels read them. Those stored in float16 stay
so: networks in TensorRT 11 are strongly typed, so half precision must be in the tensor types. Everything else stays
float32. The domain is the one that ONNX Runtime's TensorRT provider expects; TensorRT itself uses only the op type.
"""

from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from vcdeploy.errors import VcdeployError
from vcdeploy.format.checksum import seal
from vcdeploy.format.functions import check_bodies, used_ops
from vcdeploy.format.graph import check
from vcdeploy.format.steps import DOMAIN, OP_VERSION
from vcdeploy.gpu.packing import pack
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
    stored = {each.name: each for each in variant.graph.initializer}
    packed: set[str] = set()
    for node in variant.graph.node:
        if node.domain == DOMAIN:
            node.domain = PLUGIN_DOMAIN
            for place in MATRICES:
                name = node.input[place] = _narrow(node.input[place], makers, stored)
                if name not in packed:
                    matrix = numpy_helper.to_array(stored[name])
                    stored[name].CopyFrom(numpy_helper.from_array(pack(matrix), name))
                    packed.add(name)
    _drop_unused(variant)
    for opset in variant.opset_import:
        if opset.domain == DOMAIN:
            opset.CopyFrom(helper.make_opsetid(PLUGIN_DOMAIN, OP_VERSION))
    check(variant)
    return seal(variant)


def _narrow(value: str, makers: dict[str, NodeProto], stored: dict[str, TensorProto]) -> str:
    """The initializer behind a matrix: the value itself, or the float16 tensor that the graph casts."""
    if value in stored:
        return value
    maker = makers.get(value)
    source = stored.get(maker.input[0]) if maker is not None and maker.op_type == "Cast" else None
    if maker is None or source is None or source.data_type != TensorProto.FLOAT16:
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
