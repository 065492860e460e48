"""Builds the nodes and declares the weights of an ONNX graph. Knows nothing about units or models."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from vcdeploy.format.precision import SCALE
from vcdeploy.format.wire import FLOAT, Graph, Node, Reference
from vcdeploy.spec import PRECISIONS

INT8 = PRECISIONS["int8"].onnx_type


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

    def join_parts(self, value: str, parts: int, kept: Sequence[int], axis: int) -> str:
        """Split `value` into equal parts and concatenate those at the places `kept`."""
        names = self.split(value, parts, axis)
        return self.add("Concat", *[names[place] for place in kept], axis=axis)

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


class Initializer(NamedTuple):
    """A stored array: its name, its number in onnx.TensorProto.DataType and its shape."""

    name: str
    kind: int
    shape: tuple[int, ...]


class Weights:
    """The initializers of a graph, stored in one precision and read as float32."""

    def __init__(self, nodes: Nodes, precision: str) -> None:
        self.nodes, self.precision = nodes, precision
        self.initializers: dict[str, Initializer] = {}
        self._wide: dict[str, str] = {}

    def add(self, name: str, shape: Sequence[int]) -> str:
        """Declare an array; returns its name."""
        kind = FLOAT if len(shape) < 2 else PRECISIONS[self.precision].onnx_type
        self.initializers[name] = Initializer(name, kind, tuple(shape))
        if kind == INT8:
            self.initializers[name + SCALE] = Initializer(name + SCALE, FLOAT, (*shape[:-1], 1))
        return name

    def whole(self, name: str) -> str:
        """A stored array as a float32 value. The ops have constant inputs, so a runtime runs them once, at load."""
        if name not in self._wide:
            self._wide[name] = self._widen(name, name, name + SCALE)
        return self._wide[name]

    def rows(self, name: str, index: str) -> str:
        """The rows of a stored matrix at `index`, as float32."""
        scale = self.nodes.add("Gather", name + SCALE, index) if name + SCALE in self.initializers else ""
        return self._widen(name, self.nodes.add("Gather", name, index), scale)

    def _widen(self, name: str, value: str, scale: str) -> str:
        kind = self.initializers[name].kind
        if kind == FLOAT:
            return value
        wide = self.nodes.add("Cast", value, to=FLOAT)
        return self.nodes.add("Mul", wide, scale) if kind == INT8 else wide
