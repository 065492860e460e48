"""µs/char of trained models: variable and dense ones of one text, in one interleaved run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vcdeploy.bench import interleave
from vcdeploy.bench.engines import Engine
from vcdeploy.bench.models import STREAM, BenchModel, random_weights
from vcdeploy.bench.paper import results
from vcdeploy.bench.paper.experiment import Experiment, Row
from vcdeploy.bench.paper.run import corpus_of
from vcdeploy.bench.report import rounded
from vcdeploy.errors import VcdeployError
from vcdeploy.runtime import load
from vcdeploy.spec import UNITS
from vcdeploy.training import checkpoint
from vcdeploy.training.config import TrainConfig
from vcdeploy.training.evaluate import evaluate_loaded
from vcdeploy.training.streams import Streams
from vcdeploy.vocabulary import Vocabulary

# The experiments that are timed together, by the text that their models were trained on.
TIMED = {"ptb": ("characters",), "text8": ("text8", "front")}
TIMED_UNITS = ("vcgru", "gru", "rnn")  # more would crowd the figure, and a CRNN has no runtime
PRECISIONS = ("f32", "int8")
ALL_ACTIVE = 20.0  # the scheduler's b for m = 1 within rounding


class NothingToTime(VcdeployError):
    """No row of the experiments has a result."""


def measure(
    experiments: tuple[Experiment, ...],
    scale: str,
    folder: Path,
    runs: Path,
    settings: interleave.Settings,
    tell: Callable[[str], None],
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Bits and µs of the experiments' models, which share a corpus; and which of them can't run here, and why.

    A variable unit runs in our kernels, in f32 and int8, with the first seed of its row whose model is available; there
    must be one. A dense unit runs in ONNX Runtime, with random weights. A GRU is also timed in our kernels, as a VCGRU
    of its size with m = 1.
    """
    rows = list(_trained(experiments, scale, folder))
    if not rows:
        names = " ".join(each.name for each in experiments)
        raise NothingToTime(f"no trained models: run `vcdeploy bench paper run {names}` first")
    models = iter(results.models_of((found for _, row, found in rows if UNITS[row.unit].variable), runs))
    with tempfile.TemporaryDirectory(prefix="vcdeploy-front-") as temporary:
        place = Path(temporary)
        engines: list[Engine] = []
        about: dict[str, dict[str, Any]] = {}
        for number, (experiment, row, found) in enumerate(rows):
            trained = next(models) if UNITS[row.unit].variable else None
            made = trained[0] if trained else found[0]
            tell(f"exporting {row.name}")
            file = f"{number}.onnx"
            corpus = corpus_of(TrainConfig.from_json(made["config"]), experiment.scales[scale])
            model = _trained_model(trained[1]) if trained else _random(row.unit, made["config"]["dim"], corpus.vocab)
            model.write(place / file)
            test = corpus.splits["test"].astype(np.int64)
            np.save(place / "streams.npy", np.ascontiguousarray(test[: max(STREAM, settings.steps), np.newaxis]))
            title = f"{row.unit.upper()}-{made['config']['dim']}"
            if trained:
                title += f", m {made['test']['m']:.2f}"
            for engine, runs_in, series in _ways(row.unit, file, title):
                bits = made["test"]["bits"]
                if engine.precision == "int8" and trained:
                    tell(f"evaluating {row.name} in int8")
                    bits = _bits(place / file, test, corpus.vocab)
                engines.append(engine)
                about[engine.name] = {
                    "model": title, "experiment": experiment.name, "row": row.name, "unit": row.unit, "runs": runs_in,
                    "series": series, "bits": round(bits, 6), "dim": made["config"]["dim"], "seed": made["seed"],
                }  # fmt: skip
            if row.unit == "gru":
                _all_active(made["config"]["dim"], corpus.vocab).write(place / f"{number}-active.onnx")
        records, missing = interleave.measure(engines, place, settings, tell)
    return [{**about[record.engine.name], **_figures(record)} for record in records], missing


def _trained(
    experiments: tuple[Experiment, ...], scale: str, folder: Path
) -> Iterator[tuple[Experiment, Row, list[dict[str, Any]]]]:
    """The rows that can be timed and have results, with their results."""
    for experiment in experiments:
        for row in experiment.rows:
            if row.unit in TIMED_UNITS and (found := results.of_row(folder, scale, experiment, row.name)):
                yield experiment, row, found


def _ways(unit: str, file: str, title: str) -> Iterator[tuple[Engine, str, str]]:
    """The engines that run a model, each with a description and the curve it belongs to."""
    if UNITS[unit].variable:
        for precision in PRECISIONS:
            runs = f"our kernels, {precision}"
            yield (
                Engine(f"{title}, {runs}", "native", unit, file, "table", precision, table=True),
                runs,
                f"{unit.upper()}, {runs}",
            )
        return
    runs = "ONNX Runtime"
    yield Engine(f"{title}, {runs}", "onnxruntime", unit, file, "dense"), runs, f"{unit.upper()}, {runs}"
    if unit == "gru":
        active = file.replace(".onnx", "-active.onnx")
        for precision in PRECISIONS:
            runs = f"our kernels, all active, {precision}"
            yield (
                Engine(f"{title}, {runs}", "native", "vcgru", active, "table", precision, table=True),
                runs,
                f"GRU, {runs}",
            )


def _trained_model(path: Path) -> BenchModel:
    saved = checkpoint.read(path)
    return BenchModel(saved.config, saved.vocab, {name: each.numpy() for name, each in saved.model.items()})


def _random(unit: str, dim: int, vocab: Vocabulary) -> BenchModel:
    config = {"unit": unit, "dim": dim, "layers": 1, "sharpness": 1.0, "epsilon": 1e-3, "kind": vocab.kind, "buffer": 0}
    return random_weights(config, vocab, seed=0)


def _all_active(dim: int, vocab: Vocabulary) -> BenchModel:
    """A VCGRU with m = 1 at every step."""
    model = _random("vcgru", dim, vocab)
    for part, value in (("u", 0), ("v", 0), ("b", ALL_ACTIVE)):
        model.parameters[f"unit.layers.0.{part}"][:] = value
    return model


def _bits(file: Path, test: np.ndarray, vocab: Vocabulary) -> float:
    """Bits on the test text, with int8 weights."""
    model = load(file, "native", "int8", 1)
    tally, _ = evaluate_loaded(model, Streams(test, 32, 100, exact=True))
    bits: float = tally.summary(model.config["unit"], model.config["dim"], vocab)["bits"]
    return bits


def _figures(record: interleave.Record) -> dict[str, Any]:
    """Median µs/char, over the rounds and per round, and the mean m."""
    found: dict[str, Any] = {"microseconds": {}, "rounds": {}, "m": record.summary["sequence"]["m"]["mean"]}
    for name, chunks in record.chunks.items():
        rounds = [rounded(float(np.median(chunk.times)) / chunk.steps / 1e3) for chunk in chunks]
        found["rounds"][name] = rounds
        found["microseconds"][name] = rounded(float(np.median(rounds)))
    return found
