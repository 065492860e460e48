"""Plots of traces with matplotlib: m over a text, and the dimensions that changed. Writes no files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy import colours, extras
from vcdeploy.analysis.spending import Word, parts
from vcdeploy.analysis.traces import Trace, blocks, changes_of, visible
from vcdeploy.errors import VcdeployError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 5000  # symbols per picture, at most
WIDTHS = {"text": 0.115, "bits": 0.075, "music": 0.19}  # width of a symbol, in inches
ACROSS = 9.2  # width of a line of symbols, in inches
EDGE = "#303030"
# Heights and the left margin, in inches.
BARS, MAP, TITLE, GAP, NOTE, SCALE, LEFT = 0.85, 1.1, 0.3, 0.25, 0.2, 0.55, 0.65
LABELS = {"text": 0.32, "bits": 0.4, "music": 0.6}  # height of the labels below the bars, in inches


def strips(
    traces: Sequence[Trace], dimensions: tuple[int, int] | None = None, words: Sequence[Word] | None = None
) -> Figure:
    """Plot m over each text as bars above its symbols, one text below another; long texts take several lines.

    With dimensions (first, last), counted from 1, each line has a map of |h_t - h_{t-1}| below it, where white is
    unchanged; the traces need `changes` for that. With words, the peaks inside them are marked.
    """
    extras.require("matplotlib", for_="a picture")
    from matplotlib.figure import Figure

    if sum(map(len, traces)) > MOST:
        raise VcdeployError(
            f"{sum(map(len, traces)):,} symbols don't fit in a picture (at most {MOST:,}): "
            "give a shorter text, or write .html or .json"
        )
    rows = [(trace, start, stop) for trace in traces for start, stop in _lines(trace)]
    top = max(0.1, np.ceil(max(trace.mean_m.max() for trace in traces) * 10) / 10)
    shown = {id(trace): _shown(trace, dimensions) for trace in traces} if dimensions else {}  # [T, L, blocks]
    most = max((each.max() for each in shown.values()), default=0.0)
    titles = sum(TITLE for trace in traces if trace.title)
    maps = sum((MAP + GAP) * shown[id(trace)].shape[1] for trace, _, _ in rows) if dimensions else 0.0
    width = LEFT + 0.15 + max(WIDTHS[trace.vocab.kind] * (stop - start) for trace, start, stop in rows)
    bars = sum(BARS + LABELS[trace.vocab.kind] for trace, _, _ in rows)
    height = titles + bars + maps + NOTE + (SCALE if dimensions else 0.0) + 0.25
    figure = Figure(figsize=(max(width, 4), height), dpi=150, facecolor="white")
    width, height = figure.get_size_inches()
    at = height - 0.2  # upper edge of the free area, in inches from the bottom

    def place(tall: float, across: float, below: float) -> Axes:
        nonlocal at
        at -= tall
        axes = figure.add_axes((LEFT / width, at / height, across / width, tall / height))
        at -= below
        return axes

    image = None
    for trace, start, stop in rows:
        across = (stop - start) * WIDTHS[trace.vocab.kind]
        if start == 0 and trace.title:
            figure.text(LEFT / width, at / height, trace.title, fontsize=9, va="top", parse_math=False)
            at -= TITLE
        axes = place(BARS, across, LABELS[trace.vocab.kind])
        _draw_bars(axes, trace, start, stop, top)
        if marked := [at for at in parts(trace, words or ()) if start <= at < stop]:
            axes.plot(marked, trace.mean_m[marked] + 0.05 * top, "v", color=EDGE, markersize=3.5, clip_on=False)
        if dimensions:
            layers = shown[id(trace)][start:stop]
            for layer in range(layers.shape[1]):
                axes = place(MAP, across, GAP)
                image = _draw_changes(axes, layers[:, layer], start, dimensions, most)
                axes.set_ylabel("dimension" + f", layer {layer + 1}" * (layers.shape[1] > 1), fontsize=7)
    note = "dotted: the mean of a text" + "    ▾ a peak of m inside a word" * (words is not None)
    figure.text(LEFT / width, at / height, note, fontsize=7, va="top")
    at -= NOTE
    if image is not None:
        axes = place(0.1, 2.0, 0)
        figure.colorbar(image, cax=axes, orientation="horizontal").set_label("|Δh|, white: unchanged", fontsize=7)
        axes.set_xticks([0, most / 16, most / 4, most], [f"{part:.2g}" for part in (0, most / 16, most / 4, most)])
        axes.tick_params(labelsize=6)
    return figure


def _lines(trace: Trace) -> Iterator[tuple[int, int]]:
    """Start and stop of each line of a trace; a group is split only if it is longer than a line."""
    room = int(ACROSS / WIDTHS[trace.vocab.kind])
    start = stop = 0
    for group in trace.groups():
        if group.stop - start > room and stop > start:
            yield start, stop
            start = stop
        while group.stop - start > room:
            yield start, start + room
            start += room
        stop = group.stop
        if group.ends_line:
            yield start, stop
            start = stop
    if stop > start:
        yield start, stop


def _shown(trace: Trace, dimensions: tuple[int, int] | None) -> NDArray[np.float64]:
    """Changes [T, L, blocks] of the given dimensions."""
    return blocks(changes_of(trace, dimensions))


def _draw_bars(axes: Axes, trace: Trace, start: int, stop: int, top: float) -> None:
    m, kind = trace.mean_m[start:stop], trace.vocab.kind
    places = np.arange(start, stop)
    axes.bar(places, m, width=0.9, color=[colours.of(m).ground_hex for m in m], edgecolor=EDGE, linewidth=0.4)
    axes.axhline(trace.mean_m.mean(), color=EDGE, linewidth=0.6, linestyle=":")
    axes.set_xlim(start - 0.6, stop - 0.4)
    axes.set_ylim(0, top)
    axes.set_yticks([0, top])
    axes.set_ylabel("m", fontsize=8, rotation=0, labelpad=2)
    axes.set_xticks(places)
    size = {"text": 8, "bits": 5, "music": 6}[kind]
    labels = axes.set_xticklabels([visible(symbol) for symbol in trace.symbols[start:stop]])
    for label in labels:
        label.set(family="monospace", fontsize=size, parse_math=False, rotation=90 if kind == "music" else 0)
    axes.tick_params(axis="x", length=0, pad=2)
    axes.tick_params(axis="y", labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if kind == "bits":
        for group in trace.groups():
            if start <= group.start < stop:
                axes.axvline(group.start - 0.5, color=EDGE, linewidth=0.5)
                middle = (group.start + min(group.start + 8, group.stop) - 1) / 2
                label = axes.text(middle, top, visible(group.character) if group.character else "", ha="center")
                label.set(va="bottom", family="monospace", fontsize=8, parse_math=False)


def _draw_changes(axes: Axes, shown: NDArray[np.float64], start: int, dimensions: tuple[int, int], most: float) -> Any:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    first, last = dimensions
    image = axes.imshow(
        shown.T,
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        extent=(start - 0.5, start + len(shown) - 0.5, first - 0.5, last + 0.5),
        cmap=LinearSegmentedColormap.from_list("changes", colours.CHANGES),
        norm=PowerNorm(0.5, 0, most or 1.0),  # square root, so that small changes are visible
    )
    axes.set_xlim(start - 0.6, start + len(shown) - 0.4)
    axes.set_xticks([])
    axes.set_yticks([first, last])
    axes.tick_params(axis="y", labelsize=7)
    return image
