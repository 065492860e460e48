"""Turn the times of a run into a document, and the document into tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from vcdeploy.bench import machine
from vcdeploy.bench.interleave import Chunk, Record
from vcdeploy.bench.scenarios import COLD, SCENARIOS
from vcdeploy.spec import UNITS

MEMORY_BOUND = 0.6  # fraction of the measured bandwidth from which reading the weights takes most of the time
AGAIN = 1.1  # a visit reproduces the fastest one if it takes at most this many times as long
SHARED = 0.5  # fraction of the last-level cache: with a larger working set, speed depends on what else uses it
BUSY = 0.5  # load average before the run
TAIL = 10_000  # calls from which tail latency is reported
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999)
READING, OTHER = "reading weights", "instructions or overhead"


def rounded(value: float) -> float:
    """Round to five digits: the rest is noise."""
    return float(f"{value:.5g}")


def scenario(record: Record, baseline: Record, name: str, batch: int) -> dict[str, Any]:
    """The figures of one engine in one scenario; times in µs/step of the whole batch."""
    chunks = record.chunks[name]
    each = np.concatenate([np.array(chunk.times) / chunk.steps / 1e3 for chunk in chunks])
    rounds = [rounded(_typical(chunk)) for chunk in chunks]
    found: dict[str, Any] = dict(
        zip(("p50", "p90", "p99"), map(rounded, np.percentile(each, [50, 90, 99])), strict=True)
    )
    steps = sum(len(chunk.times) * chunk.steps for chunk in chunks)
    found |= {
        "symbols_per_second": rounded(steps * batch / sum(sum(chunk.times) for chunk in chunks) * 1e9),
        "calls": len(each), "steps": steps, "rounds": rounds,
    }  # fmt: skip
    if len(each) >= TAIL:
        found["tail"] = {
            "quantiles": [[place, rounded(float(np.quantile(each, place)))] for place in QUANTILES],
            "max": rounded(float(each.max())),
        }  # fmt: skip
    if spent := [chunk.joules for chunk in chunks if chunk.joules is not None]:
        found["joules"] = rounded(float(np.median(spent)))
    if chunks[0].device_times is not None:
        device = np.concatenate([np.array(chunk.device_times) / chunk.steps / 1e3 for chunk in chunks])
        percentiles = map(rounded, np.percentile(device, [50, 90, 99]))
        found["device"] = dict(zip(("p50", "p90", "p99"), percentiles, strict=True))
    by_scenario = {other: _ratios(theirs, rounds) for other, theirs in baseline.chunks.items()}
    if name in by_scenario:
        found["ratio"] = rounded(float(np.median(by_scenario[name])))
        found["ratio_p10"], found["ratio_p90"] = map(rounded, np.percentile(by_scenario[name], [10, 90]))
    found["ratio_to"] = {other: rounded(float(np.median(ratios))) for other, ratios in by_scenario.items()}
    summary = record.summary[name]
    found |= {
        "m": {key: rounded(value) for key, value in summary["m"].items()},
        "mean_square": rounded(summary["mean_square"]),
        "bytes_per_step": round(summary["bytes"]),
        "working_set": summary["working_set"],
        "settled": summary["settled"],
    }
    return found | bound(found["bytes_per_step"], found["p50"], [chunk.bandwidth for chunk in chunks])


def mark_reproducible(engines: Sequence[dict[str, Any]], threads: int, cores: int) -> None:
    """Set `reproducible` of each figure: whether a rerun on this machine should give the same ratio.

    A ratio is not reproducible if one of the two engines reads more than half of the last-level cache, or everything
    from memory, since its speed depends on what else shares them; if the threads leave no core to the rest of the
    system; for single steps of PyTorch, which are mostly overhead that differs from process to process; or if only one
    of several visits reached the figure. A baseline's own ratio is always 1.
    """
    by_name = {each["name"]: each for each in engines}
    room = SHARED * machine.largest_cache()
    for each in engines:
        for name, found in each["scenarios"].items():
            theirs = by_name[each["baseline"]]["scenarios"].get(name, found)
            small = max(found["working_set"], theirs["working_set"]) <= room
            overhead = each["runtime"] == "torch" and name != "sequence"
            itself = each["name"] == each["baseline"]
            quiet = small and name != COLD and threads < cores and not overhead
            found["reproducible"] = itself or (quiet and _found_again(found) and _found_again(theirs))


def _found_again(found: dict[str, Any]) -> bool:
    """Whether a second visit came close to the fastest round of all visits; true for a single visit."""
    fastest = sorted(found.get("visits", []))
    return len(fastest) < 2 or fastest[1] <= AGAIN * fastest[0]


def mark_fastest(engines: Sequence[dict[str, Any]]) -> None:
    """Set `fastest` of each figure, the fastest round as the time of an undisturbed step, and `fastest_ratio`.

    Other work on the same core or memory, above all in virtual machines, makes rounds slower, for a moment or for a
    minute, and never faster. How many rounds it affects is chance; ratios of the fastest rounds are reproducible.
    """
    by_name = {each["name"]: each for each in engines}
    for each in engines:
        for name, found in each["scenarios"].items():
            found["fastest"] = min(found["rounds"])
            if theirs := by_name[each["baseline"]]["scenarios"].get(name):
                found["fastest_ratio"] = rounded(min(theirs["rounds"]) / found["fastest"])


def _typical(chunk: Chunk) -> float:
    """The median of a chunk, in µs/step."""
    return float(np.median(chunk.times)) / chunk.steps / 1e3


def _ratios(baseline: Sequence[Chunk], rounds: Sequence[float]) -> list[float]:
    """The speedup vs the baseline, round by round."""
    return [rounded(_typical(chunk)) / own for chunk, own in zip(baseline, rounds, strict=True)]


def bound(bytes_per_step: float, microseconds: float, bandwidths: Sequence[float | None]) -> dict[str, Any]:
    """Bytes/s, the bandwidth of this machine in the same rounds, and what bounds the step."""
    read = bytes_per_step / microseconds * 1e6
    known = [each for each in bandwidths if each is not None]
    if not known:
        return {"bytes_per_second": rounded(read), "bandwidth": None, "bandwidth_fraction": None, "bound": None}
    bandwidth = float(np.median(known))
    fraction = read / bandwidth
    return {
        "bytes_per_second": rounded(read),
        "bandwidth": rounded(bandwidth),
        "bandwidth_fraction": rounded(fraction),
        "bound": READING if fraction >= MEMORY_BOUND else OTHER,
    }


def engines(records: Sequence[Record], baselines: Mapping[str, str], batch: int) -> list[dict[str, Any]]:
    """The document's list of engines, with all their figures; baselines: the baseline of each engine."""
    by_name = {each.engine.name: each for each in records}
    found: list[dict[str, Any]] = [
        {
            "name": record.engine.name,
            "runtime": record.engine.runtime,
            "runs": record.runs,
            "unit": record.engine.unit,
            "precision": record.engine.precision,
            "table": record.engine.table,
            "baseline": baselines[record.engine.name],
            "scenarios": {
                name: scenario(record, by_name[baselines[record.engine.name]], name, 1 if name == "generate" else batch)
                for name in record.chunks
            },
            "not_measured": record.refused,
        }
        for record in records
    ]
    mark_fastest(found)
    return found


