"""Traces as JSON: every number behind a picture or a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from vcdeploy.analysis.spending import Spent, Word
from vcdeploy.analysis.traces import Trace, changes_of


def numbers(
    traces: Sequence[Trace],
    dimensions: tuple[int, int] | None = None,
    classes: dict[str, Spent] | None = None,
    words: Sequence[Word] | None = None,
) -> dict[str, Any]:
    """A document for json.dumps; undefined values, such as the entropy before the first symbol, are null."""
    return {
        "traces": [
            {
                "title": each.title,
                "model": {key: each.config[key] for key in ("unit", "dim", "layers", "sharpness", "kind")},
                **each.summary(),
                "symbols": each.symbols,
                **{key: _listed(getattr(each, key)) for key in ("m", "active", "probability", "entropy")},
                **({"changes": changes_of(each, dimensions).tolist()} if dimensions else {}),
            }
            for each in traces
        ],
        "dimensions": dimensions,
        "classes": classes or {},
        "words": [{"word": word.marked(), "times": word.count, "m": word.m.tolist()} for word in words or ()],
    }


def _listed(array: NDArray[Any]) -> list[Any]:
    return [None if each != each else each for each in array.tolist()]
