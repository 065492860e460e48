"""The paper's figures of m over a text, from the models of an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vcdeploy import analysis
from vcdeploy.analysis.chart import picture
from vcdeploy.analysis.numbers import numbers
from vcdeploy.analysis.plots import strips
from vcdeploy.bench.paper import results
from vcdeploy.bench.paper.experiment import Experiment, Traced
from vcdeploy.errors import VcdeployError
from vcdeploy.runtime.model import load


def trace(experiment: Experiment, figure: Traced, scale: str, folder: Path, runs: Path) -> tuple[dict[str, Any], bytes]:
    """The numbers of a figure, and the figure as PNG, with the first seed of each row whose model is available."""
    found = {row: results.of_row(folder, scale, experiment, row) for row, _ in figure.panels}
    if not all(found.values()):
        raise VcdeployError(f"{figure.name} shows models that are not trained: run `vcdeploy bench paper run "
                            f"{experiment.name}` first")  # fmt: skip
    models = dict(zip(found, results.models_of(found.values(), runs), strict=True))
    traces, about = [], []
    for row, text in figure.panels:
        made, file = models[row]
        title = f"{row}: {made['config']['unit'].upper()}-{made['config']['dim']}"
        traces.append(analysis.trace(load(file), text, title=title, changes=figure.above is not None))
        about.append({"row": row, "seed": made["seed"], "text": text})
    smallest = min(each.config["dim"] for each in traces)
    dimensions = None if figure.above is None else (round(figure.above * smallest) + 1, smallest)
    words = analysis.words(traces) if figure.words else None
    drawn = picture(strips(traces, dimensions, words), "png")
    document = {"figure": figure.name, "experiment": experiment.name, "panels": about, **numbers(traces, words=words)}
    return document, drawn
