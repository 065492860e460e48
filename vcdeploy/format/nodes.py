"""Builds lists of ONNX nodes with unique output names. Knows nothing about units or models."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike, DTypeLike

from vcdeploy.format import wire


class Nodes:
    """A growing list of nodes, each the bytes of a NodeProto.

    `prefix` keeps the names of nested graphs distinct, as ONNX requires.
    """

    def __init__(self, prefix: str = "") -> None:
        self.nodes: list[bytes] = []
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
        encoded = (wire.attribute(key, attributes[key]) for key in sorted(attributes))
        self.nodes.append(wire.node(op, inputs, outputs, name, domain, encoded))
        return outputs

    def split(self, value: str, parts: int, axis: int) -> list[str]:
        """Split `value` into equal parts."""
        names = [f"{self.fresh('Split')}_{part}" for part in range(parts)]
        return list(self.add_many("Split", value, outputs=names, axis=axis, num_outputs=parts))

    def constant(self, value: ArrayLike, dtype: DTypeLike) -> str:
        return self.add("Constant", value=wire.constant(value, dtype))

    def function_attribute(self, name: str, whole: bool = False) -> str:
        """Inside a function: the float (or integer, with `whole`) attribute `name` of the calling node."""
        output = self.fresh("Constant")
        place = wire.reference("value_int" if whole else "value_float", name, whole)
        self.nodes.append(wire.node("Constant", [], [output], "", "", [place]))
        return output

    def graph(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> wire.Graph:
        """A nested graph of these nodes; the types of its inputs and outputs are inferred where it is used."""
        return wire.graph(self.nodes, name, map(wire.value, inputs), map(wire.value, outputs))
