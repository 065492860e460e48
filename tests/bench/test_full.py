"""The full report: what it measures, resuming, and what it shows. No test depends on a measured time."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from browser import Browser
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from vcdeploy.analysis.document import Figure, Section, Table, markdown, page
from vcdeploy.bench import compare, design, energy, engines, full, summary
from vcdeploy.cli import main
from vcdeploy.cli.bench import COMMANDS
from vcdeploy.errors import VcdeployError
from vcdeploy.spec import PRECISIONS, UNITS, VARIABLE_UNITS

BENCH = [sys.executable, "-m", "vcdeploy", "bench"]
SMALL = {"dim": 16, "rounds": 2, "tail": 10_000}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two parts."""
    path = tmp_path_factory.mktemp("report") / "new"
    full.run(path, **SMALL, only=["batch", "tail"], command="vcdeploy bench --full")
    return path


@pytest.fixture
def document(folder: Path) -> dict[str, Any]:
    """The document of a second run, which measures nothing since all parts are stored."""
    told: list[str] = []
    made = full.run(folder, **SMALL, only=["batch", "tail"], tell=told.append)
    assert told == []
    return made


def test_the_design_has_all_that_varies() -> None:
    parts = {each.name: each for each in design.parts(1024, 2, 100_000)}
    assert list(parts) == [
        "unit-vcrnn", "unit-vcgru", "unit-vclstm", "backend", "peers-512", "peers-1024", "batch", "threads-2",
        "generation", "size", "m", "cold", "tail",
    ]  # fmt: skip
    for part in parts.values():
        names = [each.engine.name for each in part.entries]
        assert len(set(names)) == len(names)
        assert all(each.baseline in names for each in part.entries)  # ratios are within one interleaved run
        models = {each.engine.file: (each.engine.unit, each.dim, each.m_range) for each in part.entries}
        for each in part.entries:  # each file is one model
            unit, dim, m_range = models[each.engine.file]
            assert (unit, dim) == (each.engine.unit, each.dim) and (m_range == each.m_range or not UNITS[unit].variable)
    entries = [each for part in parts.values() for each in part.entries]
    assert {each.dim for each in entries} == {128, 256, 384, 512, 768, 1024}
    assert {each.engine.precision for each in entries} == set(PRECISIONS)
    assert {each.unit for each in entries} == set(VARIABLE_UNITS)
    assert {part.batch for part in parts.values()} == {1, 8} and {part.threads for part in parts.values()} == {1, 2}
    assert {each.m_range[0] for each in parts["m"].entries if each.engine.variable} == set(design.M_VALUES)
    assert (parts["tail"].rounds, parts["tail"].calls) == (100, 1000)
    assert [part.name for part in design.parts(64, 1, 10) if part.threads > 1] == []
    assert [part.threads for part in design.parts(64, 16, 10) if part.threads > 1] == [2, 16]


def test_the_parts_and_their_figures(document: dict[str, Any]) -> None:
    assert [part["part"] for part in document["parts"]] == ["batch", "tail"]
    assert "unit-vcgru" in document["missing"] and "batch" not in document["missing"]
    batch, tail = document["parts"]
    assert batch["settings"]["batch"] == 8 and batch["settings"]["rounds"] == 2
    assert {each["dim"] for each in batch["engines"]} == {8, 16}
    for part in document["parts"]:
        by_name = {each["name"]: each for each in part["engines"]}
        for each in part["engines"]:
            for name, found in each["scenarios"].items():
                theirs = by_name[each["baseline"]]["scenarios"][name]
                assert found["fastest_ratio"] == pytest.approx(theirs["fastest"] / found["fastest"], rel=1e-3)
                assert "rounds" not in found  # only in the part's own file
    for each in tail["engines"]:
        found = each["scenarios"]["step"]
        assert found["calls"] == 10_000
        values = [value for _, value in found["tail"]["quantiles"]]
        assert values == sorted(values) and values[-1] <= found["tail"]["max"]
        assert dict(map(tuple, found["tail"]["quantiles"]))[0.5] == found["p50"]


def test_visits_come_together(folder: Path, document: dict[str, Any]) -> None:
    """All parts once, then all again: the report has the rounds of all visits and uses the fastest."""
    files = sorted(each.name for each in (folder / "parts").iterdir())
    assert files == ["batch-1.json", "batch-2.json", "batch-3.json", "tail-1.json"]
    visits = [json.loads((folder / "parts" / name).read_text()) for name in files[:3]]
    order = sorted([*visits, json.loads((folder / "parts" / "tail-1.json").read_text())], key=lambda each: each["date"])
    assert [each["part"] for each in order] == ["batch", "tail", "batch", "batch"]
    batch = document["parts"][0]
    assert batch["settings"]["visits"] == 3 and batch["seconds"] == pytest.approx(sum(v["seconds"] for v in visits))
    for place, engine in enumerate(batch["engines"]):
        for name, found in engine["scenarios"].items():
            alike = [visit["engines"][place]["scenarios"][name] for visit in visits]
            assert found["fastest"] == min(min(each["rounds"]) for each in alike)
            assert found["calls"] == sum(each["calls"] for each in alike)
            assert found["p90"] == sorted(each["p90"] for each in alike)[1]


