"""Writes the protobuf messages of an ONNX graph as bytes, exactly as the onnx package does, but without importing it.

A reader can thus build the graph it expects in a file and compare: importing onnx takes longer than loading a model.
Encoding: https://protobuf.dev/programming-guides/encoding. Field numbers: onnx.proto.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FLOAT, INT64, DOUBLE = 1, 7, 11  # of onnx.TensorProto.DataType
TYPES = {"float32": FLOAT, "int64": INT64, "float64": DOUBLE}


class Tensor(bytes):
    """A TensorProto, as an attribute's value."""


class Graph(bytes):
    """A GraphProto, as an attribute's value."""


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


def tensor(array: NDArray[Any]) -> Tensor:
    dims = b"".join(whole(1, size) for size in array.shape)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return Tensor(dims + whole(2, TYPES[array.dtype.name]) + part(9, little.tobytes()))


def attribute(name: str, value: float | int | str | Sequence[int] | Tensor | Graph) -> bytes:
    """An AttributeProto; its type follows from that of the value."""
    if isinstance(value, Tensor):
        content, kind = part(5, value), 4
    elif isinstance(value, Graph):
        content, kind = part(6, value), 5
    elif isinstance(value, str):
        content, kind = part(4, value), 3
    elif isinstance(value, float):
        content, kind = real(2, value), 1
    elif isinstance(value, int):
        content, kind = whole(3, value), 2
    else:
        content, kind = b"".join(whole(8, each) for each in value), 7
    return part(1, name) + content + whole(20, kind)


def reference(place: str, name: str, whole_number: bool) -> bytes:
    """Inside a function, an AttributeProto that takes its value from the attribute `name` of the calling node."""
    return part(1, place) + whole(20, 2 if whole_number else 1) + part(21, name)


def node(
    op: str, inputs: Iterable[str], outputs: Iterable[str], name: str, domain: str, attributes: Iterable[bytes]
) -> bytes:
    """A NodeProto."""
    named = part(3, name) if name else b""
    ending = part(7, domain) if domain else b""
    return parts(1, inputs) + parts(2, outputs) + named + part(4, op) + parts(5, attributes) + ending


def value(name: str, shape: Sequence[int | str] | None = None, kind: int = FLOAT) -> bytes:
    """A ValueInfoProto; without a shape its type is left to inference."""
    if shape is None:
        return part(1, name)
    sizes = (part(2, size) if isinstance(size, str) else whole(1, size) for size in shape)
    return part(1, name) + part(2, part(1, whole(1, kind) + part(2, parts(1, sizes))))


def graph(nodes: Iterable[bytes], name: str, inputs: Iterable[bytes], outputs: Iterable[bytes]) -> Graph:
    """A GraphProto without initializers."""
    return Graph(parts(1, nodes) + part(2, name) + parts(11, inputs) + parts(12, outputs))


def function(
    domain: str,
    name: str,
    inputs: Iterable[str],
    outputs: Iterable[str],
    nodes: Iterable[bytes],
    opset: int,
    attributes: Iterable[str],
    defaults: Iterable[bytes],
    doc: str,
) -> bytes:
    """A FunctionProto. defaults: attributes with a default value."""
    head = part(1, name) + parts(4, inputs) + parts(5, outputs) + parts(6, attributes)
    imports = part(9, part(1, "") + whole(2, opset))
    return head + parts(7, nodes) + part(8, doc) + imports + part(10, domain) + parts(11, defaults)


def constant(number: Any, dtype: Any) -> Tensor:
    return tensor(np.asarray(number, dtype))
