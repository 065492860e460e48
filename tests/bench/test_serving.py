"""`bench serve`: its figures follow from what its processes report."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("uvicorn", reason="needs the extra serve")

from vcdeploy.bench import serving
from vcdeploy.cli import main


def test_figures_follow_from_the_rounds(tmp_path: Path) -> None:
    file = tmp_path / "serve.json"
    arguments = ["bench", "serve", "--streams", "2", "--tokens", "70", "--rounds", "1", "--short", "20"]
    done = CliRunner().invoke(main, [*arguments, "--json", str(file)])
    assert done.exit_code == 0, done.output
    document = json.loads(file.read_text())
    (taken,), (shown,) = document["rounds"], document["summary"]
    assert taken["tokens"] == taken["alone"]["tokens"] == 140  # what the clients received
    assert shown["tokens_per_second"] == taken["tokens"] / taken["seconds"]
    assert 0 < taken["first_token_ms"]["p50"] <= taken["first_token_ms"]["p99"]
    assert document["memory"]["requests"] == 20 and len(document["memory"]["sizes_mb"]) == 10
    assert "first token" in done.output and "20 requests of" in done.output


def test_ratios_are_medians_within_rounds() -> None:
    rounds = [
        {"streams": 1, "tokens": 100, "seconds": 1.0, "cpu_seconds": cpu, "first_token_ms": {"p50": 1, "p99": 2},
         "gap_p99_ms": 3, "alone": {"tokens": 100, "seconds": 1.0, "cpu_seconds": alone}}
        for cpu, alone in ((2.0, 1.0), (4.0, 3.0), (1.0, 0.9))
    ]  # fmt: skip
    assert serving._summary(rounds)["share_of_alone"] == pytest.approx(0.75)


@pytest.mark.parametrize("streams", ["", "0", "1,x", "5000"])
def test_errors(streams: str) -> None:
    done = CliRunner().invoke(main, ["bench", "serve", "--streams", streams])
    assert done.exit_code == 2 and "--streams takes numbers" in done.output
