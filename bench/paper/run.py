"""From a row and a seed to a result: train or resume, and evaluate the best model."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from vcdeploy.analysis.spending import by_class
from vcdeploy.bench import machine
from vcdeploy.bench.paper import results
from vcdeploy.bench.paper.experiment import Experiment, Row, Scale
from vcdeploy.bench.paper.matching import matched_dim
from vcdeploy.corpora import Corpus, load
from vcdeploy.errors import VcdeployError
from vcdeploy.training import checkpoint
from vcdeploy.training.config import RECIPE, TrainConfig
from vcdeploy.training.distributed import Processes
from vcdeploy.training.evaluate import evaluate
from vcdeploy.training.loop import Trainer, fingerprint
from vcdeploy.training.streams import Streams
from vcdeploy.versions import versions

KEPT = (
    "step",
    "epoch",
    "bits",
    "bits_per_character",
    "perplexity",
    "m",
    "m_spread",
    "rnn_d",
    "macs",
    "sharpness",
    "weight",
)


def pending(
    experiment: Experiment, scale: str, seeds: int, folder: Path, only: Collection[str] = ()
) -> Iterator[tuple[Row, int, TrainConfig]]:
    """Rows without a result yet, in training order: all rows (or those in `only`) with the first seed, then the next.

    A result with settings other than the experiment's is an error. Rows are yielded lazily, since the dim of a row that
    matches another is known only once that one has a result.
    """
    for seed in range(seeds):
        for row in experiment.rows:
            if only and row.name not in only:
                continue
            config = settle(experiment, row, scale, seed, folder)
            found = results.of_seed(folder, scale, experiment, row.name, seed)
            if found is None:
                yield row, seed, config
            elif TrainConfig.from_json(found["config"]) != config:
                file = results.path(folder, scale, experiment.name)
                other = _difference(found["config"], config)
                raise VcdeployError(f"{file}: {row.name!r}, seed {seed}, was trained with other settings ({other}): "
                                    "remove its line to train it again")  # fmt: skip


def settle(experiment: Experiment, row: Row, scale: str, seed: int, folder: Path) -> TrainConfig:
    """The settings of a run; the dim of a row that matches another follows from that row's first seed."""
    config = experiment.config(row, scale, seed)
    if row.matches is None:
        return config
    matched = results.of_seed(folder, scale, experiment, row.matches, 0)
    if matched is None:
        raise VcdeployError(f"the size of {row.name!r} follows from {row.matches!r}, which has no result in "
                            f"{folder / scale}: run that first, or all of {experiment.name}")  # fmt: skip
    rnn_d = matched["valid"]["rnn_d"]
    boundaries = 0.0
    if row.unit == "crnn":
        boundaries = float(corpus_of(config, experiment.scales[scale]).boundaries("valid").mean())
    made = results.of_row(folder, scale, experiment, row.name)
    trained = made[0]["config"]["dim"] if made else None
    dim = matched_dim(
        row.unit, rnn_d, layers=config.layers, budget=config.budget, boundaries=boundaries, trained=trained
    )
    return replace(config, dim=dim)


def corpus_of(config: TrainConfig, scale: Scale) -> Corpus:
    return _shortened(config.corpus, config.kind, config.buffer, scale.characters, scale.held_out)


@lru_cache(maxsize=4)
def _shortened(source: str, kind: str | None, buffer: int, characters: int | None, held_out: int | None) -> Corpus:
    """The corpus, cut to these numbers of characters (for music, symbols)."""
    whole = load(source, kind=kind, buffer=buffer)
    lengths = {"train": characters, "valid": held_out, "test": held_out}
    period = whole.vocab.period
    ends = {name: None if length is None else length * period for name, length in lengths.items()}
    return replace(whole, splits={name: ids[: ends[name]] for name, ids in whole.splits.items()})


def train(
    experiment: Experiment,
    row: Row,
    scale: str,
    config: TrainConfig,
    folder: Path,
    runs: Path,
    on_row: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """Train one row with one seed, add its result to the results and return it. Checkpoints are stored in `runs`.

    Raises vcdeploy.training.loop.Interrupted on SIGINT or SIGTERM; call it again to resume.
    """
    place = results.run_folder(runs, scale, experiment.name, row.name, config.seed)
    corpus = corpus_of(config, experiment.scales[scale])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trainer = Trainer(config, corpus, place, Processes(0, 1, device), on_row=on_row)
    if (last := place / "last.safetensors").exists():
        saved = checkpoint.read(last)
        if TrainConfig.from_json(saved.progress["config"]) != config:
            other = _difference(saved.progress["config"], config)
            raise VcdeployError(
                f"{place} holds a run with other settings ({other}): move it away to train this row again"
            )
        trainer.restore(saved)
    place.mkdir(parents=True, exist_ok=True)
    began, first = time.process_time(), trainer.step
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    trainer.run()
    seconds = time.process_time() - began
    document = {
        "experiment": experiment.name,
        "row": row.name,
        "scale": scale,
        "seed": config.seed,
        "command": shlex.join(["vcdeploy", *sys.argv[1:]]),
        "date": date,
        "machine": {**machine.describe(), "threads": torch.get_num_threads(), "device": device.type},
        "versions": versions(machine.PACKAGES),
        "recipe": RECIPE,
        "config": config.to_json(),
        "corpus": {"training": fingerprint(corpus), **{name: len(ids) for name, ids in corpus.splits.items()}},
        "weights": sum(each.numel() for each in trainer.model.parameters()),
        "steps": trainer.total,
        # For a resumed run: extrapolated to all steps from those since it was resumed.
        "cpu_seconds": round(seconds * trainer.total / max(1, trainer.total - first), 1) if seconds else None,
        **_evaluated(place, corpus, config, device),
        "curve": _curve(place),
    }
    results.add(folder, document)
    return document


def _evaluated(place: Path, corpus: Corpus, config: TrainConfig, device: torch.device) -> dict[str, Any]:
    """Evaluate the best model on the validation and test texts, with m by class of symbol on the latter."""
    model = checkpoint.read(place / "best.safetensors").build().to(device)
    measured: dict[str, Any] = {"sharpness": model.sharpness}
    for split in ("valid", "test"):
        boundaries = corpus.boundaries(split) if config.unit == "crnn" else None
        streams = Streams(
            corpus.splits[split],
            config.batch,
            config.bptt,
            boundaries=boundaries,
            exact=True,
            period=corpus.vocab.period,
        )
        tally, m = evaluate(model, streams)
        measured[split] = tally.summary(config.unit, config.dim, corpus.vocab)
    if model.has_scheduler:
        measured["classes"] = by_class(m, corpus.classes("test"))
    return measured


def _curve(place: Path) -> list[dict[str, Any]]:
    """The validation results during training."""
    rows = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    return [{name: row[name] for name in KEPT if name in row} for row in rows if row["split"] == "valid"]


def _difference(made: dict[str, Any], config: TrainConfig) -> str:
    made, now = TrainConfig.from_json(made).to_json(), config.to_json()
    names = [name for name in sorted({*made, *now}) if made.get(name) != now.get(name)]
    return ", ".join(f"{name} {made.get(name)}, now {now.get(name)}" for name in names)
