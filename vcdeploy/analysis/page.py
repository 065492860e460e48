"""Traces as one self-contained HTML page: no network, no external scripts or fonts, no matplotlib."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vcdeploy import colours
from vcdeploy.analysis.document import head
from vcdeploy.analysis.spending import Spent, Word, parts
from vcdeploy.analysis.traces import Trace, blocks, changes_of, visible

BLOCKS = 48  # rows of the map of dimensions
SIGNS = {" ": "space", "\n": "line end", "\t": "tab", "\u00a0": "no-break space"}


def page(
    traces: Sequence[Trace],
    *,
    heading: str = "Where the computation goes",
    dimensions: tuple[int, int] | None = None,
    classes: Mapping[str, Spent] | None = None,
    words: Sequence[Word] | None = None,
) -> str:
    """Render the page: one strip per trace, then m by class of symbol, and words with their peaks.

    On hover and on keyboard focus, a symbol shows its name, m, a and how it was predicted; arrow keys move between
    symbols and between lines. With dimensions (first, last), counted from 1, the changes of the state are below each
    symbol, the last dimension on top. With words, their peaks are marked.
    """
    top = max(0.1, float(np.ceil(max(trace.mean_m.max() for trace in traces) * 10) / 10))
    most = max((_shown(trace, dimensions).max() for trace in traces), default=0.0) if dimensions else 0.0
    sections = [
        _strip(trace, trace.title or f"Text {number}", top, dimensions, most, set(parts(trace, words or ())))
        for number, trace in enumerate(traces, 1)
    ]
    sections += [_classes(classes, traces)] if classes else []
    sections += [_words(words)] if words else []
    return (
        head(heading, _beside("page.css"), "; script-src 'unsafe-inline'; img-src data:")
        + _legend(top, dimensions, words is not None)
        + "\n".join(sections)
        + '\n<p id="readout">Point at a symbol, or press Tab and then the arrow keys.</p>\n'
        + f"</main>\n<script>\n{_beside('page.js')}</script>\n</body>\n</html>\n"
    )


def describe(trace: Trace, at: int, peak: bool = False) -> str:
    """Describe a symbol of a trace: its name, m, a, how it was predicted, and whether it is a peak inside a word."""
    symbol = trace.symbols[at]
    name = SIGNS.get(symbol, f"U+{ord(symbol[0]):04X}" if not symbol.isprintable() else f"“{symbol}”")
    m = " and ".join(f"{each:.3f}" for each in trace.m[at])
    a = " and ".join(f"{each:,}" for each in trace.active[at])
    expected = "the first symbol, not predicted"
    if not np.isnan(trace.probability[at]):
        expected = (
            f"probability {trace.probability[at]:.3g}, {trace.bits[at]:.2f} bits; "
            f"entropy of the prediction {trace.entropy[at]:.2f} bits"
        )
    part = "; a peak inside a word" if peak else ""
    return f"{name}, {at + 1:,} of {len(trace):,}: m {m}, a {a} of {trace.config['dim']:,}; {expected}{part}"


def _strip(
    trace: Trace, title: str, top: float, dimensions: tuple[int, int] | None, most: float, peaks: Collection[int]
) -> str:
    summary = trace.summary()
    said = (
        f"{trace.config['unit']}, {trace.config['dim']:,} dimensions · {len(trace):,} symbols · "
        f"mean m {summary['m']:.3f} · rnn_d {summary['rnn_d']:,.0f} · {summary['macs']:,.0f} macs/step · "
        f"{summary['bits']:.3f} bits per symbol"
    )
    style = ""
    if dimensions:
        picture = _png(_shown(trace, dimensions).reshape(len(trace), -1).T[::-1], most)
        style = f' style="--map:url(data:image/png;base64,{base64.b64encode(picture).decode()});--of:{len(trace)}"'
    return (
        f"<section><h2>{escape(title)}</h2><p>{escape(said)}</p>\n"
        f'<div class="strip {trace.vocab.kind}" role="listbox" aria-orientation="horizontal" '
        f'aria-label="{escape(title)}: arrow keys move from symbol to symbol"{style}>'
        + "".join(_cells(trace, top, dimensions is not None, peaks))
        + "</div></section>"
    )


def _cells(trace: Trace, top: float, mapped: bool, peaks: Collection[int]) -> Iterator[str]:
    m, symbols = trace.mean_m, trace.symbols
    for group in trace.groups():
        yield '<span class="group" role="none">'
        if group.character:
            yield f'<span class="character" aria-hidden="true">{escape(visible(group.character))}</span>'
        for at in range(group.start, group.stop):
            tall = f"--h:{m[at] / top:.3f};--c:{colours.of(m[at]).ground_hex}"
            below = f'<i class="map" style="--x:{at / max(len(trace) - 1, 1):.5f}"></i>' if mapped else ""
            yield (
                f'<span class="cell{" peak" * (at in peaks)}" role="option" aria-selected="false" '
                f'tabindex="{0 if at == 0 else -1}" aria-label="{escape(describe(trace, at, at in peaks))}">'
                f'<i class="bar" style="{tall}"></i><b>{escape(visible(symbols[at]))}</b>{below}</span>'
            )
        yield "</span>" + ("<br>" if group.ends_line else "")


def _legend(top: float, dimensions: tuple[int, int] | None, marked: bool) -> str:
    steps = "".join(f'<i style="background:{colour.ground_hex}"></i>' for colour in colours.RAMP)
    changed = ""
    if dimensions:
        steps_of = "".join(f'<i style="background:{colour}"></i>' for colour in colours.CHANGES)
        changed = (
            f" Below each symbol: dimensions {dimensions[0]:,} to {dimensions[1]:,}, the last on top: unchanged "
            f'<span class="ramp" aria-hidden="true">{steps_of}</span> changed most.'
        )
    return (
        "<p>The height and the colour of a bar show m, the fraction of the state updated when reading the symbol: "
        f'0 <span class="ramp" aria-hidden="true">{steps}</span> 1. A bar of full height is {top:g}.'
        f"{' ▾ marks a peak inside a word.' * marked}{changed}</p>\n"
    )


def _classes(classes: Mapping[str, Spent], traces: Sequence[Trace]) -> str:
    mean = float(np.concatenate([trace.mean_m for trace in traces]).mean())
    rows = "".join(
        f"<tr><th scope=row>{escape(name)}<td>{spent['symbols']:,}<td>{spent['m']:.3f}<td>{spent['m'] / mean:.2f}"
        for name, spent in classes.items()
    )
    head = "<tr><th scope=col>class<th scope=col>symbols<th scope=col>mean m<th scope=col>relative to mean"
    return f"<section><h2>By class of symbol</h2><table>{head}{rows}</table></section>"


def _words(words: Sequence[Word]) -> str:
    shown = " ".join(escape(word.marked("-")) for word in words)
    return f'<section><h2>Peaks inside words</h2><p lang="">{shown}</p></section>'


def _shown(trace: Trace, dimensions: tuple[int, int] | None) -> NDArray[np.float64]:
    return blocks(changes_of(trace, dimensions), BLOCKS)


def _png(shown: NDArray[np.float64], most: float) -> bytes:
    """A PNG of changes [rows, columns] in colours.CHANGES, by the square root of each relative to `most`."""
    stops = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in colours.CHANGES])
    palette = np.stack([np.interp(np.linspace(0, len(stops) - 1, 256), range(len(stops)), part) for part in stops.T], 1)
    places = (255 * np.sqrt(shown / (most or 1.0))).round().astype(np.uint8)
    rows, columns = places.shape
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), places], 1).tobytes()  # each starts with its filter, 0: none

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0))
        + chunk(b"PLTE", palette.round().astype(np.uint8).tobytes())
        + chunk(b"IDAT", zlib.compress(lines, 9))
        + chunk(b"IEND", b"")
    )


def _beside(name: str) -> str:
    """The text of a file next to this module."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
