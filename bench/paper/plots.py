"""Results as matplotlib figures, in the colours of Okabe and Ito, with a different marker for every series."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcdeploy.analysis import chart
from vcdeploy.analysis.pareto import front as pareto
from vcdeploy.bench.paper import results
from vcdeploy.bench.paper.experiment import Experiment
from vcdeploy.spec import UNITS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {"variable units": "-", "dense units": "--"}  # of timed models, with the line style of their front


def against_computation(experiment: Experiment, scale: str, folder: Path) -> Figure | None:
    """The score against rnn_d: one panel per corpus, a curve per series, a mark per row; None without results."""
    panels: dict[str, dict[str, list[chart.Point]]] = {}
    for row in experiment.rows:
        if row.series and (found := results.of_row(folder, scale, experiment, row.name)):
            curves = panels.setdefault(found[0]["config"]["corpus"], {})
            rnn_d, score = (
                statistics.fmean(each["test"][name] for each in found) for name in ("rnn_d", experiment.score)
            )
            curves.setdefault(row.series, []).append((rnn_d, score))
    if not panels:
        return None
    figure, axes = chart.panels(len(panels))
    for (corpus, curves), panel in zip(panels.items(), axes, strict=True):
        panel.set_title(corpus)
        panel.set_xlabel("rnn_d: size of the RNN of equal cost")
        cited = experiment.cited_curves.get(corpus, {})
        for number, name in enumerate(dict.fromkeys(row.series for row in experiment.rows)):
            if name in curves:
                chart.draw(panel, name, curves[name], number, linestyle=chart.DASHES[number % len(chart.DASHES)])
            if name in cited:
                chart.draw(panel, f"{name}, the paper's", cited[name], number, markersize=4, markerfacecolor="none")
    axes[0].set_ylabel("bits per character, test")
    axes[-1].legend(frameon=False)
    return figure


def fronts(documents: Mapping[str, dict[str, Any]]) -> Figure:
    """Bits against µs/char, one panel per text: a marker per way to run a unit, labelled with D; a line per front."""
    figure, axes = chart.panels(len(documents), width=4.6 if len(documents) > 1 else 5.5, beside=2.6)
    models = [model for document in documents.values() for model in document["models"]]
    series = list(dict.fromkeys(model["series"] for model in models))
    for (text, document), panel in zip(documents.items(), axes, strict=True):
        for name, dashes in KINDS.items():
            curves: dict[str, list[chart.Point]] = {}
            for model in document["models"]:
                if kind(model) == name:
                    curves.setdefault(model["series"], []).append(point(model))
            points = [point for curve in curves.values() for point in curve]
            if points:
                x, y = zip(*(points[place] for place in pareto(points)), strict=True)
                # A front is a staircase: there are no models between two of its points.
                panel.step(
                    x, y, where="post", label=f"front of {name}", color="#555555", linewidth=1.2, linestyle=dashes
                )
            for each, curve in curves.items():
                chart.draw(panel, each, curve, series.index(each))
        for model in document["models"]:
            # Left or right of the mark, so that labels of the two kinds do not overlap.
            side = -1 if kind(model) == "variable units" else 1
            panel.annotate(str(model["dim"]), point(model), (6 * side, 2 * side), textcoords="offset points",
                           ha="right" if side < 0 else "left", va="center", fontsize=6)  # fmt: skip
        panel.set_title(text)
        panel.set_xscale("log")
        panel.set_xlabel("microseconds per character")
        low, high = panel.get_xlim()
        marks = (1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 4, 5, 7)  # a short axis needs more ticks
        ticks = [mark * 10.0**power for power in range(-2, 4) for mark in marks if low < mark * 10.0**power < high]
        panel.set_xticks(ticks, [f"{each:g}" for each in ticks])
        panel.minorticks_off()
    axes[0].set_ylabel("bits per character, test")
    lines = {str(line.get_label()): line for panel in axes for line in panel.get_lines()}  # each name once
    figure.legend(list(lines.values()), list(lines), frameon=False, loc="outside right center")
    return figure


def point(model: dict[str, Any]) -> chart.Point:
    """Microseconds at many characters/call, and bits rounded as in a table: smaller differences do not count."""
    return model["microseconds"]["sequence"], round(model["bits"], 3)


def kind(model: dict[str, Any]) -> str:
    """The kind of a timed model, which decides its front."""
    return "variable units" if UNITS[model["unit"]].variable else "dense units"
