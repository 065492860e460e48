"""SVG charts without dependencies: lines on linear or logarithmic axes, and bars.

Colours are those of Okabe and Ito; each series also has its own marker and dash pattern, and its name in the legend.
`description` is the text for screen readers. The background is white, on screen and in print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7f5f00", "#3690c0", "#000000")
DASHES = ("", "7 3", "2 3", "8 3 2 3", "", "7 3", "2 3")
INK, SOFT, LINE = "#1a1a1a", "#4d4d4d", "#d0d0d0"
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 360, 66, 14, 48
LEGEND, ROW, BAR = 270, 20, 24  # width of the legend; height of a legend row, and of a bar with its gap
NAMES = 210  # width of the column of bar names


class Series(NamedTuple):
    """A named curve through points (x, y); without markers, only the line is drawn."""

    name: str
    points: Sequence[tuple[float, float]]
    markers: bool = True


class Axis(NamedTuple):
    """Label, ticks (value and text) and scale of an axis; on a log axis all values must be above 0."""

    label: str
    ticks: Sequence[tuple[float, str]] | None = None
    log: bool = True


def lines(series: Sequence[Series], x: Axis, y: Axis, description: str) -> str:
    """A line chart with the legend on the right."""
    height = max(HEIGHT, TOP + ROW * len(series) + BOTTOM)
    points = [point for each in series for point in each.points]
    x_ticks = x.ticks or _ticks([point[0] for point in points], x.log)
    y_ticks = y.ticks or _ticks([point[1] for point in points], y.log)
    across = _scale([value for value, _ in x_ticks] + [point[0] for point in points], x.log, LEFT + 8, WIDTH - 8)
    up = _scale([value for value, _ in y_ticks] + [point[1] for point in points], y.log, height - BOTTOM - 8, TOP + 8)
    parts = []
    for value, word in x_ticks:
        at = across(value)
        parts.append(f'<path d="M{at:.1f} {TOP}V{height - BOTTOM}" stroke="{LINE}"/>')
        parts.append(_text(at, height - BOTTOM + 16, word, "middle"))
    for value, word in y_ticks:
        at = up(value)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH}" stroke="{LINE}"/>')
        parts.append(_text(LEFT - 7, at + 4, word, "end"))
    parts.append(_text((LEFT + WIDTH) / 2, height - 8, x.label, "middle"))
    middle = (TOP + height - BOTTOM) / 2
    parts.append(_text(15, middle, y.label, "middle", f' transform="rotate(-90 15 {middle:.1f})"'))
    for number, each in enumerate(series):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        places = [(across(a), up(b)) for a, b in sorted(each.points)]
        parts.append(_line(places, colour, dash))
        legend = TOP + 10 + ROW * number
        parts.append(_line([(WIDTH + 14, legend), (WIDTH + 44, legend)], colour, dash))
        parts.append(_text(WIDTH + 52, legend + 4, each.name, "start"))
        if each.markers:
            parts += [_marker(number, *place, colour) for place in [*places, (WIDTH + 29, legend)]]
    return _svg(WIDTH + LEGEND, height, description, parts)


def bars(rows: Sequence[tuple[str, float, bool]], label: str, description: str) -> str:
    """A chart of horizontal bars with their values; a row is name, value, and whether to highlight it."""
    top = max(value for _, value, _ in rows)
    room = WIDTH + LEGEND - NAMES - 70
    parts = []
    for number, (name, value, ours) in enumerate(rows):
        y = 6 + BAR * number
        wide = max(1.0, value / top * room)
        parts.append(_text(NAMES - 8, y + 14, name, "end"))
        fill = COLOURS[0] if ours else "#b0b0b0"
        parts.append(f'<rect x="{NAMES}" y="{y}" width="{wide:.1f}" height="{BAR - 6}" fill="{fill}" stroke="{INK}"/>')
        parts.append(_text(NAMES + wide + 6, y + 14, _number(value), "start"))
    height = 6 + BAR * len(rows) + 24
    parts.append(_text(NAMES, height - 8, label, "start"))
    return _svg(WIDTH + LEGEND, height, description, parts)


def _svg(width: int, height: int, description: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="system-ui, sans-serif" font-size="13" fill="none">'
        f"<title>{escape(description)}</title>\n"
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{INK}"{more}>{escape(words)}</text>'


def _line(places: Sequence[tuple[float, float]], colour: str, dash: str) -> str:
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="{path}" stroke="{colour}" stroke-width="2"{dashed}/>'


def _marker(number: int, x: float, y: float, colour: str) -> str:
    """The marker of a series: circle, square, triangle, diamond, inverted triangle, cross or plus."""
    shapes = (
        "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z", "M-4 -4h8v8h-8z", "M0 -5.5L5 4H-5z", "M0 -5.5L5 0L0 5.5L-5 0z",
        "M0 5.5L5 -4H-5z", "M-4 -4L4 4M-4 4L4 -4", "M-5 0H5M0 -5V5",
    )  # fmt: skip
    shape = shapes[number % len(shapes)]
    fill = f' fill="{colour}"' if shape.endswith("z") else ""
    return f'<path d="{shape}" transform="translate({x:.1f} {y:.1f})" stroke="{colour}" stroke-width="1.6"{fill}/>'


def _scale(values: Sequence[float], log: bool, begin: float, end: float) -> Callable[[float], float]:
    """A function from values to coordinates between `begin` and `end`."""
    low, high = min(values), max(values)

    def part(value: float) -> float:
        if low == high:
            return 0.5
        return math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)

    return lambda value: begin + (end - begin) * part(value)


def _ticks(values: Sequence[float], log: bool) -> list[tuple[float, str]]:
    """Round ticks that cover all values: 1, 2, 5, 10, … on a log axis, else about five at equal distances."""
    low, high = min(values), max(values)
    if log:
        few = (1, 2, 5) if high / low < 200 else (1,)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = [first * 10.0**power for power in powers for first in few]
        below = max((each for each in steps if each <= low), default=low)
        above = min((each for each in steps if each >= high), default=high)
        return [(each, _number(each)) for each in steps if below <= each <= above]
    size = 10.0 ** math.floor(math.log10((high - min(low, 0)) / 4 or 1))
    size *= next(each for each in (1, 2, 5, 10) if (high - min(low, 0)) / (size * each) <= 6)
    first = math.floor(min(low, 0) / size)
    return [(at * size, _number(at * size)) for at in range(first, math.ceil(high / size) + 1)]


def _number(value: float) -> str:
    """Format with three significant digits; from 100 on, as a whole number with commas."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
