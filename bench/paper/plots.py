"""Results as matplotlib figures, in the colours of Okabe and Ito, with a different marker for every series."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcdeploy import extras
from vcdeploy.analysis.pareto import front as pareto
from vcdeploy.bench.paper import results
from vcdeploy.bench.paper.experiment import Experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.", "-", "--", ":")
KINDS = {"variable units": "-", "dense units": "--"}  # of timed models, with the line style of their front

Point = tuple[float, float]


def against_computation(experiment: Experiment, scale: str, folder: Path) -> Figure | None:
    """The score against rnn_d: one panel per corpus, a curve per series, a mark per row; None without results."""
    panels: dict[str, dict[str, list[Point]]] = {}
    for row in experiment.rows:
        if row.series and (found := results.of_row(folder, scale, experiment, row.name)):
            curves = panels.setdefault(found[0]["config"]["corpus"], {})
            rnn_d, score = (
                statistics.fmean(each["test"][name] for each in found) for name in ("rnn_d", experiment.score)
            )
            curves.setdefault(row.series, []).append((rnn_d, score))
    if not panels:
        return None
    figure, axes = _figure(len(panels))
    for (corpus, curves), panel in zip(panels.items(), axes, strict=True):
        panel.set_title(corpus)
        panel.set_xlabel("rnn_d: size of the RNN of equal cost")
        cited = experiment.cited_curves.get(corpus, {})
        for number, name in enumerate(dict.fromkeys(row.series for row in experiment.rows)):
            if name in curves:
                _draw(panel, name, curves[name], number, linestyle=DASHES[number % len(DASHES)])
            if name in cited:
                _draw(panel, f"{name}, the paper's", cited[name], number, markersize=4, markerfacecolor="none")
    axes[0].set_ylabel("bits per character, test")
    axes[-1].legend(frameon=False)
    return figure


def fronts(documents: Mapping[str, dict[str, Any]]) -> Figure:
    """Bits against µs/char, one panel per text: a marker per way to run a unit, labelled with D; a line per front."""
    figure, axes = _figure(len(documents), width=4.6 if len(documents) > 1 else 5.5, beside=2.6)
    models = [model for document in documents.values() for model in document["models"]]
    series = list(dict.fromkeys(model["series"] for model in models))
    for (text, document), panel in zip(documents.items(), axes, strict=True):
        for name, dashes in KINDS.items():
            curves: dict[str, list[Point]] = {}
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
                _draw(panel, each, curve, series.index(each))
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


def point(model: dict[str, Any]) -> Point:
    """Microseconds at many characters/call, and bits rounded as in a table: smaller differences do not count."""
    return model["microseconds"]["sequence"], round(model["bits"], 3)


def kind(model: dict[str, Any]) -> str:
    """The kind of a timed model, which decides its front."""
    return "variable units" if model["series"].startswith("VC") else "dense units"


def _figure(panels: int, width: float = 4.2, beside: float = 0.0) -> tuple[Figure, list[Axes]]:
    """An empty figure. width: of a panel. beside: space for the legend, to the right of the panels."""
    extras.require("matplotlib", for_="a figure")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * panels + beside, 3.6), layout="constrained")
    axes = [figure.add_subplot(1, panels, number + 1) for number in range(panels)]
    for panel in axes:
        panel.grid(alpha=0.3, linewidth=0.6)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    return figure, axes


def _draw(panel: Axes, name: str, points: Iterable[Point], number: int, **style: Any) -> None:
    """Draw a series in the colour and with the marker of its number; style: overrides the defaults."""
    x, y = zip(*sorted(points), strict=True)
    usual = {"linestyle": "none", "linewidth": 1.4, "markersize": 6}
    panel.plot(x, y, label=name, color=COLOURS[number % len(COLOURS)],
               marker=MARKERS[number % len(MARKERS)], **{**usual, **style})  # fmt: skip
