"""Reads a model file: its weights, without copying any, and its metadata, the configuration and the vocabulary.

protobuf's own parser copies every weight into its message, and again on the way out. So the few fields needed here are
parsed directly from the file's bytes: https://protobuf.dev/programming-guides/encoding. Nodes are not interpreted, only
split: vcdeploy.format.structure compares them with the ones it knows.

Counts and sizes are limited before anything is computed from them, so that a hostile file of n bytes costs O(n).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import VcdeployError
from vcdeploy.format import checksum
from vcdeploy.spec import PRECISIONS, UNITS
from vcdeploy.vocabulary import Vocabulary

OURS = ("embedding", "layers.", "output.")  # prefixes of weight names (docs/design.md, section 2)
SCALE = ".scale"
# The precision of a stored tensor by its type; int8 for both precisions that store int8.
TYPES = {precision.onnx_type: precision for precision in reversed(PRECISIONS.values())}
MOST_FIELDS = 100_000  # in a file, as far as it is parsed; a model of 100 layers has about 6,000
MOST_DIMENSIONS = 8
LONGEST_NAME = 200  # bytes

# Of the metadata (docs/design.md, section 2).
CONFIG_KEY, VOCAB_KEY = "vcdeploy.config", "vcdeploy.vocab"
EXPORT_AGAIN = "export it again with `vcdeploy export`"
LONGEST_CONFIG, LONGEST_VOCABULARY = 2**20, 2**24  # characters; parsed JSON takes many times its text
LARGEST = 2**31 - 1  # of dim and layers


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
class Graph:
    """The structure of a file: its messages as views of the file's bytes.

    initializers: the data type and shape of each stored array. opsets: version by domain. others: what it has besides.
    """

    nodes: list[memoryview] = field(default_factory=list)
    initializers: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    inputs: list[memoryview] = field(default_factory=list)
    outputs: list[memoryview] = field(default_factory=list)
    functions: list[memoryview] = field(default_factory=list)
    opsets: dict[str, int] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


@dataclass
class ModelFile:
    """A parsed file. metadata: its properties. weights: its initializers by name, as views of the file's bytes.

    sealed: whether it has a checksum; files of version 0.2 and earlier have none.
    """

    metadata: dict[str, str] = field(default_factory=dict)
    weights: dict[str, Stored] = field(default_factory=dict)
    graph: Graph = field(default_factory=Graph)
    sealed: bool = False


def read(content: bytes) -> ModelFile:
    """Parse an ONNX file; raises ValueError if it is not one, is damaged, cut short or inconsistent."""
    if not content:
        raise ValueError("it is empty")
    fields, file = _Fields(), ModelFile()
    graphs, seal = list[memoryview](), None
    for number, value, end in fields.of(memoryview(content)):  # of a ModelProto
        if number == 7:
            graphs.append(_part(value))
        elif number == 8:  # opset_import
            opset = fields.last(_part(value))
            domain = _text(opset.get(1, b"")) or "ai.onnx"
            file.graph.opsets[domain] = _whole(opset.get(2, 0))
        elif number == 14:  # metadata_props
            entry = fields.last(_part(value))
            key = _text(entry.get(1, b""))
            file.metadata[key] = _text(entry.get(2, b""))
            if key == checksum.KEY:
                seal = end - len(_part(value)), end
        elif number == 25:
            file.graph.functions.append(_part(value))
    if not graphs:
        raise ValueError("it has no graph")
    if seal:
        if checksum.checksum(*checksum.around(content, *seal)) != file.metadata.pop(checksum.KEY):
            raise ValueError("its content doesn't match its checksum: it was damaged or edited")
        file.sealed = True
    tensors = dict[str, Stored]()
    for graph in graphs:  # protobuf merges repeated messages
        for number, value, _ in fields.of(graph):
            _read_part(file.graph, tensors, number, value, fields)
    file.weights = {
        name: _with_scale(name, each, tensors) for name, each in tensors.items() if not name.endswith(SCALE)
    }
    return file


def read_config(metadata: Mapping[str, str], name: str) -> dict[str, Any]:
    """The configuration of a model: unit, dim, layers, sharpness, epsilon, precision, kind, …"""
    if CONFIG_KEY not in metadata or VOCAB_KEY not in metadata:
        raise VcdeployError(
            f"{name} is an ONNX file, but not a vcdeploy model: its metadata lacks {CONFIG_KEY} or {VOCAB_KEY}. "
            "Run other models with ONNX Runtime directly."
        )
    _check_length(metadata, CONFIG_KEY, LONGEST_CONFIG, name)
    _check_length(metadata, VOCAB_KEY, LONGEST_VOCABULARY, name)
    try:
        config = json.loads(metadata[CONFIG_KEY])
        unit = UNITS.get(config["unit"])
        sound = (
            unit is not None
            and unit.exports
            and config.get("bias", False) in (False, unit.biased)
            and all(type(config[key]) is int and 0 < config[key] <= LARGEST for key in ("dim", "layers"))
        )
        if not sound or not {"sharpness", "epsilon", "precision", "kind"} <= config.keys():
            raise ValueError(f"{metadata[CONFIG_KEY][:200]}")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise VcdeployError(
            f"the {CONFIG_KEY} of {name} is incomplete or invalid ({brief(error)}): {EXPORT_AGAIN}"
        ) from error
    return dict(config)


def read_vocabulary(metadata: Mapping[str, str], config: Mapping[str, Any], name: str) -> Vocabulary:
    """The vocabulary of a model; config: its configuration."""
    try:
        symbols = json.loads(metadata[VOCAB_KEY])
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise ValueError("it is not a list of strings")
        return Vocabulary(symbols, kind=config["kind"], buffer=config.get("buffer", 0))
    except (TypeError, ValueError, RecursionError, VcdeployError) as error:
        raise VcdeployError(f"the {VOCAB_KEY} of {name} is invalid ({brief(error)}): {EXPORT_AGAIN}") from error


def _check_length(metadata: Mapping[str, str], key: str, most: int, name: str) -> None:
    if len(metadata[key]) > most:
        raise VcdeployError(
            f"the {key} of {name} has {len(metadata[key]):,} characters, more than {most:,}: {EXPORT_AGAIN}"
        )


def brief(error: object) -> str:
    """The beginning of an error's message, which may quote a file."""
    said = str(error)
    return said if len(said) <= 300 else f"{said[:300]}…"


