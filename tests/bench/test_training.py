"""`vcdeploy bench train`: the figures follow from the measurements, and m is as requested."""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vcdeploy.bench import training
from vcdeploy.spec import VARIABLE_UNITS

SMALL = ("--dim", "24", "--steps", "6", "--batch", "5", "--rounds", "2")


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vcdeploy", "bench", "train", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("unit", VARIABLE_UNITS)
def test_figures_follow_from_the_rounds(unit: str, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    result = bench(*SMALL, "--unit", unit, "--m", "0.25:0.75", "--json", str(file))
    assert result.returncode == 0, result.stderr
    document: dict[str, Any] = json.loads(file.read_text())
    assert "{" not in result.stdout  # JSON only on request
    by_name = {each["name"]: each for each in document["engines"]}
    assert list(by_name) == list(training.ENGINES)
    for name, each in by_name.items():
        assert name in result.stdout
        assert len(each["seconds"]) == len(each["cpu_seconds"]) == 2
        assert each["tokens_per_second"] == pytest.approx(30 / statistics.median(each["seconds"]), rel=1e-2)
        assert each["times"][name] == each["cpu_times"][name] == 1
    for name in ("ops", "reference"):
        assert by_name[name]["m"]["mean"] == pytest.approx(0.5, abs=0.1)
        assert by_name[name]["m"]["spread"] == pytest.approx(0.5 / 12**0.5, abs=0.06)
    assert by_name["ops"]["m"] == by_name["reference"]["m"]
    assert "native kernels that skip" in by_name["ops"]["runs"]
    assert by_name["torch gru"]["m"] is None


def test_ratios_are_medians_within_rounds() -> None:
    fast = training.Record("ops", "", None, [1.0, 2.0, 4.0], [1.0, 1.0, 1.0])
    slow = training.Record("torch gru", "", None, [4.0, 4.0, 4.0], [2.0, 3.0, 5.0])
    first, second = training.figures([fast, slow], 100)
    assert first["times"] == {"ops": 1, "torch gru": 2} and first["cpu_times"]["torch gru"] == 3
    assert second["times"]["ops"] == 0.5 and second["tokens_per_second"] == 25


def test_one_m_holds_for_every_token() -> None:
    task = training.Task("vcgru", 16, 3, 4, (0.375, 0.375), 1.0, 1, 0)
    _, run = training._layer("ops", task)
    m = run()[1]
    assert m.shape == (4, 3) and (m - 0.375).abs().max() < 1e-6


def test_errors() -> None:
    result = bench("--m", "0.6:0.2")
    assert result.returncode == 2 and "--m '0.6:0.2' is not a range of m" in result.stderr
    assert bench("--dim", "0").returncode == 2
