"""Charts with matplotlib: lines on linear or logarithmic axes, and bars, as SVG or PNG.

Colours are those of Okabe and Ito; each series also has its own marker and dash pattern. The background is white, on
screen and in print.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from vcdeploy import extras

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.", "-", "--", ":")
OTHER = "#B0B0B0"  # bars that are not ours

Point = tuple[float, float]


class Series(NamedTuple):
    """A named curve through points (x, y); without markers, only the line is drawn."""

    name: str
    points: Sequence[Point]
    markers: bool = True


class Axis(NamedTuple):
    """Label, ticks (value and text) and scale of an axis; on a log axis all values must be above 0."""

    label: str
    ticks: Sequence[tuple[float, str]] | None = None
    log: bool = True


def lines(series: Sequence[Series], x: Axis, y: Axis, description: str) -> str:
    """A line chart with the legend on the right, as SVG. description: for screen readers."""
    figure, (axes,) = panels(1, width=6.0, beside=3.0)
    axes.set(xlabel=x.label, xscale="log" if x.log else "linear")
    axes.set(ylabel=y.label, yscale="log" if y.log else "linear")
    for number, each in enumerate(series):
        style = {} if each.markers else {"marker": ""}
        draw(axes, each.name, each.points, number, linestyle=DASHES[number % len(DASHES)], **style)
    for axis, setting in ((axes.xaxis, x), (axes.yaxis, y)):
        _ticks(axis, setting)
    figure.legend(frameon=False, loc="outside right upper")
    return described(figure, description)


def bars(rows: Sequence[tuple[str, float, bool]], label: str, description: str) -> str:
    """A chart of horizontal bars with their values, as SVG; a row is name, value, and whether it is ours."""
    figure, (axes,) = panels(1, width=9.0, height=0.6 + 0.28 * len(rows))
    names, values, ours = zip(*rows, strict=True)
    places = range(len(rows))
    drawn = axes.barh(places, values, color=[COLOURS[0] if each else OTHER for each in ours], edgecolor="#1a1a1a")
    axes.bar_label(drawn, [number(value) for value in values], padding=3)
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.margins(x=0.1)
    axes.grid(visible=False)
    return described(figure, description)


def panels(count: int, width: float = 4.2, height: float = 3.6, beside: float = 0.0) -> tuple[Figure, list[Axes]]:
    """An empty figure of panels side by side. width: of a panel; beside: space for a legend on the right, in inches."""
    extras.require("matplotlib", for_="a figure")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count + beside, height), layout="constrained")
    axes = [figure.add_subplot(1, count, number + 1) for number in range(count)]
    for panel in axes:
        panel.grid(alpha=0.3, linewidth=0.6)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    return figure, axes


def draw(panel: Axes, name: str, points: Iterable[Point], number: int, **style: Any) -> None:
    """Draw a series in the colour and with the marker of its number; style: overrides the defaults."""
    x, y = zip(*sorted(points), strict=True)
    usual = {"linestyle": "none", "linewidth": 1.4, "markersize": 6, "marker": MARKERS[number % len(MARKERS)]}
    panel.plot(x, y, label=name, color=COLOURS[number % len(COLOURS)], **{**usual, **style})


def picture(figure: Figure, format_: str, *, text: bool = False, salt: str = "vcdeploy") -> bytes:
    """Render a figure as "png" or "svg"; the same figure always gives the same bytes.

    text: keep text as text in SVG instead of paths. salt: for the ids in SVG; figures on one page need different ones.
    """
    from matplotlib import rc_context

    content = io.BytesIO()
    with rc_context({"svg.hashsalt": salt, "svg.fonttype": "none" if text else "path"}):
        figure.savefig(content, format=format_, metadata={"Date": None} if format_ == "svg" else {})
    if format_ != "svg":
        return content.getvalue()
    return b"".join(line.rstrip() + b"\n" for line in content.getvalue().splitlines())


def described(figure: Figure, description: str) -> str:
    """A figure as an SVG element for a page, with a title for screen readers and without metadata."""
    svg = picture(figure, "svg", text=True, salt=description).decode()
    svg = svg[svg.index("<svg") :]
    start, end = svg.index("<metadata>"), svg.index("</metadata>") + len("</metadata>\n")
    head, body = svg[:start].rstrip(), svg[end:]
    return f'{head[:-1]} role="img">\n<title>{escape(description)}</title>\n{body}'


def number(value: float) -> str:
    """Format with three significant digits; from 100 on, as a whole number with commas."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _ticks(axis: Any, setting: Axis) -> None:
    if setting.ticks is not None:
        axis.set_ticks([value for value, _ in setting.ticks], [word for _, word in setting.ticks])
    elif setting.log:
        low, high = axis.get_view_interval()
        few = (1, 2, 5) if high / low < 200 else (1,)
        values = [first * 10.0**power for power in range(-9, 10) for first in few if low <= first * 10.0**power <= high]
        axis.set_ticks(values, [number(value) for value in values])
    axis.set_tick_params(which="minor", bottom=False, left=False, labelbottom=False, labelleft=False)
