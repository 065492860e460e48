"""The ops VCRNN, VCGRU and VCLSTM as ONNX functions: a Scan over T with standard ops, for any stock runtime.

A model that carries them needs no library; a runtime that has a kernel for the op uses the kernel instead.
"""

from collections.abc import Iterable

from onnx import FunctionProto, ModelProto, NodeProto, checker, helper, shape_inference

from vcdeploy.errors import VcdeployError

from .nodes import Nodes
from .steps import GATES, Scheduler, advance, state_names, weights_of_step

DOMAIN = "vcdeploy"
OP_VERSION = 1
OPS = {unit.upper(): unit for unit in GATES}
OLDEST_OPSET = 18  # Split by the number of parts
WEIGHTS = ["U", "V", "u", "v", "b"]


def op_inputs(unit: str) -> list[str]:
    """The inputs of the op, in order (docs/design.md, section 2)."""
    return ["X", "H0", *WEIGHTS, *(["C0"] if unit == "vclstm" else [])]


def op_outputs(unit: str) -> list[str]:
    return ["Y", "H", "M", *(["C"] if unit == "vclstm" else [])]


def op_attributes(sharpness: float, epsilon: float) -> dict[str, float | str]:
    """The attributes of an op node. TensorRT's parser prefers a plugin to the function only where both
    plugin_version and plugin_namespace are written out."""
    return {"sharpness": sharpness, "epsilon": epsilon, "plugin_version": "1", "plugin_namespace": ""}


def function(op: str, opset: int) -> FunctionProto:
    """The body of one op type, for the given version of the standard ops."""
    unit = OPS[op]
    before = Nodes()
    sharpness, epsilon = before.function_attribute("sharpness"), before.function_attribute("epsilon")
    scheduler = Scheduler.prepare(before, "u", "v", "b", sharpness, epsilon)
    weights = weights_of_step(before, unit, "U", "V")

    state = state_names(unit)
    body = Nodes("step_")
    m = scheduler.share(body, "x", "h")
    after = advance(body, unit, scheduler, scheduler.mask(body, m), "x", state, weights)
    y = body.add("Identity", after[0])
    step = body.graph("step", [*state, "x"], [*after, y, m])
    initial = [f"{part.upper()}0" for part in state]
    final = [part.upper() for part in state]
    before.add_many("Scan", *initial, "X", outputs=[*final, "Y", "M"], body=step, num_scan_inputs=1)
    defaults = {name: value for name, value in op_attributes(0, 0).items() if name.startswith("plugin")}
    return helper.make_function(
        DOMAIN,
        op,
        op_inputs(unit),
        op_outputs(unit),
        before.nodes,
        [helper.make_opsetid("", opset)],
        attributes=["sharpness", "epsilon"],
        attribute_protos=[helper.make_attribute(name, value) for name, value in defaults.items()],
        doc_string=f"{op} over a sequence, computed densely: docs/design.md, section 1, of vcdeploy.",
    )


def attach_functions(model: ModelProto) -> ModelProto:
    """Give a model the body of every vcdeploy op it uses, in place; the same model comes back.

    For networks of your own: `torch.onnx.export(network, …, dynamo=True).model_proto` holds op nodes only.

    >>> onnx.save(attach_functions(program.model_proto), "network.onnx")
    """
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
            f"the model wants version {versions[DOMAIN]} of the domain vcdeploy; this is version {OP_VERSION}"
        )
    if DOMAIN not in (each.domain for each in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, OP_VERSION))
    present = {each.name for each in model.functions if each.domain == DOMAIN}
    model.functions.extend(function(op, opset) for op in sorted(used - present))
    model.ir_version = max(model.ir_version, 9)  # the first with default attributes of functions
    return model


def used_ops(model: ModelProto) -> set[str]:
    """The op types of our domain in a model, nested graphs and functions included."""
    used = _ops_in(model.graph.node)
    for each in model.functions:
        used |= _ops_in(each.node)
    return used


def _ops_in(nodes: Iterable[NodeProto]) -> set[str]:
    """The op types of our domain among nodes, those of nested graphs included."""
    found = set()
    for node in nodes:
        if node.domain == DOMAIN:
            found.add(node.op_type)
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                found |= _ops_in(graph.node)
    return found


def check(model: ModelProto) -> None:
    """onnx's own full check, and shape inference that must find no contradiction."""
    checker.check_model(model, full_check=True)
    shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
