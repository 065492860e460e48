"""Results as JSON Lines: one file per experiment, one document per row and seed.

The file names are SCALE/EXPERIMENT.jsonl, SCALE/microseconds.jsonl (one line per text) and SCALE/traces.jsonl (one line
per figure).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vcdeploy.bench import jsonl
from vcdeploy.bench.paper.experiment import Experiment
from vcdeploy.errors import VcdeployError
from vcdeploy.training.config import RECIPE

TIMES = "microseconds"
TRACES = "traces"  # also the folder of the PNG files
KEYS = {TIMES: ("text",), TRACES: ("figure",)}  # what identifies a line; of an experiment: row and seed


def path(folder: Path, scale: str, name: str) -> Path:
    """The file of an experiment, of TIMES or of TRACES."""
    return folder / scale / f"{name}.jsonl"


def run_folder(runs: Path, scale: str, experiment: str, row: str, seed: int) -> Path:
    """The folder with the checkpoints of the run behind a result."""
    plain = "".join(each if each.isalnum() or each in ".-" else "-" for each in row.lower())
    return runs / scale / experiment / f"{plain}-seed{seed}"


def models_of(rows: Iterable[list[dict[str, Any]]], runs: Path) -> list[tuple[dict[str, Any], Path]]:
    """The first result of each row whose model is available, and the model's file; a row without one is an error."""
    models, absent = [], []
    for found in rows:
        folders = (run_folder(runs, *(made[key] for key in ("scale", "experiment", "row", "seed"))) for made in found)
        files = (folder / "best.safetensors" for folder in folders)
        if model := next((each for each in zip(found, files, strict=True) if each[1].exists()), None):
            models.append(model)
        else:
            absent.append(f"{found[0]['experiment']} · {found[0]['row']}")
    if absent:
        raise VcdeployError(
            f"these have results, but no trained model in {runs}: {'; '.join(absent)}. Models are not part of a "
            "checkout: train them, with a folder of your own as --results of `vcdeploy bench paper run` and of this "
            "command"
        )
    return models


def add(folder: Path, document: dict[str, Any], name: str = "") -> Path:
    """Add a result to its file, in place of an earlier one of the same row and seed (text, figure).

    name: TIMES or TRACES; otherwise the document's experiment.
    """
    name = name or str(document["experiment"])
    file = path(folder, document["scale"], name)

    def replaced(documents: jsonl.Documents) -> Iterable[dict[str, Any]]:
        return {_key(name, each): each for each in [*documents, document]}.values()

    jsonl.change(file, replaced)
    return file


def _key(name: str, document: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(document[key] for key in KEYS.get(name, ("row", "seed")))


def outdated(found: Iterable[dict[str, Any]]) -> list[int]:
    """The recipes of results that were trained with another one than today's; 1 where none is recorded."""
    recipes = {each.get("recipe", 1) for each in found}
    return sorted(recipes - {RECIPE})


def of_row(folder: Path, scale: str, experiment: Experiment, row: str) -> list[dict[str, Any]]:
    """The results of a row, by seed."""
    found = (each for each in jsonl.read(path(folder, scale, experiment.name)) if each["row"] == row)
    return sorted(found, key=lambda each: each["seed"])


def of_seed(folder: Path, scale: str, experiment: Experiment, row: str, seed: int) -> dict[str, Any] | None:
    """The result of a row and seed, if there is one."""
    return next((each for each in of_row(folder, scale, experiment, row) if each["seed"] == seed), None)
