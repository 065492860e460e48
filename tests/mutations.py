"""Damaged and hostile model files, reproducible by seed: random byte damage, and targeted changes to parts of a file.

Used by fuzz.py. Needs PyTorch only for checkpoints, which are rewritten with a matching checksum.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from vcdeploy.format.checksum import seal
from vcdeploy.spec import UNITS

ABSURD = (-1, 0, 1, 2, 255, 65537, 2**31 - 1, 2**31, 2**40, 2**62, -(2**63))
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 3, 1.5, 1e308, -1e-320, 10**6, 10**12, 10**30, float("nan"), float("inf"), "", "x",
    "vcgru", "\x00", "é", [], [[]], [1], {}, {"unit": "vcgru"}, "f16", "int8", "w8a8", "bits", "music", 8, 24,
)  # fmt: skip
TEXTS = ("", "null", "[]", "{}", "{", "1", '"x"', "[" * 100_000, '{"a":' * 50_000, "1" * 5000, '["\\ud800"]', "NaN")


def spoilt(draw: random.Random, content: bytes, other: bytes) -> tuple[str, bytes]:
    """Change random bytes, regardless of the format."""
    data = bytearray(content)
    start = draw.randrange(len(data))
    end = min(len(data), start + draw.choice((1, 2, 4, 8, 64, 1024)))
    kind = draw.choice(("truncated", "flipped", "overwritten", "removed", "repeated", "inserted", "spliced", "moved"))
    if kind == "truncated":
        del data[start:]
    elif kind == "flipped":
        for _ in range(draw.choice((1, 1, 2, 8, 64))):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == "overwritten":
        data[start:end] = bytes(draw.choice((0, 0x7F, 0x80, 0xFF, draw.randrange(256))) for _ in range(end - start))
    elif kind == "removed":
        del data[start:end]
    elif kind == "repeated":
        data[start:start] = data[start:end] * draw.choice((1, 3, 50))
    elif kind == "inserted":
        data[start:start] = draw.randbytes(end - start)
    elif kind == "spliced":
        data[start:] = other[draw.randrange(len(other)) :]
    else:
        part = data[start:end]
        del data[start:end]
        at = draw.randrange(len(data) + 1)
        data[at:at] = part
    return f"bytes {kind}", bytes(data)


def wrong(draw: random.Random, content: bytes) -> tuple[str, bytes]:
    """Make one or two targeted changes; the file still parses, and its checksum is usually updated to match."""
    model = ModelProto.FromString(content)
    names = []
    for _ in range(draw.choice((1, 1, 2))):
        change = draw.choice(CHANGES)
        change(draw, model)
        names.append(change.__name__.strip("_"))
    return " and ".join(names), (seal(model) if draw.random() < 0.95 else model).SerializeToString()


def _tensor(draw: random.Random, model: ModelProto) -> TensorProto:
    tensors = list(model.graph.initializer) or [model.graph.initializer.add()]
    return draw.choice(tensors)


def _array(tensor: TensorProto) -> np.ndarray[Any, Any]:
    try:
        return np.array(numpy_helper.to_array(tensor))
    except Exception:  # an earlier change made it unreadable
        return np.zeros((2, 2), np.float32)


def _shape(draw: random.Random, model: ModelProto) -> None:
    dims = _tensor(draw, model).dims
    how = draw.randrange(4)
    if how == 0 and dims:
        dims[draw.randrange(len(dims))] = draw.choice(ABSURD)
    elif how == 1:
        dims.append(draw.choice(ABSURD))
    elif how == 2 and dims:
        del dims[draw.randrange(len(dims)) :]
    else:
        dims[:] = list(dims)[::-1]


def _many_dimensions(draw: random.Random, model: ModelProto) -> None:
    _tensor(draw, model).dims.extend([1] * draw.choice((8, 64, 65, 4096)))


def _reshaped(draw: random.Random, model: ModelProto) -> None:
    """Fewer or more values, with a matching shape."""
    tensor = _tensor(draw, model)
    array = _array(tensor)
    shape = [max(0, size + draw.choice((-1, 0, 1, 32))) for size in array.shape] or [draw.choice((0, 2))]
    tensor.CopyFrom(numpy_helper.from_array(np.resize(array, shape), tensor.name))


def _swapped(draw: random.Random, model: ModelProto) -> None:
    one, two = _tensor(draw, model), _tensor(draw, model)
    one.name, two.name = two.name, one.name


def _renamed(draw: random.Random, model: ModelProto) -> None:
    _tensor(draw, model).name = draw.choice(
        ("", "embedding", "output.weight", "layers.0.U", "layers.1.U", "layers.7.U", "layers.99999999999999999999.U",
         "layers.-1.U", "layers.0.", "layers.0.U.scale", "embedding.scale", "layers.0.W", "x" * 10_000)
    )  # fmt: skip


def _lost(draw: random.Random, model: ModelProto) -> None:
    if model.graph.initializer:
        del model.graph.initializer[draw.randrange(len(model.graph.initializer))]


def _twice(draw: random.Random, model: ModelProto) -> None:
    tensor = _tensor(draw, model)
    again = model.graph.initializer.add()
    again.CopyFrom(tensor)
    if draw.random() < 0.5:
        again.raw_data = tensor.raw_data[: len(tensor.raw_data) // 2]


def _type(draw: random.Random, model: ModelProto) -> None:
    _tensor(draw, model).data_type = draw.choice((*range(24), 99, -1, 2**31 - 1))


def _raw_length(draw: random.Random, model: ModelProto) -> None:
    tensor = _tensor(draw, model)
    tensor.raw_data = draw.choice((b"", tensor.raw_data[:-1], tensor.raw_data + b"\0", tensor.raw_data * 2))


def _by_type(draw: random.Random, model: ModelProto) -> None:
    """Values in the typed fields, matching or not, with or without raw bytes."""
    tensor = _tensor(draw, model)
    numbers = _array(tensor).astype(np.float32).flatten()[: draw.choice((1, 10, None))]
    draw.choice((tensor.float_data, tensor.double_data)).extend(np.nan_to_num(numbers).tolist())
    if draw.random() < 0.8:
        tensor.ClearField("raw_data")
    if draw.random() < 0.3:
        tensor.int32_data.extend(draw.choice(((1, 2, 3), (-(2**31), 2**31 - 1))))


def _elsewhere(draw: random.Random, model: ModelProto) -> None:
    tensor = _tensor(draw, model)
    tensor.data_location = TensorProto.EXTERNAL
    if draw.random() < 0.8:
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", draw.choice(("/etc/passwd", "/dev/zero", "../model.onnx", "", "x\0y"))
        tensor.ClearField("raw_data")


def _not_finite(draw: random.Random, model: ModelProto) -> None:
    """Set one value, or a whole tensor, to NaN, infinity or an extreme number."""
    tensor = _tensor(draw, model)
    array = _array(tensor)
    if array.dtype.kind != "f" or not array.size:
        return
    value = draw.choice((np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, 7e4, 1e20))
    with np.errstate(over="ignore"):
        array.flat[draw.randrange(array.size) if draw.random() < 0.7 else slice(None)] = value
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _scale(draw: random.Random, model: ModelProto) -> None:
    """Wrong int8 scales, or scales for a tensor that should have none."""
    tensors = [each for each in model.graph.initializer if each.name.endswith(".scale")]
    tensor = draw.choice(tensors) if tensors else _tensor(draw, model)
    array = _array(tensor)
    value = draw.choice((np.nan, np.inf, -1.0, 0.0, 3.4e38, 1e-45))
    made = draw.choice((array.reshape(-1), array[..., np.newaxis], array[:1], np.full_like(array, 1)))
    made = np.full(made.shape, value, np.float32) if draw.random() < 0.6 else made
    tensor.CopyFrom(numpy_helper.from_array(made, tensor.name if tensors else f"{tensor.name}.scale"))


def _set(model: ModelProto, key: str, text: str) -> None:
    for each in model.metadata_props:
        if each.key == key:
            each.value = text
            return


def _metadata(model: ModelProto, key: str) -> Any:
    try:
        return json.loads(next(each.value for each in model.metadata_props if each.key == key))
    except Exception:  # an earlier change removed it
        return {}


def _config_value(draw: random.Random, model: ModelProto) -> None:
    _set(model, "vcdeploy.config", json.dumps(changed(draw, _metadata(model, "vcdeploy.config"))))


def changed(draw: random.Random, config: Any) -> dict[str, Any]:
    """A description with one wrong or missing value."""
    config = dict(config) if isinstance(config, dict) else {}
    keys = ("unit", "dim", "layers", "sharpness", "epsilon", "precision", "kind", "buffer", "corpus", "dropout")
    key = draw.choice(keys)
    if draw.random() < 0.15:
        config.pop(key, None)
    elif draw.random() < 0.3:
        config["unit"] = draw.choice(tuple(UNITS))
    else:
        config[key] = draw.choice(VALUES)
    return config


def _config_text(draw: random.Random, model: ModelProto) -> None:
    _set(model, "vcdeploy.config", draw.choice(TEXTS))


def _vocabulary(draw: random.Random, model: ModelProto) -> None:
    symbols = _metadata(model, "vcdeploy.vocab")
    _set(model, "vcdeploy.vocab", draw.choice((draw.choice(TEXTS), json.dumps(others(draw, symbols)))))


def others(draw: random.Random, symbols: Any) -> Any:
    """A vocabulary with too few or too many symbols, wrong types or duplicates."""
    symbols = list(symbols) if isinstance(symbols, list) else ["a"]
    return draw.choice(
        (symbols[:-1], [*symbols, "new"], [*symbols, ""], [*symbols, symbols[0]], [*symbols[:-1], 1], symbols[::-1],
         [chr(256 + i) for i in range(200_000)], ["\U0010ffff", *symbols[1:]], [None], dict.fromkeys(symbols), "abc",
         ["x" * 100_000, *symbols[1:]], [[symbols]])
    )  # fmt: skip


def _properties(draw: random.Random, model: ModelProto) -> None:
    how = draw.randrange(4)
    if how == 0:
        del model.metadata_props[:]
    elif how == 1 and model.metadata_props:
        del model.metadata_props[draw.randrange(len(model.metadata_props))]
    elif how == 2:
        helper.set_model_props(model, {"author": "someone", "vcdeploy.config": "{}"})
    else:
        entry = model.metadata_props.add()
        entry.key, entry.value = draw.choice(("vcdeploy.config", "vcdeploy.vocab", "")), draw.choice(TEXTS)


def _graph(draw: random.Random, model: ModelProto) -> None:
    """Changes that only affect runtimes that execute the graph."""
    how = draw.randrange(6)
    if how == 0:
        del model.functions[:]
    elif how == 1:
        del model.graph.node[draw.randrange(len(model.graph.node) or 1) :]
    elif how == 2:
        del model.graph.output[:]
    elif how == 3:
        for each in (*model.graph.input, *model.graph.output):
            for size in each.type.tensor_type.shape.dim:
                if draw.random() < 0.3:
                    size.dim_value = draw.choice(ABSURD)
    elif how == 4 and model.opset_import:
        model.opset_import[0].version = draw.choice((0, 1, 10**6, -1))
    else:
        model.ir_version = draw.choice((0, 3, 10**6))


def _foreign(draw: random.Random, model: ModelProto) -> None:
    """An unrelated ONNX graph, with or without our description."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    model.graph.CopyFrom(helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [value], [output]))
    if draw.random() < 0.5:
        del model.metadata_props[:]