def tables(document: dict[str, Any]) -> list[Table]:
    """One table per scenario."""
    return [_table(document, name) for name in document["settings"]["scenarios"]]


def _table(document: dict[str, Any], name: str) -> Table:
    settings = document["settings"]
    batch = 1 if name == "generate" else settings["batch"]
    size = {"step": ", T = 1", "sequence": f", T = {settings['steps']}", "generate": ""}[name]
    title = f"{name}: {SCENARIOS[name]}{size}, B = {batch}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    both = name == "step" and "sequence" in settings["scenarios"]  # a sequence is the stronger baseline
    times = ["speedup", f"vs T = {settings['steps']}"] if both else ["speedup"]
    on_gpu = ["GPU µs"] if settings["device"] == "cuda" else []  # by its own clock
    for header in (
        "p50 µs",
        "p90",
        "p99",
        *on_gpu,
        "calls",
        "tokens/s",
        *times,
        "m",
        "a²/D²",
        "MB/step",
        "GB/s",
        "of",
    ):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    for engine in document["engines"]:
        found = engine["scenarios"].get(name)
        if found is None:
            table.add_row(engine["name"], *["–"] * (len(times) + len(on_gpu) + 10), "not measured")
            continue
        ratios = found["ratio_to"]
        spread = f" ± {found['m']['spread']:.2f}" if UNITS[engine["unit"]].variable else ""
        table.add_row(
            engine["name"],
            *(f"{found[key]:.1f}" for key in ("p50", "p90", "p99")),
            *(f"{found['device']['p50']:.1f}" for _ in on_gpu),
            f"{found['calls']:,}",
            f"{found['symbols_per_second']:,.0f}",
            *(f"{ratios[key]:.2f}" if key in ratios else "–" for key in (name, "sequence")[: len(times)]),
            f"{found['m']['mean']:.2f}{spread}",
            f"{found['mean_square']:.3f}",
            f"{found['bytes_per_step'] / 1e6:.3g}",
            f"{found['bytes_per_second'] / 1e9:.1f}",
            "–" if found["bandwidth"] is None else f"{found['bandwidth'] / 1e9:.1f}",
            found["bound"] or "unknown",
        )
    return table


