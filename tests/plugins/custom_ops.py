"""ONNX Runtime sessions with one custom-op node, whose weights are constant or inputs."""

from collections.abc import Sequence
from typing import Any

import onnx
import pytest
import torch
from cases import EPSILON, Case
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from vcdeploy.custom_ops import HOW_TO_BUILD, library
from vcdeploy.format.steps import DOMAIN, op_attributes
from vcdeploy.spec import UNITS

WEIGHTS = slice(2, 7)  # U, V, u, v, b among the inputs


def need_library() -> str:
    """Path of the library. Every build produces it, so a missing one is a failure."""
    pytest.importorskip("onnxruntime")
    path = library()
    assert path is not None, f"the custom-op library is missing: {HOW_TO_BUILD}"
    return str(path)


def op_model(
    unit: str, inputs: list[Tensor], *, constant: bool = True, outputs: Sequence[str] | None = None, **attributes: Any
) -> onnx.ModelProto:
    """A graph of one node, without a function body.

    constant: the weights are initializers, else graph inputs. outputs: all by default; an empty name omits one.
    attributes: override or add to those of the op; None removes one.
    """
    names = UNITS[unit].inputs
    outputs = UNITS[unit].outputs if outputs is None else outputs
    settings = {**op_attributes(1.0, EPSILON), **attributes}
    node = helper.make_node(
        unit.upper(),
        names,
        outputs,
        domain=DOMAIN,
        **{name: value for name, value in settings.items() if value is not None},
    )
    held = dict(list(zip(names, inputs, strict=True))[WEIGHTS]) if constant else {}
    kinds = {torch.float32: TensorProto.FLOAT, torch.float64: TensorProto.DOUBLE}
    given = [
        helper.make_tensor_value_info(name, kinds[each.dtype], [None] * each.dim())
        for name, each in zip(names, inputs, strict=True)
        if name not in held
    ]
    graph = helper.make_graph(
        [node],
        unit,
        given,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name],
        [numpy_helper.from_array(each.numpy(), name) for name, each in held.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


class OpSession:
    """A session with the library. optimise: whether to optimise the graph (the default). entries: session settings."""

    def __init__(self, model: onnx.ModelProto, optimise: bool = True, /, **entries: str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        if not optimise:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4  # failures are expected in these tests
        for name, value in entries.items():
            options.add_session_config_entry(f"vcdeploy.{name}", value)
        options.register_custom_ops_library(need_library())
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        self.names = [each.name for each in self.session.get_inputs()]

    def run(self, unit: str, inputs: list[Tensor]) -> list[Tensor]:
        """Run the op. inputs: all inputs of the op; constant ones are not passed to the session."""
        feed = {name: each.numpy() for name, each in zip(UNITS[unit].inputs, inputs, strict=True) if name in self.names}
        return [torch.from_numpy(each) for each in self.session.run(None, feed)]


def session_of(case: Case, inputs: list[Tensor], constant: bool = True, **entries: str) -> OpSession:
    return OpSession(op_model(case.unit, inputs, constant=constant, sharpness=case.sharpness), **entries)
