"""The metadata of a model file (docs/design.md, section 2): configuration and vocabulary."""

import json
from collections.abc import Mapping
from typing import Any

from vcdeploy.errors import VcdeployError
from vcdeploy.spec import UNITS
from vcdeploy.vocabulary import Vocabulary

CONFIG_KEY, VOCAB_KEY = "vcdeploy.config", "vcdeploy.vocab"
EXPORT_AGAIN = "export it again with `vcdeploy export`"
LONGEST_CONFIG, LONGEST_VOCABULARY = 2**20, 2**24  # characters; parsed JSON takes many times its text
LARGEST = 2**31 - 1  # of dim and layers


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
