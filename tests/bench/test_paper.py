"""`vcdeploy bench paper`: definitions, a tiny experiment from training to its page, and resuming."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import vcdeploy
from vcdeploy import analysis, cost
from vcdeploy.analysis.chart import picture
from vcdeploy.bench import jsonl
from vcdeploy.bench.paper import plots, report, results, run
from vcdeploy.bench.paper.experiment import SCALES, Cited, Experiment, Row, Scale, Traced
from vcdeploy.bench.paper.experiments import EXPERIMENTS
from vcdeploy.bench.paper.matching import matched_dim
from vcdeploy.cli import main
from vcdeploy.cli.bench_options import put_out
from vcdeploy.corpora.catalogue import CATALOGUE
from vcdeploy.errors import VcdeployError
from vcdeploy.spec import DENSE_UNITS
from vcdeploy.training.loop import Interrupted

TINY = {"dim": 16, "batch": 4, "bptt": 20, "epochs": 3.0, "warmup": 5}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = random.Random(2)
    path = tmp_path_factory.mktemp("text") / "small.txt"
    path.write_text("\n".join(" ".join(draw.choices(["the", "prime", "minister"], k=8)) for _ in range(110)))
    return path


@pytest.fixture
def tiny(text: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """A small experiment, which the command knows as `tiny`."""
    made = Experiment(
        name="tiny", title="A tiny one", about="Nothing is asked here.", settings={"corpus": str(text)},
        rows=(
            Row("VCRNN", "vcrnn", {"target": 0.4}, series="learn"),
            Row("RNN", "rnn", matches="VCRNN", series="RNN"),
            Row("CRNN", "crnn", matches="VCRNN"),
        ),
        scales={"machine": Scale(TINY, characters=2000, held_out=300), "paper": Scale({**TINY, "dim": 32})},
        classes=True,
    )  # fmt: skip
    monkeypatch.setitem(EXPERIMENTS, "tiny", made)
    return made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    yield lambda *words: CliRunner().invoke(main, ["bench", "paper", *words])
    torch.set_num_threads(threads)


def lines(name: str) -> list[Any]:
    return [json.loads(line) for line in Path("docs/results/paper/machine", f"{name}.jsonl").read_text().splitlines()]


def result_of(row: str, seed: int) -> Any:
    (found,) = (each for each in lines("tiny") if (each["row"], each["seed"]) == (row, seed))
    return found


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_row_is_a_run_at_both_scales(name: str) -> None:
    experiment = EXPERIMENTS[name]
    for scale in SCALES:
        for row in experiment.rows:
            config = experiment.config(row, scale, 3)
            assert config.unit == row.unit and config.seed == 3 and config.corpus in CATALOGUE
    for row in experiment.rows:
        if row.matches:
            assert not experiment.row(row.matches).matches, "the matched row must have a size of its own"
    files = {results.run_folder(Path(), "machine", name, row.name, 0) for row in experiment.rows}
    assert len(files) == len(experiment.rows)


def bad(**changes: Any) -> Experiment:
    return replace(EXPERIMENTS["music"], **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows": (Row("A", "rnn"), Row("A", "gru"))}, "two rows are called 'A'"),
        ({"rows": (Row("A", "elman"),)}, "no unit 'elman'"),
        ({"rows": (Row("A", "rnn", matches="B"), Row("B", "vcrnn"))}, "not an earlier row"),
        ({"scales": {"machine": Scale({})}}, "must be machine and paper"),
        ({"source": ""}, "without their source"),
        ({"traced": (Traced("figure9", "", (("VCGRU", "the"),)),)}, "figure9 shows 'VCGRU', which is not a row"),
        (
            {"cited": (Cited("VCGRU-9", 9, "1.0", beside="VCGRU"),)},
            "1 cited lines are beside 'VCGRU', of which there are 0 rows",
        ),
        (
            {"cited": (Cited("RNN-9", 9, "1.0", beside="RNN"), Cited("RNN-8", 8, "1.0", beside="RNN"))},
            "2 cited lines are beside",
        ),
    ],
)
def test_a_wrong_definition_is_refused(changes: Mapping[str, Any], said: str) -> None:
    with pytest.raises(VcdeployError, match=said):
        bad(**changes)


@pytest.mark.parametrize("unit", DENSE_UNITS)
def test_a_matched_dense_unit_costs_as_much(unit: str) -> None:
    dim = matched_dim(unit, 300.0)
    assert cost.rnn_d(unit, dim, [dim**2]) == pytest.approx(300, abs=1.01)


def test_matched_layers_cost_as_much_together() -> None:
    dim = matched_dim("gru", 300.0, layers=2)
    assert cost.rnn_d("gru", dim, [dim**2] * 2) == pytest.approx(300, abs=1.01)


def test_a_matched_crnn_counts_its_slow_layer_at_boundaries_only() -> None:
    dim = matched_dim("crnn", 300.0, boundaries=0.2)
    assert cost.rnn_d("crnn", dim, [dim**2, 0.2 * dim**2]) == pytest.approx(300, abs=1)
    assert matched_dim("crnn", 300.0) == 300 > dim


def test_a_matched_variable_unit_is_as_much_larger_as_its_budget_says() -> None:
    assert matched_dim("vcrnn", 160.0, budget=0.4) == 400


@pytest.mark.parametrize(("trained", "dim"), [(113, 113), (112, 112), (111, 112), (114, 112)])
def test_a_size_that_was_trained_stays_while_it_is_close(trained: int, dim: int) -> None:
    assert matched_dim("gru", 158.8, trained=trained) == dim  # 112.3, exactly


def test_from_training_to_pages(tiny: Experiment, here: Callable[..., Result]) -> None:
    result = here("run", "tiny", "--seeds", "2")
    assert result.exit_code == 0, result.output
    made = result_of("VCRNN", 0)
    assert (made["experiment"], made["row"], made["seed"], made["scale"]) == ("tiny", "VCRNN", 0, "machine")
    assert {"command", "date", "machine", "versions"} <= set(made) and made["corpus"]["train"] == 2000
    assert "processor" in made["machine"] and made["classes"]["white space"]["symbols"] > 0
    assert made["curve"][-1]["bits"] == pytest.approx(made["valid"]["bits"], abs=1e-3)
    dense = result_of("RNN", 1)
    assert dense["config"]["dim"] == round(made["valid"]["rnn_d"]) and dense["seed"] == 1 and "classes" not in dense
    crnn = result_of("CRNN", 0)
    assert crnn["config"]["dim"] < dense["config"]["dim"]
    assert crnn["valid"]["rnn_d"] == pytest.approx(made["valid"]["rnn_d"], abs=1.5)

    assert here("run", "tiny", "--seeds", "2").output.startswith("nothing to train: ")
    assert "3 of 3" in next(line for line in here("list").output.splitlines() if line.strip().startswith("tiny"))

    result = here("report")
    assert result.exit_code == 0, result.output
    page = Path("docs/results/paper/machine/tiny.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("| RNN |"))
    assert f"| {dense['config']['dim']} |" in line and " ± " in line and "| 2 |" in line
    assert "the paper's" not in page.split("rnn_d is the paper's count")[0] and "white space" in page
    both = [result_of("CRNN", seed)["curve"][2]["bits"] for seed in (0, 1)]
    assert re.search(rf"By epoch: .*\n\| 3 \|[^\n]* {sum(both) / 2:.3f} \|\n", page, re.DOTALL)
    figure = Path("docs/results/paper/machine/tiny.svg").read_bytes()
    here("report")
    assert Path("docs/results/paper/machine/tiny.svg").read_bytes() == figure and figure.startswith(b"<?xml")


def test_only_the_rows_that_are_named(tiny: Experiment, here: Callable[..., Result]) -> None:
    assert here("run", "tiny", "--row", "VCRNN").exit_code == 0
    assert [(each["row"], each["seed"]) for each in lines("tiny")] == [("VCRNN", 0)]
    result = here("run", "tiny", "--row", "VCGRU")
    assert result.exit_code == 2 and "no row 'VCGRU' in tiny. There are: VCRNN; RNN; CRNN" in result.output


def test_cited_figures_get_a_column_of_their_own(tiny: Experiment, here: Callable[..., Result]) -> None:
    assert here("run", "tiny").exit_code == 0
    cited = replace(
        tiny,
        cited=(Cited("RNN-512", 512, "9.9", beside="RNN"), Cited("GRU-1", 2, "8.8")),
        cited_classes={"white space": "0.77", "semicolon": "0.66"},
        cited_curves={tiny.settings["corpus"]: {"learn": ((11, 2.5), (20, 2.25))}},
        source="Its table 7.",
    )
    folder = Path("docs/results/paper")
    page = report.page(cited, "machine", folder)
    assert page is not None and "Its table 7. It also has 8.8 (GRU-1, rnn_d 2)." in page
    rows = {line.split(" | ")[0]: line for line in page.splitlines() if line.startswith("|")}
    assert rows["| RNN"].endswith("| 9.9 (RNN-512, rnn_d 512) |") and rows["| VCRNN"].endswith("|  |")
    assert rows["| white space"].endswith("| 0.77 |") and rows["| letter"].endswith("|  |")
    assert rows["| semicolon"] == "| semicolon |  | 0.66 |", "a class that our text does not have"
    assert rows["| learn"] == "| learn | 11: 2.50, 20: 2.25 |"
    figure = plots.against_computation(cited, "machine", folder)
    assert figure is not None
    (panel,) = figure.axes
    lines = {line.get_label(): line for line in panel.get_lines()}
    assert lines["learn, the paper's"].get_xydata().tolist() == [[11, 2.5], [20, 2.25]]
    assert lines["learn, the paper's"].get_marker() == lines["learn"].get_marker()


def test_a_series_that_only_the_paper_has_is_drawn(tiny: Experiment, here: Callable[..., Result]) -> None:
    assert here("run", "tiny", "--row", "VCRNN").exit_code == 0
    cited = replace(tiny, cited_curves={tiny.settings["corpus"]: {"RNN": ((11, 2.5),)}}, source="Its figure 9.")
    figure = plots.against_computation(cited, "machine", Path("docs/results/paper"))
    assert figure is not None
    assert [line.get_label() for line in figure.axes[0].get_lines()] == ["learn", "RNN, the paper's"]


def test_a_resumed_run_reaches_the_same_weights(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, runs = tiny.rows[0], tmp_path / "runs"
    config = run.settle(tiny, row, "machine", 0, tmp_path)
    whole = run.train(tiny, row, "machine", config, tmp_path / "whole", runs / "whole")
    stop = run.Trainer._step

    def stopping(trainer: run.Trainer) -> None:
        stop(trainer)
        if trainer.step == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(run.Trainer, "_step", stopping)
        with pytest.raises(Interrupted):
            run.train(tiny, row, "machine", config, tmp_path, runs)
    assert not list(tmp_path.glob("machine/*")), "no result before the end"
    with pytest.raises(VcdeployError, match=r"other settings \(lr None, now 0.001\)"):
        run.train(tiny, row, "machine", replace(config, lr=0.001), tmp_path, runs)
    resumed = run.train(tiny, row, "machine", config, tmp_path, runs)
    assert resumed["test"] == whole["test"] and resumed["steps"] == whole["steps"] > 7


def test_rows_of_an_earlier_recipe_are_marked(
    tiny: Experiment, here: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here("run", "tiny", "--row", "VCRNN").exit_code == 0
    assert here("report").exit_code == 0
    page = Path("docs/results/paper/machine/tiny.md")
    assert lines("tiny")[0]["recipe"] == results.RECIPE and "†" not in page.read_text()
    later = results.RECIPE + 1
    for module in (results, run, report):
        monkeypatch.setattr(module, "RECIPE", later)
    assert here("run", "tiny", "--row", "RNN").exit_code == 0
    assert here("report").exit_code == 0
    assert "| VCRNN † |" in page.read_text() and "| RNN |" in page.read_text()
    assert f"earlier recipe ({later - 1}; now {later})" in page.read_text()


def test_a_result_of_other_settings_is_not_reused(tiny: Experiment, tmp_path: Path) -> None:
    row = tiny.rows[0]
    config = run.settle(tiny, row, "machine", 0, tmp_path)
    run.train(tiny, row, "machine", config, tmp_path, tmp_path / "runs")
    assert [each[0].name for each in run.pending(replace(tiny, rows=(row,)), "machine", 1, tmp_path)] == []
    other = replace(tiny, rows=(replace(row, settings={"target": 0.2}),))
    with pytest.raises(VcdeployError, match=r"target 0.4, now 0.2"):
        list(run.pending(other, "machine", 1, tmp_path))


def test_dense_rows_stay_while_their_match_is_trained_again(tiny: Experiment, tmp_path: Path) -> None:
    small = replace(tiny, rows=tiny.rows[:2])
    for row, _, config in run.pending(small, "machine", 1, tmp_path):
        run.train(small, row, "machine", config, tmp_path, tmp_path / "runs")
    made, dense = jsonl.read(results.path(tmp_path, "machine", "tiny"))
    dim = 200  # large enough for 0.7 % to be more than rounding
    results.add(tmp_path, {**dense, "config": {**dense["config"], "dim": dim}})
    for rnn_d in (dim * 1.007, dim * 0.993):
        results.add(tmp_path, {**made, "valid": {**made["valid"], "rnn_d": rnn_d}})
        assert [(row.name, seed, config.dim) for row, seed, config in run.pending(small, "machine", 2, tmp_path)] == [
            ("VCRNN", 1, TINY["dim"]), ("RNN", 1, dim),
        ]  # fmt: skip
    results.add(tmp_path, {**made, "valid": {**made["valid"], "rnn_d": dim * 1.1}})
    with pytest.raises(VcdeployError, match=r"dim 200, now 220"):
        list(run.pending(small, "machine", 1, tmp_path))


def test_bits_against_microseconds(tiny: Experiment, text: Path, here: Callable[..., Result]) -> None:
    """Times are only checked to exist and to be of the right models."""
    from vcdeploy.bench import interleave
    from vcdeploy.bench.paper import latency

    rows = (
        Row("VCGRU", "vcgru", {"target": 0.4}),
        Row("GRU", "gru-reset-first", matches="VCGRU"),
        Row("GRU, PyTorch's form", "gru", matches="VCGRU"),
        Row("RNN", "rnn", matches="VCGRU"),
    )
    small = replace(tiny, rows=rows)
    folder, runs = Path("results"), Path("runs")
    for row, _, config in run.pending(small, "machine", 1, folder):
        run.train(small, row, "machine", config, folder, runs)
    settings = interleave.Settings(("sequence", "step"), 1, 10, 2, 0.001, 0)
    models, absent = latency.measure((small,), "machine", folder, runs, settings, lambda line: None)
    assert not absent and {each["seed"] for each in models} == {0}
    ours = ["our kernels, f32", "our kernels, f16", "our kernels, int8"]
    ways = [(each["row"], each["runs"]) for each in models]
    assert ways == [(row.name, way) for row in rows for way in [*ours, *(["ONNX Runtime"] * (row.unit != "vcgru"))]]
    for each in models:
        (trained,) = results.of_row(folder, "machine", small, each["row"])
        close = 0.01 if each["runs"] in ours[1:] else 1e-4
        assert each["bits"] == pytest.approx(trained["test"]["bits"], abs=close)
        assert each["m"] < 0.9 if each["unit"] == "vcgru" else each["m"] == 1
    assert all(each["microseconds"][name] > 0 for each in models for name in ("sequence", "step"))
    document = {
        "models": models, "settings": {"steps": 10, "rounds": 2, "threads": 1}, "command": "vcdeploy …",
        "machine": {"cores": 1, "processor": "P", "load": 0}, "date": "2026-01-01", "scale": "machine",
        "left_out": {"RNN": "no runtime"},
    }  # fmt: skip
    both = {"one": document, "another": {**document, "models": [{**each, "seed": 2} for each in models]}}
    figure = plots.fronts(both)
    assert [panel.get_title() for panel in figure.axes] == ["one", "another"]
    assert picture(figure, "svg").startswith(b"<?xml")
    page = report.times(both)
    assert page.count("| our kernels") == 24 and "## another\n" in page and "[tiny](tiny.md)" in page
    assert "paper run tiny\n" in page and "paper run tiny --seeds 3\n" in page and "run here: RNN.\n" in page


def test_the_seed_whose_model_exists_is_timed(tiny: Experiment, tmp_path: Path) -> None:
    from vcdeploy.bench import interleave
    from vcdeploy.bench.paper import latency

    small = replace(tiny, rows=(Row("VCGRU", "vcgru", {"target": 0.4}),))
    folder, runs = tmp_path / "results", tmp_path / "runs"
    for row, _, config in run.pending(small, "machine", 2, folder):
        run.train(small, row, "machine", config, folder, runs)
    shutil.rmtree(results.run_folder(runs, "machine", "tiny", "VCGRU", 0))
    settings = interleave.Settings(("sequence", "step"), 1, 10, 1, 0.001, 0)
    models, _ = latency.measure((small,), "machine", folder, runs, settings, lambda line: None)
    assert {(each["row"], each["seed"]) for each in models} == {("VCGRU", 1)}
    bits = [each["test"]["bits"] for each in results.of_row(folder, "machine", small, "VCGRU")]
    assert abs(models[0]["bits"] - bits[1]) < 1e-4 < abs(models[0]["bits"] - bits[0])


def test_results_without_models_are_left_as_they_are(
    tiny: Experiment, here: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout has results but no models: nothing may be drawn or timed with only some of them."""
    from vcdeploy.bench.paper import latency

    rows = (Row("VCGRU", "vcgru", {"target": 0.4}), Row("GRU", "gru", matches="VCGRU"))
    figure = Traced("figure0", "Nothing is shown here", (("VCGRU", "the prime"),))
    monkeypatch.setitem(EXPERIMENTS, "tiny", replace(tiny, rows=rows, traced=(figure,)))
    monkeypatch.setattr(latency, "TIMED", {"small": ("tiny",)})
    assert here("run", "tiny").exit_code == 0
    shutil.rmtree("runs")
    for command in (("time", "--rounds", "1", "--steps", "5"), ("trace", "figure0")):
        result = here(*command)
        assert result.exit_code == 1 and "no trained model in runs/paper: tiny · VCGRU" in result.output
    assert sorted(path.name for path in Path("docs/results/paper/machine").iterdir()) == ["tiny.jsonl"]
    assert here("report").exit_code == 0
    assert "svg" not in Path("docs/results/paper/machine/tiny.md").read_text(), "no row belongs to a series"
    assert not Path("docs/results/paper/machine/tiny.svg").exists()