def show(document: dict[str, Any], console: Console) -> None:
    """Print what was measured, one table per scenario, and what could not be measured."""
    model, settings, ran_on = document["model"], document["settings"], document["machine"]
    layers = f", {model['layers']} layers" if model["layers"] > 1 else ""
    console.print(
        f"{model['unit']}-{model['dim']}{layers}, {model['vocab']} symbols, {model['source']}; text: {settings['text']}"
    )
    caches = ", ".join(f"{name} {size}" for name, size in ran_on["caches"].items())
    console.print(f"{ran_on['processor']}, {ran_on['cores']} cores, {caches}; load before the run {ran_on['load']}")
    console.print(
        f"rounds: {settings['rounds']}, threads: {settings['threads']}; "
        f"speedup: vs {document['baseline']} in the same round"
    )
    if "gpu" in ran_on:
        _show_gpu(console, ran_on["gpu"], document["engines"])
    if ran_on["load"] and ran_on["load"] > BUSY:
        console.print("other programs were running before the run: the figures are noisier, above all p90 and p99")
    for table in tables(document):
        console.print()
        console.print(table)
    console.print()
    for engine in document["engines"]:
        for scenario, reason in engine["not_measured"].items():
            console.print(f"{engine['name']}: {scenario} not measured: {reason}")
    for name, reason in document["left_out"].items():
        console.print(f"left out: {name}: {reason}", markup=False)


def _show_gpu(console: Console, gpu: dict[str, Any], engines: list[dict[str, Any]]) -> None:
    console.print(
        f"{gpu['name']}, compute capability {gpu['capability']}, {gpu['multiprocessors']} multiprocessors, L2 "
        f"{gpu['l2'] / 2**20:.0f} MB, memory {gpu['bandwidth'] / 1e9:.0f} GB/s by its data sheet; CUDA {gpu['runtime']}"
    )
    before, after = gpu["clocks"], gpu["clocks_after"]
    if before and after:
        console.print(
            f"multiprocessor clock {before['clocks.sm']} MHz before the run, {after['clocks.sm']} after, at most "
            f"{before['clocks.max.sm']}; lock it for reproducible figures: sudo nvidia-smi -lgc "
            f"{before['clocks.max.sm']}"
        )
    else:
        console.print("the GPU's clocks are unknown: nvidia-smi was not found")
    for each in engines:
        for name, found in each["scenarios"].items():
            if not found["settled"]:
                console.print(f"{each['name']}: {name} was not stable after warming up: its figures are noisy")
