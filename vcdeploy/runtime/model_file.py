"""A model file read without any runtime: the graph, and what its metadata says of it (docs/design.md, section 2)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vcdeploy.corpora import Vocabulary
from vcdeploy.errors import VcdeployError

if TYPE_CHECKING:
    from onnx import ModelProto

STATE_ROWS = {"vcrnn": 1, "vcgru": 1, "vclstm": 2, "rnn": 1, "gru": 1, "lstm": 2}
EXPORT_AGAIN = "export it again with `vcdeploy export`"


def parse(content: bytes, name: str) -> ModelProto:
    """The model in a file's content. Nothing outside is read, whatever it says about external data."""
    import onnx

    try:
        return onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's decoders have several types
        raise VcdeployError(f"{name} is not a whole ONNX file ({error}): {EXPORT_AGAIN}") from error


def read_config(model: ModelProto, name: str) -> dict[str, Any]:
    """Its description: unit, dim, layers, sharpness, epsilon, precision, kind, …"""
    metadata = {each.key: each.value for each in model.metadata_props}
    if "vcdeploy.config" not in metadata or "vcdeploy.vocab" not in metadata:
        raise VcdeployError(
            f"{name} is an ONNX file, but no vcdeploy model: its metadata lacks vcdeploy.config or vcdeploy.vocab. "
            "Models of other origin run in ONNX Runtime itself."
        )
    try:
        config = json.loads(metadata["vcdeploy.config"])
        sound = config["unit"] in STATE_ROWS and all(
            type(config[key]) is int and config[key] > 0 for key in ("dim", "layers")
        )
        if not sound or not {"sharpness", "epsilon", "precision", "kind"} <= config.keys():
            raise ValueError(f"{metadata['vcdeploy.config'][:200]}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VcdeployError(f"the vcdeploy.config of {name} lacks or garbles {error}: {EXPORT_AGAIN}") from error
    return dict(config)


def read_vocabulary(model: ModelProto, config: dict[str, Any], name: str) -> Vocabulary:
    """Its symbols; config is its description."""
    (text,) = (each.value for each in model.metadata_props if each.key == "vcdeploy.vocab")
    try:
        symbols = json.loads(text)
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise ValueError("it is no list of strings")
        return Vocabulary(symbols, kind=config["kind"], buffer=config.get("buffer", 0))
    except (TypeError, ValueError, VcdeployError) as error:
        raise VcdeployError(f"the vcdeploy.vocab of {name} is unusable ({error}): {EXPORT_AGAIN}") from error
