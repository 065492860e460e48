"""µs/char of trained models: variable and dense ones of one text, in one interleaved run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vcdeploy.bench import interleave
from vcdeploy.bench.engines import Engine
from vcdeploy.bench.models import STREAM, BenchModel
from vcdeploy.bench.paper import results
from vcdeploy.bench.paper.experiment import Experiment, Row
from vcdeploy.bench.paper.run import corpus_of
from vcdeploy.bench.report import rounded
from vcdeploy.errors import VcdeployError
from vcdeploy.runtime.model import load
from vcdeploy.spec import UNITS
from vcdeploy.training import checkpoint
from vcdeploy.training.config import TrainConfig
from vcdeploy.training.evaluate import evaluate_loaded
from vcdeploy.training.streams import Streams
from vcdeploy.vocabulary import Vocabulary

# The experiments that are timed together, by the text that their models were trained on.
TIMED = {"ptb": ("characters",), "text8": ("text8", "front"), "europarl-en": ("english",)}
TIMED_UNITS = ("vcgru", "gru-reset-first", "gru", "rnn")  # more would crowd the figure, and a CRNN has no runtime
PRECISIONS = ("f32", "f16", "int8")


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

    Each row runs with the first seed whose model is available; there must be one. Every unit runs in our kernels, a
    dense one also in ONNX Runtime.
    """
    rows = list(_trained(experiments, scale, folder))
    if not rows:
        names = " ".join(each.name for each in experiments)
        raise NothingToTime(f"no trained models: run `vcdeploy bench paper run {names}` first")
    models = results.models_of((found for _, _, found in rows), runs)
    with tempfile.TemporaryDirectory(prefix="vcdeploy-front-") as temporary:
        place = Path(temporary)
        engines: list[Engine] = []
        about: dict[str, dict[str, Any]] = {}
        for number, ((experiment, row, _), (made, path)) in enumerate(zip(rows, models, strict=True)):
            tell(f"exporting {row.name}")
            file = f"{number}.onnx"
            saved = checkpoint.read(path)
            BenchModel(saved.config, saved.vocab, {name: each.numpy() for name, each in saved.model.items()}).write(
                place / file
            )
            config = TrainConfig.from_json(made["config"])
            test = corpus_of(config, experiment.scales[scale]).splits["test"].astype(np.int64)
            np.save(place / "streams.npy", np.ascontiguousarray(test[: max(STREAM, settings.steps), np.newaxis]))
            title = f"{row.name}: {row.unit}, D {config.dim}"
            if UNITS[row.unit].variable:
                title += f", m {made['test']['m']:.2f}"
            for engine, runs_in in _ways(row.unit, file, title):
                bits = made["test"]["bits"]
                if engine.precision != "f32":
                    tell(f"evaluating {row.name} in {engine.precision}")
                    bits = _bits(place / file, engine.precision, test, config, saved.vocab)
                engines.append(engine)
                about[engine.name] = {
                    "model": title, "experiment": experiment.name, "row": row.name, "unit": row.unit, "runs": runs_in,
                    "series": f"{row.unit}, {runs_in}", "bits": round(bits, 6), "dim": config.dim,
                    "seed": made["seed"],
                }  # fmt: skip
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


def _ways(unit: str, file: str, title: str) -> Iterator[tuple[Engine, str]]:
    """The engines that run a model, each with a description."""
    for precision in PRECISIONS:
        runs = f"our kernels, {precision}"
        yield Engine(f"{title}, {runs}", "native", unit, file, "table", precision, table=True), runs
    if not UNITS[unit].variable:
        yield Engine(f"{title}, ONNX Runtime", "onnxruntime", unit, file, "dense"), "ONNX Runtime"


def _bits(file: Path, precision: str, test: np.ndarray, config: TrainConfig, vocab: Vocabulary) -> float:
    """Bits on the test text with weights in this precision, in the streams in which the trained model was evaluated."""
    model = load(file, "native", precision, 1)
    tally, _ = evaluate_loaded(model, Streams(test, config.batch, config.bptt, exact=True))
    bits: float = tally.summary(config.unit, config.dim, vocab)["bits"]
    return bits


def _figures(record: interleave.Record) -> dict[str, Any]:
    """Median µs/char, over the rounds and per round, and the mean m."""
    found: dict[str, Any] = {"microseconds": {}, "rounds": {}, "m": record.summary["sequence"]["m"]["mean"]}
    for name, chunks in record.chunks.items():
        rounds = [rounded(float(np.median(chunk.times)) / chunk.steps / 1e3) for chunk in chunks]
        found["rounds"][name] = rounds
        found["microseconds"][name] = rounded(float(np.median(rounds)))
    return found