def test_other_settings_are_refused(folder: Path, tmp_path: Path) -> None:
    for changed, said in (({"rounds": 3}, "rounds 2, and now it is 3"), ({"dim": 32}, "dim 16, and now it is 32")):
        with pytest.raises(VcdeployError, match=said):
            full.run(folder, **{**SMALL, **changed})
    with pytest.raises(VcdeployError, match="no part 'walk'; there are: unit-vcrnn"):
        full.run(folder, **SMALL, only=["walk"])
    (tmp_path / "letter.txt").write_text("not a report")
    with pytest.raises(VcdeployError, match="holds other files"):
        full.run(tmp_path, **SMALL)


def test_another_machine_or_version_is_refused(folder: Path, tmp_path: Path) -> None:
    begun = json.loads((folder / "settings.json").read_text())
    begun["versions"]["numpy"] = "0.1"
    (tmp_path / "settings.json").write_text(json.dumps(begun))
    with pytest.raises(VcdeployError, match=r"numpy 0\.1, and now it is .*`vcdeploy bench --full`"):
        full.run(tmp_path, **SMALL)


def test_a_broken_part_is_reported(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text((folder / "settings.json").read_text())
    (tmp_path / "parts").mkdir()
    for visit in (1, 2, 3):
        (tmp_path / "parts" / f"batch-{visit}.json").write_text("{")
    with pytest.raises(VcdeployError, match=r"batch-1\.json can't be read .* remove it"):
        full.run(tmp_path, **SMALL, only=["batch"])


def test_a_stopped_run_continues(tmp_path: Path) -> None:
    """Ctrl-C in the second visit: the first is kept, and the same command completes the report."""
    words = ["report", "--dim", "16", "--rounds", "1", "--parts", "unit-vcrnn,size", "-o", "out"]
    heeding = ["env", "--default-signal=INT"]  # SIGINT is ignored when tests run in the background
    parts = tmp_path / "out" / "parts"
    with subprocess.Popen([*heeding, *BENCH, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not (parts / "unit-vcrnn-1.json").exists() and process.poll() is None:
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    assert "stopped; out has 1 of the runs; run the same command to continue" in errors
    assert re.search(r"^\d\d:\d\d:\d\d bench report: (?!done)\w", errors, re.MULTILINE)  # progress, for a log
    assert [each.name for each in parts.iterdir()] == ["unit-vcrnn-1.json"]
    assert not (tmp_path / "out" / "report.json").exists()
    first = (parts / "unit-vcrnn-1.json").read_bytes()
    result = subprocess.run([*BENCH, *words], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert (parts / "unit-vcrnn-1.json").read_bytes() == first
    made = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [part["part"] for part in made["parts"]] == ["unit-vcrnn", "size"]
    assert made["command"] == "vcdeploy bench " + " ".join(words)
    for name in ("report.md", "report.html", "size.svg"):
        assert f"wrote out/{name}" in result.stderr and (tmp_path / "out" / name).stat().st_size
    text = (tmp_path / "out" / "report.md").read_text()
    assert (
        "## Cost against D" in text
        and "![µs/step against D" in text
        and "\n| D | native f32, µs |" in text
        and "\n| 16 |" in text
    )
    # The report compared with itself: nothing has changed.
    beside = [*BENCH, "compare", "out/report.json", "out/report.json"]
    result = subprocess.run(beside, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "0 slower and 0 faster by more than 10 %; the widest change is 0.0 %" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--threshold", "5"], "--threshold is for --compare"),
        (["report", "--threshold", "5"], "--threshold is for --compare"),
        (["report", "--parts", "head"], "no part 'head'"),
        (["old.json"], "old.json is the JSON of a run, not a model: compare it with `vcdeploy bench compare"),
        (["compare", "nowhere.json", "nowhere.json"], "cannot read nowhere.json"),
        (["--compare", "nowhere.json"], "cannot read nowhere.json"),
    ],
)
def test_errors_say_what_is_wrong(words: list[str], message: str, tmp_path: Path) -> None:
    result = subprocess.run([*BENCH, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == (1 if "cannot read" in message else 2)
    assert result.stderr.startswith("error: ") and message in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "english"], "unexpected extra argument (english)"),
        (["--full", "--batch", "2"], "No such option --batch"),
        (["--full", "--quick"], "No such option --quick"),
        (["-o", "x"], "No such option -o"),
        (["compare", "old.json"], "Missing argument NEW.json"),
    ],
)
def test_each_subcommand_has_options_of_its_own(words: list[str], message: str, tmp_path: Path) -> None:
    result = subprocess.run([*BENCH, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and message in result.stderr.replace("'", "").replace(":", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["--help"], "vcdeploy bench [OPTIONS] COMMAND"),
        (["-h"], "vcdeploy bench [OPTIONS] COMMAND"),
        (["english", "--help"], "vcdeploy bench run [OPTIONS] [MODEL]"),
        (["--dim", "8", "--help"], "vcdeploy bench run [OPTIONS] [MODEL]"),
        (["--full", "--help"], "vcdeploy bench report [OPTIONS]"),
        (["train", "--help"], "vcdeploy bench train [OPTIONS]"),
        (["paper", "--help"], "vcdeploy bench paper [OPTIONS] COMMAND"),
    ],
)
def test_run_is_the_default(words: list[str], usage: str) -> None:
    result = CliRunner().invoke(main, ["bench", *words], prog_name="vcdeploy")
    assert result.exit_code == 0 and f"Usage: {usage}" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_subcommand_is_listed(name: str) -> None:
    assert f"  {name} " in CliRunner().invoke(main, ["bench", "--help"]).output
    assert CliRunner().invoke(main, ["bench", name, "--help"]).exit_code == 0


def test_the_tab_key_offers_subcommands_models_and_options() -> None:
    def completions(incomplete: str) -> list[str]:
        found = ShellComplete(main, {}, "vcdeploy", "_VCDEPLOY_COMPLETE").get_completions(["bench"], incomplete)
        return [each.value for each in found if each.type == "plain"]

    assert completions("")[: len(COMMANDS)] == list(COMMANDS) and "english" in completions("")
    assert completions("re") == ["report"] and completions("eng") == ["english"] and completions("--qu") == ["--quick"]


class Elements(HTMLParser):
    """The tags of a page with their attributes; every opened tag must be closed."""

    VOID = ("meta", "br", "rect", "path")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def html(document: dict[str, Any], tmp_path: Path) -> Path:
    written = summary.write(document, tmp_path / "report")
    assert {each.name for each in written} == {"report.json", "report.md", "report.html", "tail.svg"}
    return tmp_path / "report" / "report.html"


def test_the_page_is_complete_and_accessible(html: Path) -> None:
    text = html.read_text(encoding="utf-8")
    elements = Elements(text)
    assert not re.findall(r"@import|\bsrc=|url\((?!#)|<script|<link", text)
    namespaces = {f"http://www.w3.org/{each}" for each in ("2000/svg", "1999/xlink")}
    assert set(re.findall(r"https?:[^\"]*", text)) <= namespaces
    counts = {tag: sum(1 for each, _ in elements.found if each == tag) for tag in ("table", "caption", "svg", "h1")}
    assert counts["table"] == counts["caption"] > 3 and counts["svg"] == 1 and counts["h1"] == 1
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in elements.found if tag == "th")
    svg = re.search(r"<svg.*?</svg>", text, re.DOTALL)
    assert svg is not None
    drawn = ET.fromstring(svg[0])
    title = drawn.find("{http://www.w3.org/2000/svg}title")
    assert drawn.get("role") == "img" and title is not None and (title.text or "").startswith("Latency of single steps")
    assert all(name in svg[0] for name in ("ONNX Runtime GRU", "native int8 + table", "99.9 %"))
    anchors = [attributes["href"] for tag, attributes in elements.found if tag == "a"]
    ids = {f"#{attributes['id']}" for _, attributes in elements.found if "id" in attributes}
    assert anchors and set(anchors) <= ids


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


