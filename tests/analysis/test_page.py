"""The page of a trace: whole by itself, readable without a script; and in a real browser, by mouse and by keyboard."""

import io
import re
import struct
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import small_models
from browser import Browser

from vcdeploy import colours
from vcdeploy.analysis import Trace, parts, spent, trace, words
from vcdeploy.analysis.page import _png, describe, page
from vcdeploy.errors import VcdeployError

TEXT = "the tin man & his <i>ron</i> pans ran on and on\nin a moment of rain and the moon shone on. "


class Elements(HTMLParser):
    """Tags with their attributes, as they come."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def cells(self) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.found if attributes.get("role") == "option"]


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    model = small_models.model(layers=2)
    return [trace(model, TEXT * 2, title="A <b>title</b>", changes=True), trace(model, "on.", changes=True)]


def test_a_symbol_is_described(traces: list[Trace]) -> None:
    one = trace(
        small_models.told(small_models.TEXT, np.zeros((3, len(small_models.TEXT))), np.array([0.5, 0.25, 1])), "a\nb"
    )
    assert describe(one, 0) == "“a”, 1 of 3: m 0.500, a 9 of 12; the first symbol, not predicted"
    expected = "probability 0.0417, 4.58 bits; entropy of the prediction 4.58 bits"
    assert describe(one, 1) == f"line end, 2 of 3: m 0.250, a 6 of 12; {expected}"
    m, a = traces[0].m[5], traces[0].active[5]
    assert f"m {m[0]:.3f} and {m[1]:.3f}, a {a[0]} and {a[1]} of 12;" in describe(traces[0], 5)


def test_every_symbol_has_its_bar_and_its_label(traces: list[Trace]) -> None:
    found = words(traces, 0.01)
    text = page(traces, heading="Two & more", dimensions=(3, 12), classes=spent(traces), words=found)
    elements = Elements(text)
    cells = elements.cells()
    peaks = [at in parts(each, found) for each in traces for at in range(len(each))]
    assert any(peaks) and [cell["class"] == "cell peak" for cell in cells] == peaks
    labels = [describe(each, at) for each in traces for at in range(len(each))]
    assert [cell["aria-label"] for cell in cells] == [
        label + "; a peak inside a word" * peak for label, peak in zip(labels, peaks, strict=True)
    ]
    assert [cell["tabindex"] for cell in cells].count("0") == len(traces)
    bars = [attributes["style"] or "" for _, attributes in elements.found if attributes.get("class") == "bar"]
    top = np.ceil(max(each.mean_m.max() for each in traces) * 10) / 10
    for style, m in zip(bars, np.concatenate([each.mean_m for each in traces]), strict=True):
        assert style == f"--h:{m / top:.3f};--c:{colours.of(m).ground_hex}"
    assert "<title>Two &amp; more</title>" in text and "A &lt;b&gt;title&lt;/b&gt;" in text
    assert "<th scope=row>white space<td>" in text and "Peaks inside words" in text
    assert "dimensions 3 to 12" in text and f"A bar of full height is {top:g}." in text


def test_the_page_loads_nothing(traces: list[Trace]) -> None:
    text = page(traces, dimensions=(1, 12))
    assert "default-src 'none'" in text
    assert not re.findall(r"https?:|@import|\bsrc=|\bhref=", text)
    assert set(re.findall(r"url\((.{10})", text)) == {"data:image"}
    assert all(tag != "link" for tag, _ in Elements(text).found)


def test_the_map_of_changes_is_a_picture_of_them() -> None:
    picture = _png(np.array([[0.0, 1.0, 4.0], [4.0, 0.25, 0.0]]), 4.0)
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    rest = io.BytesIO(picture[8:])
    while head := rest.read(8):
        size, name = struct.unpack(">I4s", head)
        chunks[name] = rest.read(size)
        assert struct.unpack(">I", rest.read(4))[0] == zlib.crc32(name + chunks[name])
    assert struct.unpack(">II", chunks[b"IHDR"][:8]) == (3, 2)
    lines = zlib.decompress(chunks[b"IDAT"])
    assert list(lines) == [0, 0, 128, 255, 0, 255, 64, 0]  # a filter byte, then roots in 255ths
    assert chunks[b"PLTE"][:3] == b"\xff\xff\xff" and chunks[b"PLTE"][-3:].hex() == colours.CHANGES[-1][1:]


def test_a_map_needs_changes() -> None:
    with pytest.raises(VcdeployError, match="changes=True"):
        page([trace(small_models.model(), "tin")], dimensions=(1, 2))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


def test_in_a_browser(browser: Browser, traces: list[Trace], tmp_path: Path) -> None:
    path = tmp_path / "trace.html"
    path.write_text(page(traces, dimensions=(1, 12), classes=spent(traces), words=words(traces)), encoding="utf-8")
    browser.open(path)

    def readout() -> str:
        return str(browser.evaluate("document.getElementById('readout').textContent"))

    def focus() -> int:
        return int(browser.evaluate("cells.indexOf(document.activeElement)"))

    labels = [describe(each, at) for each in traces for at in range(len(each))]
    assert readout().startswith("Point at a symbol")
    browser.point_at("cells[7]")
    assert readout() == labels[7]
    # From symbol to symbol, and across the end of one text to the next.
    browser.press("Tab")
    assert (focus(), readout()) == (0, labels[0])
    for key, at in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", len(traces[0]) - 1),
                    ("ArrowRight", len(traces[0])), ("Home", len(traces[0]))):  # fmt: skip
        browser.press(key)
        assert (focus(), readout()) == (at, labels[at])
    # A line down and up again, in the same place.
    browser.evaluate("cells[4].focus()")
    browser.press("ArrowDown")
    below = focus()
    place = "(at => { const box = cells[at].getBoundingClientRect(); return [box.left, box.top]; })"
    (left, top), (under_left, under_top) = browser.evaluate(f"{place}(4)"), browser.evaluate(f"{place}({below})")
    assert under_top > top and abs(left - under_left) < 12
    assert readout() == labels[below]
    browser.press("ArrowUp")
    assert focus() == 4
    # One stop for the Tab key in each text, and what is chosen is said to be.
    assert browser.evaluate("document.querySelectorAll('.cell[tabindex=\"0\"]').length") == len(traces)
    assert browser.evaluate("[...document.querySelectorAll('[aria-selected=true]')].map(c => cells.indexOf(c))") == [4]
    # Nothing fetched, nothing complained of, nothing wider than the window.
    assert {url.partition(":")[0] for url in browser.requests} <= {"file", "data"}
    assert [url for url in browser.requests if url.startswith("file")] == [path.as_uri()]
    assert browser.problems == []
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert browser.evaluate("cells[0].querySelector('.bar').getBoundingClientRect().height") > 20


def test_light_and_dark_in_a_browser(browser: Browser, traces: list[Trace], tmp_path: Path) -> None:
    path = tmp_path / "trace.html"
    path.write_text(page(traces[1:], dimensions=(1, 12)), encoding="utf-8")
    grounds = {}
    for scheme in ("light", "dark"):
        browser("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.open(path)
        grounds[scheme] = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert browser.screenshot()[:4] == b"\x89PNG"
    assert grounds == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 28)"}
