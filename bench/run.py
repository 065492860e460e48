"""One interleaved run: models are written, their contenders measured, and what came of it is a document."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy.bench import contenders as known
from vcdeploy.bench import interleave, machine, report, subject
from vcdeploy.bench.contenders import Contender
from vcdeploy.bench.scenarios import SCENARIOS
from vcdeploy.errors import VcdeployError
from vcdeploy.runtime.loading import PRECISIONS
from vcdeploy.versions import versions

if TYPE_CHECKING:
    from vcdeploy.bench.subject import Subject

ROUNDS, QUICK_ROUNDS = 30, 5
SECONDS, QUICK_SECONDS = 0.03, 0.01  # of a chunk
UNIT, DIM, SHARE = "vcgru", 1024, (0.2, 0.6)  # of a model that is made up


def silent(line: str) -> None:
    """A `tell` for those who don't want to hear."""


@dataclass(frozen=True)
class Entrant:
    """A contender, the variable model that it or its dense twin is, and the contender that its ratios refer to.

    about: what the document says of it beside its figures.
    """

    contender: Contender
    subject: Subject
    baseline: str
    about: Mapping[str, Any] = field(default_factory=dict)


def measure(
    entrants: Sequence[Entrant],
    streams: NDArray[np.int64],
    settings: interleave.Settings,
    tell: Callable[[str], None] = silent,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The figures of each entrant that could run, and why the others could not.

    Entrants have names of their own, and files of their own where their models differ; streams [length, B].
    """
    left_out = {each.contender.name: why for each in entrants if (why := known.absence(each.contender))}
    taking_part = [each for each in entrants if each.contender.name not in left_out]
    with _folder() as folder:
        tell("making models")
        for name, each in {each.contender.file: each for each in taking_part}.items():
            _write(each, folder / name, settings.seed)
        np.save(folder / "streams.npy", streams)
        records, absent = interleave.measure([each.contender for each in taking_part], folder, settings, tell)
    left_out |= absent
    for each in taking_part:
        if each.contender.name not in left_out and each.baseline in left_out:
            raise VcdeployError(f"the baseline {each.baseline} can't run: {left_out[each.baseline]}")
    against = {each.contender.name: each.baseline for each in entrants}
    about = {each.contender.name: dict(each.about) for each in entrants}
    figures = report.contenders(records, against, streams.shape[1])
    return [{**each, **about[each["name"]]} for each in figures], left_out


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vcdeploy-bench-") as temporary:
        yield Path(temporary)


def _write(entrant: Entrant, path: Path, seed: int) -> None:
    """The file a contender names; the native ones pack from float32."""
    contender = entrant.contender
    chosen = entrant.subject if contender.variable else entrant.subject.dense(contender.unit, seed)
    narrow = contender.variable and contender.engine != "native"
    chosen.write(path, contender.form == known.BUCKETED, contender.precision if narrow else "f32")


def bench(
    model: str | None = None,
    *,
    unit: str = UNIT,
    dim: int = DIM,
    share: tuple[float, float] = SHARE,
    text: Path | None = None,
    scenarios: Sequence[str] = tuple(SCENARIOS),
    steps: int = 100,
    batch: int = 1,
    contenders: Sequence[str] = (),
    precisions: Sequence[str] = PRECISIONS,
    baseline: str | None = None,
    threads: int = 1,
    device: str = known.CPU,
    quick: bool = False,
    rounds: int | None = None,
    seed: int = 0,
    command: str = "",
    tell: Callable[[str], None] = silent,
) -> dict[str, Any]:
    """The document of `vcdeploy bench`: a trained model, or one that is made up (unit, dim, share), and dense ones.

    contenders: names or beginnings of names, all where there are none. command: what the document says it came from.
    """
    on_gpu = device == known.CUDA
    at_hand = subject.trained(model) if model is not None else subject.synthetic(unit, dim, *share, seed)
    all_of = known.gpu_contenders if on_gpu else known.contenders
    everyone = all_of(at_hand.config["unit"])
    chosen = known.choose(all_of(at_hand.config["unit"], precisions), contenders)
    absent = {each.name: reason for each in everyone if (reason := known.absence(each))}
    against = _baseline(everyone, baseline, absent)
    entrants = [Entrant(each, at_hand, against) for each in everyone if each in chosen or each.name == against]
    settings = interleave.Settings(
        scenarios, threads, steps, rounds or (QUICK_ROUNDS if quick else ROUNDS),
        QUICK_SECONDS if quick else SECONDS, seed,
    )  # fmt: skip
    about_machine, begun = machine.describe(), datetime.now(timezone.utc)
    if on_gpu:
        about_machine["gpu"] = machine.gpu()
    length = max(subject.STREAM, steps)
    if text is not None:
        streams = subject.text_of(text, at_hand.vocab, batch, length)
    elif model is not None:
        streams = subject.own_text(model, batch, length, seed)
    else:
        streams = subject.random_streams(len(at_hand.vocab), batch, length, seed)
    figures, left_out = measure(entrants, streams, settings, tell)
    if on_gpu:
        about_machine["gpu"]["clocks_after"] = machine.clocks()
    report.tell_firm(figures, threads, about_machine["cores"])
    return {
        "command": command,
        "date": begun.isoformat(timespec="seconds"),
        "machine": about_machine,
        "versions": versions(machine.PACKAGES),
        "model": {
            "source": model or "random weights",
            "vocab": len(at_hand.vocab),
            "weights": sum(each.size for each in at_hand.parameters.values()),
            **{name: at_hand.config[name] for name in ("unit", "dim", "layers", "sharpness", "epsilon", "kind")},
        },
        "settings": {
            "share": None if model else list(share),
            "text": str(text) if text else "the model's own" if model else "random symbols",
            "device": device, "scenarios": list(scenarios),
            "steps": steps, "batch": batch, "threads": threads, "rounds": settings.rounds,
            "chunk_seconds": settings.seconds, "seed": seed,
        },
        "baseline": against,
        "contenders": figures,
        "left_out": left_out,
    }  # fmt: skip


def _baseline(everyone: Sequence[Contender], wanted: str | None, left_out: Mapping[str, str]) -> str:
    """The contender that ratios refer to: the wanted one, or the first dense one of the same kind that is here."""
    names = [each.name for each in everyone]
    if wanted is not None:
        if wanted not in names:
            raise VcdeployError(f"no contender {wanted!r} for --baseline; there are: {', '.join(names)}")
        if wanted in left_out:
            raise VcdeployError(f"the baseline {wanted} can't run: {left_out[wanted]}")
        return wanted
    kind = known.DENSE[everyone[0].unit][0]
    dense = [each.name for each in everyone if each.unit == kind]
    for name in dense:
        if name not in left_out:
            return name
    raise VcdeployError("no baseline can run: " + "; ".join(f"{name}: {left_out[name]}" for name in dense))
