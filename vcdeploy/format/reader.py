"""Reads the weights and metadata of a model file without copying any weight.

protobuf's own parser copies every weight into its message, and again on the way out. So the few fields needed here are
parsed directly from the file's bytes: https://protobuf.dev/programming-guides/encoding. The graph's nodes are for
other runtimes and are not read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy.spec import PRECISIONS

OURS = ("embedding", "layers.", "output.")  # prefixes of weight names (docs/design.md, section 2)
SCALE = ".scale"
TYPES = {precision.onnx_type: precision for precision in PRECISIONS.values()}


@dataclass(frozen=True)
class Stored:
    """An array as stored in a file. bf16 is kept as its 16 bits; int8 has one scale per row, [..., rows, 1]."""

    values: NDArray[Any]
    precision: str
    scale: NDArray[np.float32] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def wide(self) -> NDArray[np.float32]:
        """The float32 values that a runtime computes with."""
        if self.precision == "bf16":
            return (self.values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        wide = self.values.astype(np.float32)
        return wide if self.scale is None else wide * self.scale


@dataclass
class ModelFile:
    """A parsed file. metadata: its properties. weights: its initializers by name, as views of the file's bytes."""

    metadata: dict[str, str] = field(default_factory=dict)
    weights: dict[str, Stored] = field(default_factory=dict)


def read(content: bytes) -> ModelFile:
    """Parse an ONNX file; raises ValueError if it is not one, is cut short or is inconsistent."""
    file, tensors = ModelFile(), dict[str, Stored]()
    for number, value in _fields(memoryview(content)):  # of a ModelProto
        if number == 7:  # graph
            for place, tensor in _fields(_part(value)):
                if place == 5 and (name := _name(_part(tensor))).startswith(OURS):  # initializer
                    tensors[name] = _tensor(name, _part(tensor))
        elif number == 14:  # metadata_props
            entry = dict(_fields(_part(value)))
            file.metadata[_text(entry.get(1, b""))] = _text(entry.get(2, b""))
    file.weights = {
        name: _with_scale(name, each, tensors) for name, each in tensors.items() if not name.endswith(SCALE)
    }
    return file


def _with_scale(name: str, each: Stored, tensors: Mapping[str, Stored]) -> Stored:
    if each.precision != "int8":
        return each
    scale = tensors.get(name + SCALE)
    wanted = (*each.shape[:-1], 1)
    if scale is None or scale.precision != "f32" or scale.shape != wanted:
        raise ValueError(f"{name} is int8 but has no {name}{SCALE} of float32 {list(wanted)}")
    return Stored(each.values, "int8", scale.values)


def _name(message: memoryview) -> str:
    """The name of a TensorProto."""
    return "".join(_text(value) for number, value in _fields(message) if number == 8)


def _tensor(name: str, message: memoryview) -> Stored:
    """The array of a TensorProto."""
    dims, kind, raw, elsewhere = list[int](), 0, None, False
    for number, value in _fields(message):
        if number == 1:
            dims += [value] if isinstance(value, int) else _varints(value)
        elif number == 2:
            kind = _whole(value)
        elif number == 9:
            raw = _part(value)
        elif number == 13 or (number == 14 and value == 1):
            elsewhere = True
    if elsewhere:
        raise ValueError(
            f"{name} is stored in another file, but a model must be one file: save it with its weights inside"
        )
    if kind not in TYPES:
        raise ValueError(f"{name} has the data type {kind}, not float32, float16, bfloat16 or int8")
    precision, dtype = TYPES[kind].name, TYPES[kind].dtype
    if raw is None:  # in one of the typed fields, as other writers may store it
        from onnx import TensorProto, numpy_helper

        tensor = TensorProto.FromString(message)
        flat = numpy_helper.to_array(tensor).reshape(-1)
        values = flat.view(np.uint16) if precision == "bf16" else flat
    else:
        values = np.frombuffer(raw, dtype)  # raises ValueError if bytes are left over
    if any(size < 0 for size in dims) or math.prod(dims) != values.size:
        raise ValueError(f"{name} has the shape {dims} but {values.size} values")
    return Stored(values.reshape(dims), precision)


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field: integers as they are, everything else as bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire == 2:
            length, at = _varint(message, at)
        else:
            length = {1: 8, 5: 4}.get(wire, -1)
        if number == 0 or not 0 <= length <= len(message) - at:
            raise ValueError(f"field {number} of type {wire} is broken or cut short")
        yield number, message[at : at + length]
        at += length


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """The signed 64-bit integer at a position, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("the file ends within a number")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 2**64 - 1
            return (value - 2**64 if value >= 2**63 else value), at
    raise ValueError("a number has more than 64 bits")


def _varints(message: memoryview) -> list[int]:
    values, at = list[int](), 0
    while at < len(message):
        value, at = _varint(message, at)
        values.append(value)
    return values


def _part(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError(f"found the number {value} where a message was expected")
    return value


def _whole(value: int | memoryview) -> int:
    if not isinstance(value, int):
        raise ValueError("found bytes where a number was expected")
    return value


def _text(value: int | memoryview | bytes) -> str:
    if isinstance(value, int):
        raise ValueError(f"found the number {value} where text was expected")
    return bytes(value).decode()
