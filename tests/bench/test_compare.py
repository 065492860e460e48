"""Comparison of two runs, and exponents: on synthetic numbers, and through the command line."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcdeploy.bench import compare
from vcdeploy.bench.fits import fit
from vcdeploy.bench.report import mark_fastest, mark_reproducible
from vcdeploy.errors import VcdeployError

BENCH = [sys.executable, "-m", "vcdeploy", "bench"]


def engine(name: str, unit: str, fastest: float, dense: float, **more: Any) -> dict[str, Any]:
    found = {"fastest": fastest, "fastest_ratio": dense / fastest, "rounds": [fastest, fastest]}
    return {"name": name, "unit": unit, "baseline": "onnxruntime gru", "scenarios": {"step": found}, **more}


def plain(**settings: Any) -> dict[str, Any]:
    """A document of `vcdeploy bench`, with the entries needed here."""
    return {
        "date": "2026-01-01",
        "machine": {"processor": "a", "system": "b", "cores": 2, "caches": {"L2": "1M"}},
        "versions": {"vcdeploy": "1", "onnxruntime": "1.2"},
        "model": {"source": "random weights", "unit": "vcgru", "dim": 64},
        "settings": {"m_range": [0.2, 0.6], "batch": 1, "threads": 1, "steps": 100, **settings},
        "baseline": "onnxruntime gru",
        "engines": [engine("native f32", "vcgru", 10, 100), engine("onnxruntime gru", "gru", 100, 100)],
    }


def whole() -> dict[str, Any]:
    """A document of `vcdeploy bench report`."""
    part = plain()
    del part["model"], part["baseline"]
    beside = {"beside": "vcgru", "dim": 64}
    part["engines"] = [
        engine("vcgru-64: native f32", "vcgru", 20, 100, label="native f32", m_range=[0.2, 0.6], **beside),
        engine("vcgru-64: gru", "gru", 100, 100, label="onnxruntime gru", m_range=None, **beside),
    ]
    part["engines"][0]["baseline"] = part["engines"][1]["baseline"] = "vcgru-64: gru"
    parts = [{**part, "part": "size"}, {**copy.deepcopy(part), "part": "batch"}]
    return {
        **{name: part[name] for name in ("date", "machine", "versions", "settings")},
        "kind": "full",
        "parts": parts,
    }


def test_a_slower_machine_is_no_regression_but_a_worse_ratio_is() -> None:
    old, new = plain(), plain()
    new["engines"] = [engine("native f32", "vcgru", 30, 300), engine("onnxruntime gru", "gru", 300, 300)]
    found = compare.compare(old, new)
    assert [(each.old, each.new) for each in found.changes] == [(10, 10)] and found.regressions == []
    new["engines"][0] = engine("native f32", "vcgru", 32.9, 300)
    assert compare.compare(old, new).regressions == []
    new["engines"][0] = engine("native f32", "vcgru", 33.1, 300)
    (worse,) = compare.compare(old, new).regressions
    assert worse.times == pytest.approx(1.103, abs=1e-3) and worse.place.engine == "native f32"
    assert compare.compare(new, old).regressions == [] and len(compare.compare(new, old).improvements) == 1
    assert compare.compare(old, new, threshold=0.2).regressions == []
    assert compare.compare(old, new).widest == compare.compare(new, old).widest == pytest.approx(1.103, abs=1e-3)


def test_older_documents_have_the_median_ratio_only() -> None:
    old = plain()
    for each in old["engines"]:
        found = each["scenarios"]["step"]
        found["ratio"] = found.pop("fastest_ratio")
        del each["baseline"]
    assert [each.times for each in compare.compare(old, plain()).changes] == [1]


def test_a_full_report_meets_a_plain_run_and_parts_meet_parts() -> None:
    between = compare.compare(plain(), whole())
    assert [(each.old, each.new, each.place.part) for each in between.changes] == [(10, 5, "")]
    new = whole()
    new["parts"][1]["engines"][0]["scenarios"]["step"]["fastest_ratio"] = 4.0
    (worse,) = compare.compare(whole(), new).regressions
    assert worse.place.part == "batch" and worse.place.model == "vcgru-64" and worse.place.m_range == "0.2–0.6"


def test_what_others_decide_is_shown_and_not_judged() -> None:
    new = plain()
    new["engines"].append(engine("torch gru", "gru", 90, 100))
    new["engines"][0]["scenarios"]["step"] |= {"fastest_ratio": 1.0, "reproducible": False}
    found = compare.compare(plain(), new)
    assert [(each.place.engine, each.times, each.reproducible) for each in found.changes] == [("native f32", 10, False)]
    assert found.regressions == [] and found.widest == 1
    assert [each.place.engine for each in compare.compare(new, new).reproducible] == ["torch gru"]


def test_other_differences_are_reported() -> None:
    new = plain()
    new["machine"]["processor"], new["versions"] = "z", {"vcdeploy": "2", "torch": "3"}
    remarks = compare.compare(plain(), new).remarks
    assert remarks == ["different machine: processor was a, is now z; ratios depend on it",
                       "onnxruntime: was 1.2, is now not installed", "torch: was not installed, is now 3"]  # fmt: skip


def test_nothing_in_common_is_an_error() -> None:
    for other in (plain(batch=2), plain(threads=2), plain(m_range=[0.4, 0.4])):
        with pytest.raises(VcdeployError, match="nothing in common"):
            compare.compare(plain(), other)


def test_the_command_flags_a_synthetic_regression(tmp_path: Path) -> None:
    new = plain()
    new["engines"][0] = engine("native f32", "vcgru", 12, 100)
    for name, document in (("old.json", plain()), ("new.json", new), ("other.json", {"a": 1})):
        (tmp_path / name).write_text(json.dumps(document))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*BENCH, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    result = run("compare", "old.json", "new.json")
    assert result.returncode == 4
    assert "1 reproducible ratios are in both; 1 slower and 0 faster by more than 10 %" in result.stdout
    line = next(each for each in result.stdout.splitlines() if "SLOWER" in each)
    assert line.split()[-4:] == ["10.00", "8.33", "1.200", "SLOWER"]
    assert run("compare", "old.json", "new.json", "--threshold", "25").returncode == 0
    result = run("compare", "other.json", "new.json")
    assert result.returncode == 1 and "other.json is not a document of `vcdeploy bench`" in result.stderr


def test_a_quick_run_is_compared_as_it_ends(tmp_path: Path) -> None:
    words = [
        *BENCH,
        "--dim",
        "16",
        "--quick",
        "--rounds",
        "2",
        "--scenario",
        "step",
        "--engines",
        "native f32 + table",
    ]
    result = subprocess.run([*words, "--json", "old.json"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    old = json.loads((tmp_path / "old.json").read_text())
    for each in old["engines"]:  # a hundred times as fast before, so that any machine is slower now
        each["scenarios"]["step"]["fastest_ratio"] *= 100
    (tmp_path / "old.json").write_text(json.dumps(old))
    result = subprocess.run(
        [*words, "--compare", "old.json"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 4, result.stderr
    assert "SLOWER" in result.stdout and "1 reproducible ratios are in both; 1 slower" in result.stdout


def test_exponents() -> None:
    sizes = [128, 256, 512, 1024]
    found = fit(sizes, [3e-5 * size**2 for size in sizes])
    assert found.exponent == pytest.approx(2) and found.factor == pytest.approx(3e-5) and found.off < 1e-9
    assert (found.low, found.high) == (128, 1024)
    # A constant added to the square makes the exponent smaller, and the fit worse.
    found = fit(sizes, [5 + 3e-5 * size**2 for size in sizes])
    assert 0.5 < found.exponent < 2 and found.off > 0.05
    assert fit([0.2, 0.4], [1, 8]).exponent == pytest.approx(3)
    for sizes_, costs in (([1.0], [1.0]), ([1.0, 1.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 1.0])):
        with pytest.raises(VcdeployError, match="no exponent"):
            fit(sizes_, costs)


def test_which_ratios_are_reproducible() -> None:
    small, large = 1000, 10**9
    figures = [
        engine("native f32", "vcgru", 1, 1, runtime="native"),
        engine("torch gru", "gru", 1, 1, runtime="torch"),
        engine("onnxruntime gru", "gru", 1, 1, runtime="onnxruntime"),
    ]

    def judged(own: int, theirs: int, threads: int = 1, scenario: str = "step") -> list[bool]:
        for each in figures:
            each["scenarios"] = {scenario: {"working_set": theirs if each["name"] == each["baseline"] else own}}
        mark_reproducible(figures, threads, cores=2)
        return [each["scenarios"][scenario]["reproducible"] for each in figures[:2]]

    assert judged(small, small) == [True, False] and judged(small, small, scenario="sequence") == [
        True,
        True,
    ]
    assert judged(large, small, scenario="sequence") == judged(small, large, scenario="sequence") == [False, False]
    assert judged(small, small, threads=2) == judged(small, small, scenario="cold") == [False, False]
    for visits, again in (([10, 12, 10.9], True), ([10, 12, 11.1], False), ([10], True)):
        for place in (0, 2):  # an engine, or its baseline
            for each in figures:
                each["scenarios"] = {"sequence": {"working_set": small, "visits": [5, 5, 5]}}
            figures[place]["scenarios"]["sequence"]["visits"] = visits
            mark_reproducible(figures, 1, cores=2)
            assert figures[0]["scenarios"]["sequence"]["reproducible"] == again
    judged(small, small, scenario="cold")
    assert figures[2]["scenarios"]["cold"]["reproducible"]  # a baseline vs itself is always 1


def test_the_fastest_round_is_the_undisturbed_one() -> None:
    """The ratio does not depend on how many rounds are disturbed, or by how much."""
    random = np.random.default_rng(0)
    for disturbed in (0.2, 0.5, 0.8):

        def rounds(took: float, share: float = disturbed) -> list[float]:
            slower = np.where(random.random(30) < share, random.uniform(1.1, 2, 30), 1.0)
            return [float(each) for each in took * slower * random.normal(1, 0.01, 30)]

        ours, dense = engine("native f32", "vcgru", 1, 1), engine("onnxruntime gru", "gru", 1, 1)
        ours["scenarios"] = {"step": {"rounds": rounds(10)}, "cold": {"rounds": rounds(20)}}
        dense["scenarios"] = {"step": {"rounds": rounds(80)}}
        mark_fastest([ours, dense])
        assert ours["scenarios"]["step"]["fastest"] == pytest.approx(10, rel=0.04)
        assert ours["scenarios"]["step"]["fastest_ratio"] == pytest.approx(8, rel=0.05)
        assert dense["scenarios"]["step"]["fastest_ratio"] == 1
        assert "fastest_ratio" not in ours["scenarios"]["cold"]  # the baseline has no such scenario
