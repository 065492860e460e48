"""Pictures of traces: what is drawn is what was traced."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import small_models

from vcdeploy import colours
from vcdeploy.analysis import Trace, blocks, parts, trace, words
from vcdeploy.errors import VcdeployError

pytest.importorskip("matplotlib")

from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from vcdeploy.analysis.plots import MOST, strips


def bars(axes: Axes) -> list[Any]:
    return [each for each in axes.patches if hasattr(each, "get_height")]


def labels(axes: Axes) -> list[str]:
    return [each.get_text() for each in axes.get_xticklabels()]


def drawn(traces: Sequence[Trace], dimensions: tuple[int, int] | None = None) -> tuple[list[Axes], list[Axes]]:
    """The axes with bars, and those with maps."""
    axes = strips(traces, dimensions).axes
    return [each for each in axes if each.get_ylabel() == "m"], [each for each in axes if each.images]


def test_bars_have_the_height_and_colour_of_m() -> None:
    found = trace(small_models.model(), "the tin\n", title="$x_t$ <title>")
    [axes], maps = drawn([found])
    assert maps == []
    assert [bar.get_height() for bar in bars(axes)] == pytest.approx(found.mean_m)
    assert [to_hex(bar.get_facecolor()) for bar in bars(axes)] == [colours.of(m).ground_hex for m in found.mean_m]
    assert labels(axes) == ["t", "h", "e", "␣", "t", "i", "n", "⏎"]
    assert axes.figure is not None
    assert [text.get_text() for text in axes.figure.texts] == ["$x_t$ <title>", "dotted: the mean of a text"]
    assert not axes.figure.texts[0].get_parse_math()


def test_texts_are_stacked_and_long_ones_wrapped() -> None:
    model = small_models.model()
    long, short = trace(model, "the tin man ran on " * 6), trace(model, "on.")
    lines, _ = drawn([long, short])
    assert "".join("".join(labels(axes)) for axes in lines).replace("␣", " ") == "the tin man ran on " * 6 + "on."
    assert len(lines) == 3
    tops = [axes.get_position().y1 for axes in lines]
    assert tops == sorted(tops, reverse=True) and lines[-1].get_position().y0 > 0 and tops[0] < 1
    assert all(labels(axes)[-1] == "␣" for axes in lines[:2])
    unbroken = trace(model, "a" * 100)
    assert sum(len(labels(axes)) for axes in drawn([unbroken])[0]) == 100


def test_peaks_inside_words_are_marked() -> None:
    found = trace(small_models.model(), "the moment of rain " * 8)
    inside = words([found], 0.01)
    places = parts(found, inside)
    assert places
    figure = strips([found], None, inside)
    assert "▾" in figure.texts[-1].get_text()
    marks = [line for axes in figure.axes for line in axes.lines if line.get_marker() == "v"]
    assert len(marks) > 1  # lines of the text
    drawn_at = np.concatenate([np.asarray(line.get_xydata()) for line in marks])
    assert drawn_at[:, 0].astype(int).tolist() == places
    assert (drawn_at[:, 1] > found.mean_m[places]).all()


def test_bits_have_their_characters_above_them() -> None:
    found = trace(small_models.model(vocab=small_models.BITS), "é!")
    [axes], _ = drawn([found])
    assert [text.get_text() for text in axes.texts] == ["", "é", "!"]
    assert set(labels(axes)) == {"0", "1"}


def test_changes_under_each_line() -> None:
    found = trace(small_models.model(layers=2), "the tin man " * 12, changes=True)
    lines, maps = drawn([found], (3, 12))
    assert len(maps) == 2 * len(lines) == 4
    assert found.changes is not None
    image = maps[1].images[0]
    shown = np.asarray(image.get_array())
    width = len(labels(lines[0]))
    assert np.allclose(shown, blocks(found.changes[:width, 1, 2:]).T)
    assert list(image.get_extent())[2:] == [2.5, 12.5]
    assert (image.to_rgba(np.zeros((1, 1))) == 1).all()
    assert maps[1].get_ylabel() == "dimension, layer 2"


def test_what_a_picture_cannot_show() -> None:
    model = small_models.model()
    with pytest.raises(VcdeployError, match=r"5,002 symbols don't fit .* \.html or \.json"):
        strips([trace(model, "a" * MOST), trace(model, "no")])
    with pytest.raises(VcdeployError, match="changes=True"):
        strips([trace(model, "no")], (1, 2))
