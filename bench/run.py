"""One interleaved run: write the models, measure their engines, return a document."""

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

from vcdeploy.bench import engines as known
from vcdeploy.bench import interleave, machine, models, report
from vcdeploy.bench.defaults import DIM, M_RANGE, QUICK_ROUNDS, ROUNDS, SCENARIOS, UNIT
from vcdeploy.bench.engines import Engine
from vcdeploy.errors import BadValue, NoGpu, VcdeployError
from vcdeploy.spec import PRECISIONS, UNITS
from vcdeploy.versions import versions

if TYPE_CHECKING:
    from vcdeploy.bench.models import BenchModel

SECONDS, QUICK_SECONDS = 0.03, 0.01  # of a chunk


def silent(line: str) -> None:
    """A `tell` that ignores the line."""


@dataclass(frozen=True)
class Entrant:
    """An engine, the model under test, and the engine that its ratios refer to.

    model: the variable model; a dense engine runs a dense model of its size. about: further entries of the document.
    """

    engine: Engine
    model: BenchModel
    baseline: str
    about: Mapping[str, Any] = field(default_factory=dict)


def measure(
    entrants: Sequence[Entrant],
    streams: NDArray[np.int64],
    settings: interleave.Settings,
    tell: Callable[[str], None] = silent,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Measure the entrants; returns the figures of those that could run, and why the others could not.

    Engines need unique names, and different files if their models differ; streams [length, B].
    """
    left_out = {each.engine.name: why for each in entrants if (why := known.absence(each.engine))}
    taking_part = [each for each in entrants if each.engine.name not in left_out]
    with _folder() as folder:
        tell("writing models")
        for name, each in {each.engine.file: each for each in taking_part}.items():
            _write(each, folder / name, settings.seed)
        np.save(folder / "streams.npy", streams)
        records, absent = interleave.measure([each.engine for each in taking_part], folder, settings, tell)
    left_out |= absent
    for each in taking_part:
        if each.engine.name not in left_out and each.baseline in left_out:
            raise VcdeployError(f"the baseline {each.baseline} can't run: {left_out[each.baseline]}")
    against = {each.engine.name: each.baseline for each in entrants}
    about = {each.engine.name: dict(each.about) for each in entrants}
    figures = report.engines(records, against, streams.shape[1])
    return [{**each, **about[each["name"]]} for each in figures], left_out


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vcdeploy-bench-") as temporary:
        yield Path(temporary)


def _write(entrant: Entrant, path: Path, seed: int) -> None:
    """Write the file of an engine; native engines pack their weights from float32."""
    engine = entrant.engine
    chosen = entrant.model if engine.variable else entrant.model.dense(engine.unit, seed)
    narrow = engine.variable and engine.runtime != "native"
    chosen.write(path, engine.form == known.BUCKETED, engine.precision if narrow else "f32")


def bench(
    model: str | None = None,
    *,
    unit: str = UNIT,
    dim: int = DIM,
    m_range: tuple[float, float] = M_RANGE,
    text: Path | None = None,
    scenarios: Sequence[str] = tuple(SCENARIOS),
    steps: int = 100,
    batch: int = 1,
    engines: Sequence[str] = (),
    precisions: Sequence[str] = tuple(PRECISIONS),
    baseline: str | None = None,
    threads: int = 1,
    device: str = known.CPU,
    quick: bool = False,
    rounds: int | None = None,
    seed: int = 0,
    command: str = "",
    tell: Callable[[str], None] = silent,
) -> dict[str, Any]:
    """The document of `vcdeploy bench`: a trained or synthetic model (unit, dim, m_range) and dense ones.

    engines: names or prefixes of names; all of them if empty. command: stored in the document.
    """
    on_gpu = device == known.CUDA
    at_hand = models.trained(model) if model is not None else models.synthetic(unit, dim, *m_range, seed)
    all_of = known.gpu_engines if on_gpu else known.engines
    everyone = all_of(at_hand.config["unit"])
    chosen = known.choose(all_of(at_hand.config["unit"], precisions), engines)
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
    length = max(models.STREAM, steps)
    if text is not None:
        streams = models.text_of(text, at_hand.vocab, batch, length)
    elif model is not None:
        streams = models.own_text(model, batch, length, seed)
    else:
        streams = models.random_streams(len(at_hand.vocab), batch, length, seed)
    figures, left_out = measure(entrants, streams, settings, tell)
    if on_gpu:
        about_machine["gpu"]["clocks_after"] = machine.clocks()
    report.mark_reproducible(figures, threads, about_machine["cores"])
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
            "m_range": None if model else list(m_range),
            "text": str(text) if text else "the model's own" if model else "random symbols",
            "device": device, "scenarios": list(scenarios),
            "steps": steps, "batch": batch, "threads": threads, "rounds": settings.rounds,
            "chunk_seconds": settings.seconds, "seed": seed,
        },
        "baseline": against,
        "engines": figures,
        "left_out": left_out,
    }  # fmt: skip


def _baseline(everyone: Sequence[Engine], wanted: str | None, left_out: Mapping[str, str]) -> str:
    """The engine that ratios refer to: the wanted one, or the first available dense one of the same kind."""
    names = [each.name for each in everyone]
    if wanted is not None:
        if wanted not in names:
            raise BadValue(f"no engine {wanted!r} for --baseline; there are: {', '.join(names)}")
        if wanted in left_out:
            raise VcdeployError(f"the baseline {wanted} can't run: {left_out[wanted]}")
        return wanted
    kind = UNITS[everyone[0].unit].dense[0]
    dense = [each.name for each in everyone if each.unit == kind]
    for name in dense:
        if name not in left_out:
            return name
    raise VcdeployError("no baseline can run: " + "; ".join(f"{name}: {left_out[name]}" for name in dense))


def need_gpu() -> None:
    """Raise an error that says what is missing if there is no usable GPU."""
    from vcdeploy import extras
    from vcdeploy.gpu import cuda

    if (fault := cuda.fault()) is not None:
        raise NoGpu(
            f"--device cuda needs {extras.install_command('tensorrt')} and a GPU that CUDA can use; here: {fault}"
        )
