"""Results as figures, with matplotlib. Colours are those of Okabe and Ito, and every series has a marker of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcdeploy import extras
from vcdeploy.bench.paper import results
from vcdeploy.bench.paper.experiment import Experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.", "-", "--", ":")

Point = tuple[float, float]


def against_computation(experiment: Experiment, scale: str, folder: Path) -> Figure | None:
    """The score against rnn_d, a panel a corpus, a curve a series; None where there is nothing to draw."""
    panels: dict[str, dict[str, list[Point]]] = {}
    for row in experiment.rows:
        for made in results.of_row(folder, scale, experiment, row.name):
            curves = panels.setdefault(made["config"]["corpus"], {})
            curves.setdefault(row.series, []).append((made["test"]["rnn_d"], made["test"][experiment.score]))
    if not panels:
        return None
    figure, axes = _figure(len(panels))
    for (corpus, curves), panel in zip(panels.items(), axes, strict=True):
        panel.set_title(corpus)
        panel.set_xlabel("rnn_d: size of the RNN of equal cost")
        _draw(panel, curves)
    axes[0].set_ylabel("bits per character, test")
    axes[-1].legend(frameon=False)
    return figure


def front(models: Sequence[dict[str, Any]], scenario: str = "sequence") -> Figure:
    """Bits per character against microseconds per character, a curve a way to run a unit."""
    curves: dict[str, list[Point]] = {}
    for each in models:
        curves.setdefault(each["series"], []).append((each["microseconds"][scenario], each["bits"]))
    figure, (panel,) = _figure(1, width=7.5)
    panel.set_xscale("log")
    panel.set_xlabel("microseconds per character")
    panel.set_ylabel("bits per character, test")
    _draw(panel, curves)
    ticks = [each for each in (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if panel.get_xlim()[0] < each < panel.get_xlim()[1]]
    panel.set_xticks(ticks, [f"{each:g}" for each in ticks])
    panel.minorticks_off()
    panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _figure(panels: int, width: float = 4.2) -> tuple[Figure, list[Axes]]:
    extras.require("matplotlib", for_="a figure")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * panels, 3.6), layout="constrained")
    return figure, [figure.add_subplot(1, panels, number + 1) for number in range(panels)]


def _draw(panel: Axes, curves: dict[str, list[Point]]) -> None:
    for number, (name, points) in enumerate(curves.items()):
        x, y = zip(*sorted(points), strict=True)
        style: dict[str, Any] = {
            "color": COLOURS[number % 7],
            "marker": MARKERS[number % 7],
            "linestyle": DASHES[number % 7],
        }
        panel.plot(x, y, label=name, linewidth=1.4, markersize=6, **style)
    panel.grid(alpha=0.3, linewidth=0.6)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
