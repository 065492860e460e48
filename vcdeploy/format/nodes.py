"""Builds lists of ONNX nodes with unique output names. Knows nothing about units or models."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from vcdeploy.format.wire import Graph, Node, Reference


class Nodes:
    """A growing list of nodes.

    `prefix` keeps the names of nested graphs distinct, as ONNX requires.
    """

    def __init__(self, prefix: str = "") -> None:
        self.nodes: list[Node] = []
        self.prefix = prefix

    def fresh(self, stem: str) -> str:
        """An unused value name."""
        return f"{self.prefix}{stem}_{len(self.nodes)}"

    def add(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node with one output; returns the output's name."""
        return self.add_many(op, *inputs, outputs=[output or self.fresh(op)], **attributes)[0]

    def add_many(
        self, op: str, *inputs: str, outputs: Sequence[str], name: str = "", domain: str = "", **attributes: Any
    ) -> Sequence[str]:
        """Add a node with several outputs; returns their names."""
        self.nodes.append(Node(op, inputs, outputs, attributes, name, domain))
        return outputs

    def split(self, value: str, parts: int, axis: int) -> list[str]:
        """Split `value` into equal parts."""
        names = [f"{self.fresh('Split')}_{part}" for part in range(parts)]
        return list(self.add_many("Split", value, outputs=names, axis=axis, num_outputs=parts))

    def constant(self, value: ArrayLike, dtype: DTypeLike) -> str:
        return self.add("Constant", value=np.asarray(value, dtype))

    def cast_like(self, value: str, other: str) -> str:
        return self.add("CastLike", value, other)

    def function_attribute(self, name: str, whole: bool = False) -> str:
        """Inside a function: the float (or integer, with `whole`) attribute `name` of the calling node."""
        value = Reference(name, whole)
        return self.add("Constant", value_int=value) if whole else self.add("Constant", value_float=value)

    def graph(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        """A nested graph of these nodes."""
        return Graph(name, inputs, outputs, self.nodes)
