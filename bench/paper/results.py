"""The files of results: one a run, so that what is finished stays, whatever happens to the rest."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vcdeploy.bench.paper.experiment import Experiment
from vcdeploy.errors import VcdeployError
from vcdeploy.files import write_atomically

TRACES = "traces"  # the folder of the figures of m over a text, beside those of the experiments


def path(folder: Path, scale: str, experiment: str, row: str, seed: int) -> Path:
    plain = "".join(each if each.isalnum() or each in ".-" else "-" for each in row.lower())
    return folder / scale / experiment / f"{plain}-seed{seed}.json"


def run_folder(runs: Path, scale: str, experiment: str, row: str, seed: int) -> Path:
    """Where the run behind a result has its checkpoints."""
    return path(runs, scale, experiment, row, seed).with_suffix("")


def models_of(rows: Iterable[list[dict[str, Any]]], runs: Path) -> list[tuple[dict[str, Any], Path]]:
    """Of each row's results the first whose trained model is here, and its file; a row without one is an error."""
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
            f"these have results, but no trained model in {runs}: {'; '.join(absent)}. Models don't come with a "
            "checkout: train them, with a folder of your own in --results of `vcdeploy bench paper run` and of this "
            "command"
        )
    return models


def write(file: Path, document: dict[str, Any]) -> None:
    write_atomically(file, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())


def read(file: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise VcdeployError(f"{file} is no whole result ({error}): remove it, and run the experiment again") from error
    return document


def of_row(folder: Path, scale: str, experiment: Experiment, row: str) -> list[dict[str, Any]]:
    """The results of a row, by seed."""
    pattern = path(folder, scale, experiment.name, row, 0).name.replace("-seed0.json", "-seed[0-9]*.json")
    found = [read(file) for file in (folder / scale / experiment.name).glob(pattern)]
    return sorted((each for each in found if each["row"] == row), key=lambda each: each["seed"])
