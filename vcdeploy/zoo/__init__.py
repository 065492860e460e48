"""The zoo: small trained models that ship with the package, a file and a card for each.

NAME.onnx is a file of `vcdeploy export`. NAME.json, its card, says what it was made of, how, and what it came to. Both
are written by `python -m vcdeploy.cli.zoo_build`, never by hand.
"""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
DEFAULT = "english"  # the model of a command that was given none
LICENCE = "Apache-2.0"  # of the weights, as of all else here; that of the data is in the card
LARGEST = 8_000_000  # bytes of a file: what a wheel can carry twice


def names() -> list[str]:
    """Of the models that are here."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def model_file(name: str) -> Path:
    """The exported file of a model."""
    return FOLDER / f"{name}.onnx"


def card(name: str) -> dict[str, Any]:
    """What is known of a model; `vcdeploy zoo NAME` shows it."""
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return content