def _read_part(graph: Graph, tensors: dict[str, Stored], number: int, value: int | memoryview, fields: _Fields) -> None:
    """Read one field of a GraphProto."""
    kept = {1: graph.nodes, 11: graph.inputs, 12: graph.outputs}
    if number in kept:
        kept[number].append(_part(value))
    elif number == 5:  # initializer
        tensor = _Tensor.split(_part(value), fields)
        if not tensor.name.startswith(OURS):
            graph.others.append(f"the initializer {tensor.name!r}")
            return
        if tensor.name in tensors:
            raise ValueError(f"it has two initializers {tensor.name}")
        tensors[tensor.name] = stored = tensor.read()
        graph.initializers[tensor.name] = tensor.kind, stored.shape
    elif number not in (2, 10, 13, 16):  # name, doc_string, value_info and metadata_props only inform
        graph.others.append(f"the field {number} of GraphProto")


def _with_scale(name: str, each: Stored, tensors: Mapping[str, Stored]) -> Stored:
    if each.precision != "int8":
        return each
    scale = tensors.get(name + SCALE)
    wanted = (*each.shape[:-1], 1)
    if scale is None or scale.precision != "f32" or scale.shape != wanted:
        raise ValueError(f"{name} is int8 but has no {name}{SCALE} of float32 {list(wanted)}")
    return Stored(each.values, "int8", scale.values)