def test_in_a_browser(browser: Browser, html: Path) -> None:
    browser.open(html)
    assert browser.problems == []
    assert [each for each in browser.requests if not each.startswith("file:")] == []
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # Keyboard: Tab reaches the list of sections, each table and each figure.
    stops = []
    for _ in range(25):
        browser.press("Tab")
        stops.append(str(browser.evaluate("document.activeElement.tagName + '.' + document.activeElement.className")))
    assert stops[0] == "A." and {"DIV.wide", "DIV.chart"} <= set(stops)
    box = "document.querySelector('.chart svg').getBoundingClientRect()"
    assert browser.evaluate(f"{box}.width") > 400 and browser.evaluate(f"{box}.height") > 200
    figure = Figure("f", "A figure", "<svg></svg>", Table("Its own", ("", "x"), [["y", "2"]]))
    own = html.with_name("own.html")
    own.write_text(page("Title", [figure], []), encoding="utf-8")
    browser.open(own)
    shown = "document.querySelector('details table').checkVisibility()"
    assert not browser.evaluate(shown)
    for _ in range(2):
        browser.press("Tab")  # the figure, then its table
    assert browser.evaluate("document.activeElement.tagName") == "SUMMARY"
    browser.press("Enter")
    assert browser.evaluate(shown)
    browser.open(html, width=380)  # a phone: tables scroll, the page does not
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_custom_document() -> None:
    table = Table("Numbers & <more>", ("", "a|b"), [["`code`", "1"]])
    figure = Figure("f", "A figure", "<svg></svg>", Table("Its own", ("", "x"), [["y", "2"]]))
    section = Section("One, two", ["Words with `code`.", table, figure])
    text = page("Title", ["An opening."], [section])
    assert text.count("<details>") == 1 and text.count("<table>") == 2
    words = Table("Words", ("", "what", "how many"), [["a", "it", "2"], ["b", "that", "–"]])
    assert re.findall(r"<td[^>]*>", page("Title", [words], [])) == ['<td class="words">', "<td>"] * 2
    again = Section("Again", [figure.table, figure])  # a table shown on its own is not repeated
    assert page("Title", [], [again]).count("<table>") == 1
    assert markdown("Title", [], [again]).count("| y | 2 |") == 1
    assert "<caption>Numbers &amp; &lt;more&gt;</caption>" in text and "<code>code</code>" in text
    assert '<h2 id="one--two">' in text and '<a href="#one--two">' in text
    Elements(text)
    assert markdown("Title", ["An opening."], [section]) == (
        "# Title\n\nAn opening.\n\n## One, two\n\nWords with `code`.\n\n*Numbers & <more>*\n\n"
        "|  | a\\|b |\n|---|--:|\n| `code` | 1 |\n\n![A figure](f.svg)\n\n|  | x |\n|---|--:|\n| y | 2 |\n"
    )


