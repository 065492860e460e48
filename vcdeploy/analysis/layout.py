"""Layout of a trace in lines of terminal cells."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len

from vcdeploy.analysis.traces import Trace
from vcdeploy.colours import cell


class Piece(NamedTuple):
    """A piece of a line: a symbol of the trace with its position, or text between symbols."""

    text: str
    place: int | None = None


def lines(trace: Trace, room: int) -> list[list[Piece]]:
    """Lay out a trace in lines of at most `room` cells; words, bytes and bars stay together if they fit."""
    symbols, kind = trace.symbols, trace.vocab.kind
    found: list[list[Piece]] = [[]]
    width = 0
    for group in trace.groups():
        tokens: list[Piece] = []
        if kind == "bits":
            tokens.append(Piece((cell(group.character) if group.character else "·") + " "))
        for place in range(group.start, group.stop):
            tokens.append(Piece("".join(map(cell, symbols[place])), place))
            if kind == "music":
                tokens.append(Piece(" "))
        if kind == "bits":
            tokens.append(Piece("  "))
        needed = sum(cell_len(token.text) for token in tokens if token.text.strip() or token.place is None)
        if width and width + needed > room:
            found.append([])
            width = 0
        for token in tokens:
            if width + cell_len(token.text) > room and token.place is not None:
                found.append([])
                width = 0
            found[-1].append(token)
            width += cell_len(token.text)
        if group.ends_line:
            found.append([])
            width = 0
    return [line for line in found if line]