@dataclass
class _Tensor:
    """A TensorProto, split into its fields. raw: None if the values are in one of the typed fields."""

    message: memoryview
    name: str = ""
    dims: list[int] = field(default_factory=list)
    kind: int = 0
    raw: memoryview | None = None
    typed: bool = False
    elsewhere: bool = False

    @classmethod
    def split(cls, message: memoryview, fields: _Fields) -> _Tensor:
        tensor = cls(message)
        for number, value, _ in fields.of(message):
            if number == 1:
                tensor._add_dims([value] if isinstance(value, int) else _varints(value, MOST_DIMENSIONS))
            elif number == 2:
                tensor.kind = _whole(value)
            elif number == 8:  # given twice, the last one counts, as in protobuf
                tensor.name = _text(value, LONGEST_NAME)
            elif number == 9:
                tensor.raw = _part(value)
            elif number == 13 or (number == 14 and value == 1):
                tensor.elsewhere = True
            elif number in (4, 5, 7, 10, 11):
                tensor.typed = True
            elif number not in (12, 14, 16):  # doc_string, data_location (here), metadata_props
                raise ValueError(f"a tensor has the field {number}, which no weight has")
        return tensor

    def _add_dims(self, sizes: list[int]) -> None:
        self.dims += sizes
        if len(self.dims) > MOST_DIMENSIONS:
            raise ValueError(f"a tensor has more than {MOST_DIMENSIONS} dimensions")

    def read(self) -> Stored:
        name = self.name
        if self.elsewhere:
            raise ValueError(
                f"{name} is stored in another file, but a model must be one file: save it with its weights inside"
            )
        if self.kind not in TYPES:
            raise ValueError(f"{name} has the data type {self.kind}, not float32, float16, bfloat16 or int8")
        precision, dtype = TYPES[self.kind].name, TYPES[self.kind].dtype
        if self.raw is None:  # as other writers may store it
            from onnx import TensorProto, numpy_helper

            flat = numpy_helper.to_array(TensorProto.FromString(self.message)).reshape(-1)
            values = flat.view(np.uint16) if precision == "bf16" else flat
        elif self.typed:
            raise ValueError(f"{name} is stored twice, as bytes and as numbers")
        else:
            values = np.frombuffer(self.raw, dtype)  # raises ValueError if bytes are left over
        if any(size < 0 for size in self.dims) or math.prod(self.dims) != values.size:
            raise ValueError(f"{name} has the shape {self.dims} but {values.size} values")
        return Stored(values.reshape(self.dims), precision)


class _Fields:
    """Splits messages into fields, up to MOST_FIELDS in a file."""

    def __init__(self) -> None:
        self.left = MOST_FIELDS

    def of(self, message: memoryview) -> Iterator[tuple[int, int | memoryview, int]]:
        """Number, value and end of each field: integers as they are, everything else as bytes."""
        at = 0
        while at < len(message):
            self.left -= 1
            if self.left < 0:
                raise ValueError(f"it has more than {MOST_FIELDS:,} fields")
            key, at = _varint(message, at)
            number, wire = key >> 3, key & 7
            if wire == 0:
                value, at = _varint(message, at)
                yield number, value, at
                continue
            if wire == 2:
                length, at = _varint(message, at)
            else:
                length = {1: 8, 5: 4}.get(wire, -1)
            if number == 0 or not 0 <= length <= len(message) - at:
                raise ValueError(f"field {number} of type {wire} is broken or cut short")
            at += length
            yield number, message[at - length : at], at

    def last(self, message: memoryview) -> dict[int, int | memoryview]:
        """The value of each field; of a repeated one the last, as in protobuf."""
        return {number: value for number, value, _ in self.of(message)}


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


def _varints(message: memoryview, most: int) -> list[int]:
    """The first integers of a packed field, at most one more than `most`."""
    values, at = list[int](), 0
    while at < len(message) and len(values) <= most:
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


def _text(value: int | memoryview | bytes, most: int | None = None) -> str:
    if isinstance(value, int):
        raise ValueError(f"found the number {value} where text was expected")
    if most is not None and len(value) > most:
        raise ValueError(f"a name has {len(value):,} bytes, more than {most}")
    return bytes(value).decode()