def test_what_does_not_vary_is_a_level_line() -> None:
    """Cost against m: the dense unit has a constant cost, no exponent, and a ratio of 1."""

    def engine(label: str, us: float, m: float | None) -> dict[str, Any]:
        found = {"fastest": us, "fastest_ratio": 40 / us, "reproducible": True}
        return {"label": label, "dim": 8, "m_range": m and [m, m], "scenarios": {"sequence": found}}

    varied = [engine("native f32", 100 * m**2, m) for m in (0.25, 0.5, 1.0)]
    left_out = dict.fromkeys(("vcgru-8: onnxruntime custom op", "vcgru-4: onnxruntime custom op"), "it was not built")
    everyone = [*varied, engine("onnxruntime gru", 40, None)]
    section = summary._fraction({"part": "m", "title": "t", "left_out": left_out, "engines": everyone})
    figure, exponents, numbers = section.parts[1:4]
    assert section.parts[4:] == ["Left out: ONNX Runtime custom op: it was not built."]
    assert isinstance(figure, Figure) and isinstance(exponents, Table) and isinstance(numbers, Table)
    assert [row[:2] for row in exponents.rows] == [["native f32", "2.00"]]
    assert numbers.rows == [
        ["0.25", "6.25", "6.40", "40.0", "1.00"], ["0.5", "25.0", "1.60", "40.0", "1.00"],
        ["1", "100", "0.40", "40.0", "1.00"],
    ]  # fmt: skip
    assert "ONNX Runtime GRU</text>" in figure.svg and figure.table == numbers


def test_energy_is_read_where_there_are_counters(tmp_path: Path) -> None:
    assert energy.joules(tmp_path) == {} and "no RAPL" in (energy.fault(tmp_path) or "")
    assert energy.between({}, {}) is None
    for name, microjoules in (("intel-rapl:0", 900_000), ("intel-rapl:1", 5_000_000), ("intel-rapl:0:0", 7)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{microjoules}\n")
        (tmp_path / name / "max_energy_range_uj").write_text("1000000\n" if name.endswith(":0") else "9000000\n")
    before = energy.joules(tmp_path)
    assert set(before) == {"intel-rapl:0", "intel-rapl:1"} and energy.fault(tmp_path) is None
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("100000\n")  # wrapped around
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("5500000\n")
    assert energy.between(before, energy.joules(tmp_path)) == pytest.approx(0.2 + 0.5)


def test_peers_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = next(each for each in engines.peers() if each.form == engines.COMPILED)
    monkeypatch.setattr(engines.shutil, "which", lambda name: None)
    assert "needs a C++ compiler" in (engines.absence(compiled) or "")


def test_the_whole_document_compares_with_itself(document: dict[str, Any]) -> None:
    found = compare.compare(document, document)
    assert found.regressions == [] and found.widest == 1
    assert {each.place.part for each in found.changes} == {"batch", "tail"}