def _many_layers(draw: random.Random, model: ModelProto) -> None:
    """Very many layers, in the description only or also in the weights."""
    config = _metadata(model, "vcdeploy.config")
    count = draw.choice((3, 500, 10**9))
    if isinstance(config, dict):
        _set(model, "vcdeploy.config", json.dumps({**config, "layers": count}))
    first = [each for each in model.graph.initializer if each.name.startswith("layers.0.")]
    for number in range(1, min(count, draw.choice((3, 500)))):
        for each in first:
            again = model.graph.initializer.add()
            again.CopyFrom(each)
            again.name = each.name.replace("layers.0.", f"layers.{number}.")


CHANGES: tuple[Callable[[random.Random, ModelProto], None], ...] = (
    _shape, _many_dimensions, _reshaped, _swapped, _renamed, _lost, _twice, _type, _raw_length, _by_type, _elsewhere,
    _not_finite, _scale, _config_value, _config_value, _config_value, _config_text, _vocabulary, _properties, _graph,
    _foreign, _many_layers,
)  # fmt: skip


def mutated_onnx(seed: str, originals: list[bytes]) -> tuple[str, bytes]:
    """Mutate an ONNX file. Returns a description of the mutation and the new content."""
    draw = random.Random(seed)
    content = draw.choice(originals)
    if draw.random() < 0.4:
        return spoilt(draw, content, draw.choice(originals))
    return wrong(draw, content)


