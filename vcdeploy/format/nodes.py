"""Nodes and weights of an ONNX graph: a builder, and the protobuf messages they are written as.

The messages are exactly those of the onnx package, without importing it, which takes longer than loading a model: a
reader builds the graph it expects in a file, and compares. Knows nothing about units or models. Encoding:
https://protobuf.dev/programming-guides/encoding. Field numbers: onnx.proto.
"""

import ast
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from vcdeploy.format.precision import SCALE
from vcdeploy.spec import PRECISIONS

FLOAT, INT64, BOOL, DOUBLE = 1, 7, 9, 11  # of onnx.TensorProto.DataType
TYPES = {"float32": FLOAT, "int64": INT64, "float64": DOUBLE}
INT8 = PRECISIONS["int8"].onnx_type


class Reference(NamedTuple):
    """Inside a function: the float (or integer, if `whole`) attribute `name` of the calling node."""

    name: str
    whole: bool


class Graph(NamedTuple):
    """A nested graph.

    types: shape and type of inputs and outputs; those of the others are inferred where the graph is used.
    """

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    nodes: Sequence["Node"]
    types: Mapping[str, tuple[Sequence[int | str], int]]


Attribute: TypeAlias = "float | int | str | Sequence[int] | NDArray[Any] | Reference | Graph"


class Node(NamedTuple):
    """A node of a graph. domain: empty for standard ops."""

    op: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Attribute]
    name: str = ""
    domain: str = ""