def test_a_figure_of_m_over_a_text(
    tiny: Experiment, here: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = Traced("figure0", "Two texts", (("VCRNN", "the prime"), ("VCRNN", "minister")), above=0.5, words=True)
    monkeypatch.setitem(EXPERIMENTS, "tiny", replace(tiny, rows=tiny.rows[:1], traced=(figure,)))
    result = here("trace", "figure0")
    assert result.exit_code == 1 and "run `vcdeploy bench paper run tiny` first" in result.output
    assert here("run", "tiny").exit_code == 0
    result = here("trace", "figure0")
    assert result.exit_code == 0, result.output
    (made,) = lines("traces")
    assert made["panels"] == [{"row": "VCRNN", "seed": 0, "text": text} for text in ("the prime", "minister")]
    assert ["".join(each["symbols"]) for each in made["traces"]] == ["the prime", "minister"]
    model = vcdeploy.load(results.run_folder(Path("runs/paper"), "machine", "tiny", "VCRNN", 0) / "best.safetensors")
    assert made["traces"][1]["m"] == analysis.trace(model, "minister", changes=True).m.tolist()
    assert [word["word"].replace("-", "") for word in made["words"]] == ["the", "prime", "minister"]
    assert Path("docs/results/paper/machine/traces/figure0.png").read_bytes().startswith(b"\x89PNG")
    assert here("report").exit_code == 0
    assert "## Two texts" in (page := Path("docs/results/paper/machine/tiny.md").read_text())
    assert "![m over a text](traces/figure0.png)" in page and "Models of seed 0; " in page
    result = here("trace", "figure9")
    assert result.exit_code == 2
    assert "no figure 'figure9' to trace: choose from figure2, figure3, figure5, figure0" in result.output


def test_an_error_has_its_own_line(
    tiny: Experiment, here: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here("run", "tiny", "--row", "VCRNN").exit_code == 0
    shutil.rmtree("docs")
    other = (replace(tiny.rows[0], settings={"target": 0.2}),)
    monkeypatch.setitem(EXPERIMENTS, "tiny", replace(tiny, rows=other))
    result = here("run", "tiny")
    assert result.exit_code == 1 and "D 16 · seed 0\n" in result.output and "target 0.4, now 0.2" in result.output


def test_bits_that_round_to_the_same_are_no_gain() -> None:
    """A slower model is not on the front if its bits differ only in the fourth decimal."""
    models = [
        {"series": "VCGRU", "unit": "vcgru", "microseconds": {"sequence": time}, "bits": bits}
        for time, bits in ((1.0, 1.9984), (2.0, 1.9981), (3.0, 1.9974))
    ]
    assert report.fronts(models) == ["of all", "", "of all"]


def test_a_row_that_depends_on_another_requires_it_first(tiny: Experiment, here: Callable[..., Result]) -> None:
    result = here("run", "tiny", "--row", "RNN")
    assert result.exit_code == 1 and "'RNN' follows from 'VCRNN', which has no result in docs" in result.output


def test_lengths_of_notes_are_in_order() -> None:
    names = ["bar", "note length 1", "note length 1/2", "note length 3/2", "repeated note", "note length 4"]
    ordered = ["bar", "note length 1/2", "note length 1", "note length 3/2", "note length 4", "repeated note"]
    assert report.by_length(names) == ordered


def test_the_command_times_what_is_trained_and_the_report_shows_it(
    tiny: Experiment, here: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vcdeploy.bench.paper import latency

    monkeypatch.setattr(latency, "TIMED", {"untrained": ("music",), "small": ("tiny",)})
    assert here("run", "tiny", "--row", "VCRNN", "--row", "RNN").exit_code == 0
    few = ("--rounds", "1", "--steps", "5")
    result = here("time", *few)
    assert result.exit_code == 0, result.output
    assert "small · RNN: rnn, D " in result.output and "untrained" not in result.output
    (document,) = lines("microseconds")
    assert document["text"] == "small"
    assert len(document["models"]) == 4 and document["left_out"] == {}
    assert here("report").exit_code == 0
    assert "## small\n" in Path("docs/results/paper/machine/microseconds.md").read_text()
    assert Path("docs/results/paper/machine/microseconds.svg").exists()
    result = here("time", "untrained", *few)
    assert result.exit_code == 1 and "run `vcdeploy bench paper run music` first" in result.output


def test_bad_names_and_nothing_to_show(here: Callable[..., Result]) -> None:
    result = here("run", "musik")
    assert result.exit_code == 2 and "no experiment 'musik'; did you mean music?" in result.output
    result = here("report")
    assert result.exit_code == 1 and "holds no results" in result.output
    result = here("time")
    assert result.exit_code == 1 and "run `vcdeploy bench paper run characters` first" in result.output
    result = here("time", "text8")
    assert result.exit_code == 1 and "run `vcdeploy bench paper run text8 front` first" in result.output
    result = here("time", "text9")
    assert result.exit_code == 2 and "no text 'text9' to time: choose from ptb, text8, europarl-en" in result.output
    assert here("run", "--scale", "huge").exit_code == 2
    file = Path("docs/results/paper/machine/music.jsonl")
    file.parent.mkdir(parents=True)
    file.write_text('{"row":')
    result = here("list")
    assert (
        result.exit_code == 1
        and "music.jsonl, line 1: invalid JSON" in result.output
        and "remove the line" in result.output
    )


def test_processes_that_add_results_at_the_same_time_lose_none(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from vcdeploy.bench.paper import results\n"
        "for seed in range(20):\n"
        "    results.add(Path(sys.argv[1]), {'experiment': 'e', 'scale': 'machine', 'row': sys.argv[2], 'seed': seed})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), row]) for row in "AB"]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    file = results.path(tmp_path, "machine", "e")
    found = {(each["row"], each["seed"]) for each in jsonl.read(file)}
    assert found == {(row, seed) for row in "AB" for seed in range(20)}
    assert list(file.parent.iterdir()) == [file], "no lock or temporary file remains"


def test_a_result_replaces_the_one_of_its_row_and_seed(tmp_path: Path) -> None:
    for row, seed, score in (("A", 0, 1), ("A", 1, 2), ("B", 0, 3), ("A", 0, 4)):
        results.add(tmp_path, {"experiment": "e", "scale": "paper", "row": row, "seed": seed, "score": score})
    assert [each["score"] for each in jsonl.read(results.path(tmp_path, "paper", "e"))] == [4, 2, 3]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_results_in_the_repository_belong_to_rows(name: str) -> None:
    folder = Path(__file__).parents[2] / "docs/results/paper"
    for scale in SCALES:
        made = jsonl.read(results.path(folder, scale, name))
        assert all(each["experiment"] == name and each["scale"] == scale for each in made)
        assert {each["row"] for each in made} <= {row.name for row in EXPERIMENTS[name].rows}
        assert len({(each["row"], each["seed"]) for each in made}) == len(made)


def test_a_document_is_added_to_a_file_of_lines(tmp_path: Path) -> None:
    for number in range(2):
        put_out({"number": number}, tmp_path / "runs.jsonl", lambda: None)
    assert (tmp_path / "runs.jsonl").read_text() == '{"number":0}\n{"number":1}\n'
