"""Traces as files: a picture, a page or JSON, by the suffix of the name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from vcdeploy import extras
from vcdeploy.analysis.numbers import numbers
from vcdeploy.analysis.spending import Spent, Word
from vcdeploy.analysis.traces import Trace
from vcdeploy.errors import BadValue


class Document(NamedTuple):
    """The content of an output file."""

    traces: list[Trace]
    dimensions: tuple[int, int] | None
    classes: dict[str, Spent] | None
    words: list[Word] | None


def check_suffix(output: Path) -> None:
    """Raise if a file of this name can't be written here."""
    suffix = output.suffix.lower()
    if suffix not in WRITERS:
        raise BadValue(f"cannot write {output}: its name has to end in {', '.join(WRITERS)}")
    if suffix in (".png", ".svg"):
        extras.require("matplotlib", for_=f"a {suffix} file")


def render(suffix: str, document: Document) -> bytes:
    return WRITERS[suffix.lower()](document)


def _picture(document: Document, format_: str) -> bytes:
    from vcdeploy.analysis.chart import picture
    from vcdeploy.analysis.plots import strips

    return picture(strips(document.traces, document.dimensions, document.words), format_)


def _page(document: Document) -> bytes:
    from vcdeploy.analysis.page import page

    traces, dimensions, classes, words = document
    return page(traces, dimensions=dimensions, classes=classes, words=words).encode()


def _json(document: Document) -> bytes:
    return (json.dumps(numbers(*document), ensure_ascii=False) + "\n").encode()


WRITERS: dict[str, Callable[[Document], bytes]] = {
    ".png": lambda document: _picture(document, "png"),
    ".svg": lambda document: _picture(document, "svg"),
    ".html": _page,
    ".json": _json,
}