def mutated_checkpoint(seed: str, originals: list[bytes]) -> tuple[str, bytes]:
    """Mutate a safetensors file; if the content is changed, the checksum is usually updated to match."""
    import torch
    from safetensors.torch import load, save

    from vcdeploy.training.checkpoint import sealed

    draw = random.Random(seed)
    content = draw.choice(originals)
    if draw.random() < 0.4:
        return spoilt(draw, content, draw.choice(originals))
    tensors = load(content)
    length = int.from_bytes(content[:8], "little")
    header: dict[str, str] = json.loads(content[8 : 8 + length])["__metadata__"]
    name = draw.choice(sorted(tensors))
    kind = draw.choice(("config", "config", "config", "text", "vocabulary", "header", "type", "shape", "lost", "value"))
    if kind == "config":
        header["vcdeploy.config"] = json.dumps(changed(draw, json.loads(header["vcdeploy.config"])))
    elif kind == "text":
        header[draw.choice(sorted(header))] = draw.choice(TEXTS)
    elif kind == "vocabulary":
        header["vcdeploy.vocab"] = json.dumps(others(draw, json.loads(header["vcdeploy.vocab"])))
    elif kind == "header":
        del header[draw.choice(sorted(header))]
    elif kind == "type":
        types = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.uint8)
        tensors[name] = tensors[name].to(draw.choice(types))
    elif kind == "shape":
        flat = tensors[name].flatten()
        tensors[name] = draw.choice((flat, flat[:0], flat[:-1], tensors[name][None], torch.zeros(1, 1), flat[0]))
    elif kind == "lost":
        tensors[draw.choice(("model.new", "model.unit.layers.9.U", "model.unit.layers.99999999999.U"))] = tensors[name]
        if draw.random() < 0.7:
            del tensors[name]
    else:
        value = draw.choice((float("nan"), float("inf"), 3e38, 1e-45, 7e4))
        tensors[name] = torch.full_like(tensors[name], value)
    tensors = {name: each.contiguous().clone() for name, each in tensors.items()}
    if kind != "header" and "vcdeploy.checksum" in header and draw.random() < 0.95:
        return f"checkpoint: {kind}", sealed(tensors, header)
    return f"checkpoint: {kind}", save(tensors, header)
