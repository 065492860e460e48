"""The function bodies of our ops in models of the onnx package: attaches, finds and checks them.

A model that contains them needs no library; a runtime with a kernel for the op uses the kernel instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from vcdeploy.errors import VcdeployError
from vcdeploy.format.nodes import DOUBLE, FLOAT
from vcdeploy.format.steps import DOMAIN, EARLY, LEVELS, OP_VERSION, OPS, function
from vcdeploy.spec import PRECISIONS, UNITS

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

FLOAT16, BFLOAT16 = PRECISIONS["f16"].onnx_type, PRECISIONS["bf16"].onnx_type

KINDS = (FLOAT, DOUBLE, FLOAT16, BFLOAT16)  # of weights; ours in a file of vcdeploy are read as FLOAT
OLDEST_OPSET = 18  # the first whose Split takes the number of parts


def attach_functions(model: ModelProto) -> ModelProto:
    """Add the function body of every vcdeploy op a model uses, in place; returns the same model.

    For your own networks: `torch.onnx.export(network, …, dynamo=True).model_proto` has op nodes only.

    Examples:
        >>> onnx.save(attach_functions(program.model_proto), "network.onnx")
    """
    from onnx import FunctionProto, helper

    used = used_ops(model)
    if not used:
        raise VcdeployError(
            "the model has no op of the domain vcdeploy, so there is nothing to attach: "
            "export a network that contains a VCRNN, VCGRU or VCLSTM with torch.onnx.export(..., dynamo=True)"
        )
    if unknown := used - OPS.keys():
        raise VcdeployError(
            f"the model uses {', '.join(sorted(unknown))} of the domain vcdeploy, which this version does not know "
            f"(it knows {', '.join(OPS)}): export it again with this version"
        )
    versions = {each.domain or "ai.onnx": each.version for each in model.opset_import}
    opset = versions.get("ai.onnx", 0)
    if opset < OLDEST_OPSET:
        raise VcdeployError(
            f"the model has opset {opset}, but the functions need {OLDEST_OPSET} or newer: "
            f"export it again with opset_version={OLDEST_OPSET}"
        )
    if versions.setdefault(DOMAIN, OP_VERSION) != OP_VERSION:
        raise VcdeployError(
            f"the model needs version {versions[DOMAIN]} of the domain vcdeploy; this is version {OP_VERSION}"
        )
    if DOMAIN not in (each.domain for each in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, OP_VERSION))
    present = {each.name for each in model.functions if each.domain == DOMAIN}
    kinds = _kinds(model)
    bodies = (function(op, opset, _rounds(model, op), kinds[op]) for op in sorted(used - present))
    model.functions.extend(FunctionProto.FromString(body) for body in bodies)
    model.ir_version = max(model.ir_version, 9)  # the first IR version with default attributes of functions
    return model


def used_ops(model: ModelProto) -> set[str]:
    """The op types of our domain in a model, including nested graphs and functions."""
    return {node.op_type for node in _op_nodes(model)}


def levels_of_ops(model: ModelProto) -> set[int | None]:
    """The values of the attribute LEVELS on our ops in a model; None stands for a missing one."""
    return {
        next((each.i for each in node.attribute if each.name == LEVELS), None)
        for node in _op_nodes(model)
        if node.op_type in OPS
    }


def check_bodies(model: ModelProto, name: str) -> None:
    """Raise if a body of our ops is not ours: kernels that replace the bodies would compute something else."""
    for each in model.functions:
        if each.domain != DOMAIN or each.name not in OPS:
            continue
        opset = next((one.version for one in each.opset_import if one.domain in ("", "ai.onnx")), 0)
        body, rounded = each.SerializeToString(deterministic=True), LEVELS in each.attribute
        if all(body != function(each.name, opset, rounded, kind) for kind in (*KINDS, EARLY)):
            raise VcdeployError(
                f"the function body of {each.name} in {name} is not the one that vcdeploy writes, so our kernels can't "
                "replace it: run it as it is with the backend onnxruntime:function, or export it again with "
                "`vcdeploy export`"
            )


def _rounds(model: ModelProto, op: str) -> bool:
    """Whether the nodes of an op type round activations; all must agree, since they share a body."""
    kinds = {any(each.name == LEVELS for each in node.attribute) for node in _op_nodes(model) if node.op_type == op}
    if len(kinds) > 1:
        raise VcdeployError(
            f"some {op} nodes of the model have the attribute {LEVELS}, which int8 and w8a8 need, and some don't, "
            "but they share one function: set it on all of them or on none"
        )
    return kinds.pop()


def _kinds(model: ModelProto) -> dict[str, int]:
    """The float type of each op type; all its nodes must agree. FLOAT if the model does not say."""
    graph, kinds = model.graph, dict[str, int]()
    known = {each.name: each.type.tensor_type.elem_type for each in (*graph.input, *graph.value_info)}
    known |= {each.name: each.data_type for each in graph.initializer}
    for node in _op_nodes(model):
        if node.op_type not in OPS:
            continue
        kind = known.get(node.input[UNITS[OPS[node.op_type]].inputs.index("u")], FLOAT)
        if kind not in KINDS or kinds.setdefault(node.op_type, kind) != kind:
            raise VcdeployError(
                f"the {node.op_type} nodes of the model have weights of types that one function can't take: convert "
                "the whole network with .float() before exporting it"
            )
    return kinds


def _op_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """The nodes of our domain in a model, including nested graphs and functions."""
    for nodes in (model.graph.node, *(each.node for each in model.functions)):
        yield from _own(nodes)


def _own(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        if node.domain == DOMAIN:
            yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _own(graph.node)
