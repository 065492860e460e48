"""Builds lists of ONNX nodes with unique output names. Knows nothing about units or models."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from onnx import AttributeProto, GraphProto, NodeProto, ValueInfoProto, helper, numpy_helper


class Nodes:
    """A growing list of nodes. `prefix` keeps the names of nested graphs distinct, as ONNX requires."""

    def __init__(self, prefix: str = "") -> None:
        self.nodes: list[NodeProto] = []
        self.prefix = prefix

    def fresh(self, stem: str) -> str:
        """An unused value name."""
        return f"{self.prefix}{stem}_{len(self.nodes)}"

    def add(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node with one output; returns the output's name."""
        return self.add_many(op, *inputs, outputs=[output or self.fresh(op)], **attributes)[0]

    def add_many(self, op: str, *inputs: str, outputs: Sequence[str], **attributes: Any) -> Sequence[str]:
        """Add a node with several outputs; returns their names."""
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs

    def split(self, value: str, parts: int, axis: int) -> list[str]:
        """Split `value` into equal parts."""
        names = [f"{self.fresh('Split')}_{part}" for part in range(parts)]
        return list(self.add_many("Split", value, outputs=names, axis=axis, num_outputs=parts))

    def constant(self, value: ArrayLike, dtype: DTypeLike) -> str:
        return self.add("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def function_attribute(self, name: str, whole: bool = False) -> str:
        """Inside a function: the float (or integer, with `whole`) attribute `name` of the calling node."""
        output = self.add("Constant")
        kind, place = (AttributeProto.INT, "value_int") if whole else (AttributeProto.FLOAT, "value_float")
        self.nodes[-1].attribute.append(AttributeProto(name=place, type=kind, ref_attr_name=name))
        return output

    def graph(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> GraphProto:
        """A nested graph of these nodes; the types of its inputs and outputs are inferred where it is used."""
        before, after = ([ValueInfoProto(name=each) for each in names] for names in (inputs, outputs))
        return helper.make_graph(self.nodes, name, before, after)
