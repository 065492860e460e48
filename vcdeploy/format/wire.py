"""Writes the protobuf messages of an ONNX graph as bytes, exactly as the onnx package does, but without importing it.

A reader can thus build the graph it expects in a file and compare: importing onnx takes longer than loading a model.
Encoding: https://protobuf.dev/programming-guides/encoding. Field numbers: onnx.proto.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

FLOAT, INT64, DOUBLE = 1, 7, 11  # of onnx.TensorProto.DataType
TYPES = {"float32": FLOAT, "int64": INT64, "float64": DOUBLE}


class Reference(NamedTuple):
    """Inside a function: the float (or integer, if `whole`) attribute `name` of the calling node."""

    name: str
    whole: bool


class Graph(NamedTuple):
    """A nested graph; the types of its inputs and outputs are inferred where it is used."""

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    nodes: Sequence["Node"]


Attribute: TypeAlias = "float | int | str | Sequence[int] | NDArray[Any] | Reference | Graph"


class Node(NamedTuple):
    """A node of a graph. domain: empty for standard ops."""

    op: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Attribute]
    name: str = ""
    domain: str = ""


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


def tensor(array: NDArray[Any]) -> bytes:
    """A TensorProto."""
    dims = b"".join(whole(1, size) for size in array.shape)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return dims + whole(2, TYPES[array.dtype.name]) + part(9, little.tobytes())


def attribute(name: str, value: Attribute) -> bytes:
    """An AttributeProto; its type follows from that of the value."""
    if isinstance(value, Reference):
        return part(1, name) + whole(20, 2 if value.whole else 1) + part(21, value.name)
    if isinstance(value, np.ndarray):
        content, kind = part(5, tensor(value)), 4
    elif isinstance(value, Graph):
        content, kind = part(6, graph(value)), 5
    elif isinstance(value, str):
        content, kind = part(4, value), 3
    elif isinstance(value, float):
        content, kind = real(2, value), 1
    elif isinstance(value, int):
        content, kind = whole(3, value), 2
    else:
        content, kind = b"".join(whole(8, each) for each in value), 7
    return part(1, name) + content + whole(20, kind)


def node(node: Node) -> bytes:
    """A NodeProto; its attributes are sorted by name."""
    attributes = (attribute(key, node.attributes[key]) for key in sorted(node.attributes))
    name = part(3, node.name) if node.name else b""
    domain = part(7, node.domain) if node.domain else b""
    return parts(1, node.inputs) + parts(2, node.outputs) + name + part(4, node.op) + parts(5, attributes) + domain


def value(name: str, shape: Sequence[int | str] | None = None, kind: int = FLOAT) -> bytes:
    """A ValueInfoProto; without a shape its type is left to inference."""
    if shape is None:
        return part(1, name)
    sizes = (part(2, size) if isinstance(size, str) else whole(1, size) for size in shape)
    return part(1, name) + part(2, part(1, whole(1, kind) + part(2, parts(1, sizes))))


def graph(graph: Graph) -> bytes:
    """A GraphProto without initializers."""
    inputs, outputs = map(value, graph.inputs), map(value, graph.outputs)
    return parts(1, map(node, graph.nodes)) + part(2, graph.name) + parts(11, inputs) + parts(12, outputs)


def function(
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
    preset = (attribute(key, default) for key, default in defaults.items())
    return head + parts(7, map(node, nodes)) + part(8, doc) + imports + part(10, domain) + parts(11, preset)