class Nodes:
    """A growing list of nodes.

    `prefix` keeps the names of nested graphs and functions distinct, as ONNX and its tools require. named: whether
    nodes have names.
    """

    def __init__(self, prefix: str = "", named: bool = True) -> None:
        self.nodes: list[Node] = []
        self.prefix, self.named = prefix, named

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
        name = name or (self.fresh(op) if self.named else "")
        self.nodes.append(Node(op, inputs, outputs, attributes, name, domain))
        return outputs

    def prune(self, outputs: Iterable[str]) -> None:
        """Remove the nodes that no output needs."""
        used, kept = set(outputs), []
        for node in reversed(self.nodes):
            if not used.isdisjoint(node.outputs):
                used |= _read(node)
                kept.append(node)
        self.nodes = kept[::-1]

    def split(self, value: str, parts: int, axis: int) -> list[str]:
        """Split `value` into equal parts."""
        names = [f"{self.fresh('Split')}_{part}" for part in range(parts)]
        return list(self.add_many("Split", value, outputs=names, axis=axis, num_outputs=parts))

    def constant(self, value: ArrayLike, dtype: DTypeLike) -> str:
        return self.add("Constant", value=np.asarray(value, dtype))

    def run(self, equations: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Add the nodes of equations such as `hbar = Mul(e, h)`; returns all values by name.

        The syntax is Python's. A call of an ONNX op adds a node, with keywords as attributes; `r, z = Split(…)` takes
        two outputs. A number is a constant: int64, or float32 if it has a point. A function made with `def` can be
        called like an op, and sees the values of its caller.

        values: what the equations may use: names of values, tuples of them, attributes, and functions.
        """
        known = dict(values)
        self._run(_parsed(equations), known)
        return known

    def _run(self, lines: list[ast.stmt], values: dict[str, Any]) -> Any:
        for line in lines:
            match line:
                case ast.Assign(targets=[ast.Name(id=name)], value=term):
                    values[name] = self._value(term, values)
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=term):
                    made = self._value(term, values, len(names))
                    values.update(zip((each.id for each in names if isinstance(each, ast.Name)), made, strict=True))
                case ast.FunctionDef(name=name):
                    values[name] = line
                case ast.Return(value=ast.expr() as term):
                    return self._value(term, values)
                case _:
                    raise SyntaxError(f"not an equation: {ast.unparse(line)}")
        return None

    def _value(self, term: ast.expr, values: Mapping[str, Any], parts: int = 1) -> Any:
        """The name of a term's value, after adding its nodes; for several parts, their names."""
        match term:
            case ast.Name(id=name):
                return values[name]
            case ast.Tuple(elts=terms):
                return tuple(self._value(each, values) for each in terms)
            case ast.Call(func=ast.Name(id=op), args=terms, keywords=keywords):
                inputs = [self._value(each, values) for each in terms]
                if op in values:
                    names = [each.arg for each in values[op].args.args]
                    return self._run(values[op].body, {**values, **dict(zip(names, inputs, strict=True))})
                attributes = {str(each.arg): _attribute(each.value, values) for each in keywords}
                name = self.fresh(op)
                outputs = [name] if parts == 1 else [f"{name}_{part}" for part in range(parts)]
                self.add_many(op, *inputs, outputs=outputs, **attributes)
                return name if parts == 1 else outputs
        number = ast.literal_eval(term)
        return self.constant(number, np.float32 if isinstance(number, float) else np.int64)

    def graph(
        self,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        types: Mapping[str, tuple[Sequence[int | str], int]] | None = None,
    ) -> Graph:
        """A nested graph of these nodes."""
        return Graph(name, inputs, outputs, self.nodes, types or {})


def _read(node: Node) -> set[str]:
    """The values a node reads, with those that its nested graphs capture."""
    graphs = [each for each in node.attributes.values() if isinstance(each, Graph)]
    return set(node.inputs).union(*(_read(inner) for graph in graphs for inner in graph.nodes))


@cache
def _parsed(equations: str) -> list[ast.stmt]:
    return ast.parse(equations).body


def _attribute(term: ast.expr, values: Mapping[str, Any]) -> Any:
    """A name stands for a given value or a type; everything else for itself."""
    if isinstance(term, ast.Name):
        return TYPES[term.id] if term.id in TYPES else values[term.id]
    return ast.literal_eval(term)


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


@lru_cache(maxsize=256)  # mostly tags and short lengths
def varint(value: int) -> bytes:
    value &= 2**64 - 1
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    content.append(value)
    return bytes(content)


def whole(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def real(field: int, value: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", value)


def part(field: int, content: bytes | str) -> bytes:
    """Text, bytes or a message."""
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def parts(field: int, contents: Iterable[bytes | str]) -> bytes:
    return b"".join(part(field, each) for each in contents)


def tensor_message(array: NDArray[Any]) -> bytes:
    """A TensorProto."""
    dims = b"".join(whole(1, size) for size in array.shape)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return dims + whole(2, TYPES[array.dtype.name]) + part(9, little.tobytes())


def attribute_message(name: str, value: Attribute) -> bytes:
    """An AttributeProto; its type follows from that of the value."""
    if isinstance(value, Reference):
        return part(1, name) + whole(20, 2 if value.whole else 1) + part(21, value.name)
    if isinstance(value, np.ndarray):
        content, kind = part(5, tensor_message(value)), 4
    elif isinstance(value, Graph):
        content, kind = part(6, graph_message(value)), 5
    elif isinstance(value, str):
        content, kind = part(4, value), 3
    elif isinstance(value, float):
        content, kind = real(2, value), 1
    elif isinstance(value, int):
        content, kind = whole(3, value), 2
    else:
        content, kind = b"".join(whole(8, each) for each in value), 7
    return part(1, name) + content + whole(20, kind)


def node_message(node: Node) -> bytes:
    """A NodeProto; its attributes are sorted by name."""
    attributes = (attribute_message(key, node.attributes[key]) for key in sorted(node.attributes))
    name = part(3, node.name) if node.name else b""
    domain = part(7, node.domain) if node.domain else b""
    return parts(1, node.inputs) + parts(2, node.outputs) + name + part(4, node.op) + parts(5, attributes) + domain


def value_message(name: str, shape: Sequence[int | str] | None = None, kind: int = FLOAT) -> bytes:
    """A ValueInfoProto; without a shape its type is left to inference."""
    if shape is None:
        return part(1, name)
    sizes = (part(2, size) if isinstance(size, str) else whole(1, size) for size in shape)
    return part(1, name) + part(2, part(1, whole(1, kind) + part(2, parts(1, sizes))))


def graph_message(graph: Graph) -> bytes:
    """A GraphProto without initializers."""
    inputs, outputs = (
        [value_message(name, *graph.types.get(name, ())) for name in names] for names in (graph.inputs, graph.outputs)
    )
    return parts(1, map(node_message, graph.nodes)) + part(2, graph.name) + parts(11, inputs) + parts(12, outputs)


def function_message(
    domain: str,
    name: str,
    inputs: Iterable[str],
    outputs: Iterable[str],
    nodes: Iterable[Node],
    opset: int,
    attributes: Iterable[str],
    defaults: Mapping[str, Attribute],
    doc: str,
) -> bytes:
    """A FunctionProto. attributes: those without a default value."""
    head = part(1, name) + parts(4, inputs) + parts(5, outputs) + parts(6, attributes)
    imports = part(9, part(1, "") + whole(2, opset))
    preset = (attribute_message(key, default) for key, default in defaults.items())
    return head + parts(7, map(node_message, nodes)) + part(8, doc) + imports + part(10, domain) + parts(11, preset)
