"""From the times of a run to one document, and from the document to tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from vcdeploy.bench import machine
from vcdeploy.bench.interleave import Chunk, Record
from vcdeploy.bench.scenarios import COLD, SCENARIOS

MEMORY_BOUND = 0.6  # of the bandwidth measured beside it: from here on reading the weights is most of the time
AGAIN = 1.1  # times the fastest of one visit: within this another has found it again
SHARED = 0.5  # of the last cache: who reads more depends on those who share it
TAIL = 10_000  # calls from which on the rare slow ones are told
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999)
READING, OTHER = "reading weights", "instructions or overhead"


def rounded(value: float) -> float:
    """To five digits: what lies beyond them is noise."""
    return float(f"{value:.5g}")


def scenario(record: Record, baseline: Record, name: str, batch: int) -> dict[str, Any]:
    """The figures of one contender in one scenario; times in microseconds a step of the whole batch."""
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


def tell_firm(contenders: Sequence[dict[str, Any]], threads: int, cores: int) -> None:
    """Put `firm` to each figure: whether another run on this machine should find the same ratio.

    It need not where one of the two reads more than half of the last cache, or everything from memory: others who
    share those decide how fast that is. Nor where the threads leave no core to the rest of the system. Nor in single
    steps of PyTorch: they are mostly its own overhead, which differs from process to process. Nor where of several
    visits only one has found a figure. A baseline's own ratio is always 1.
    """
    by_name = {each["name"]: each for each in contenders}
    room = SHARED * machine.largest_cache()
    for each in contenders:
        for name, found in each["scenarios"].items():
            theirs = by_name[each["baseline"]]["scenarios"].get(name, found)
            small = max(found["working_set"], theirs["working_set"]) <= room
            overhead = each["engine"] == "torch" and name != "sequence"
            itself = each["name"] == each["baseline"]
            quiet = small and name != COLD and threads < cores and not overhead
            found["firm"] = itself or (quiet and _found_again(found) and _found_again(theirs))


def _found_again(found: dict[str, Any]) -> bool:
    """Whether the fastest round of all visits has its like in a second one; true of a single visit."""
    fastest = sorted(found.get("visits", []))
    return len(fastest) < 2 or fastest[1] <= AGAIN * fastest[0]


def tell_calm(contenders: Sequence[dict[str, Any]]) -> None:
    """Put `calm` to each figure, what a step takes where nothing disturbs it: the fastest round; and its ratio.

    What shares a core or its memory, in virtual machines above all, makes rounds slower, for a moment or for a minute,
    and never faster. How many of them is chance; a ratio that another run finds again is made of the fastest.
    """
    by_name = {each["name"]: each for each in contenders}
    for each in contenders:
        for name, found in each["scenarios"].items():
            found["calm"] = min(found["rounds"])
            if theirs := by_name[each["baseline"]]["scenarios"].get(name):
                found["calm_ratio"] = rounded(min(theirs["rounds"]) / found["calm"])


def _typical(chunk: Chunk) -> float:
    """The median of a chunk, in microseconds a step."""
    return float(np.median(chunk.times)) / chunk.steps / 1e3


def _ratios(baseline: Sequence[Chunk], rounds: Sequence[float]) -> list[float]:
    """How many times as fast as the baseline, round by round."""
    return [rounded(_typical(chunk)) / own for chunk, own in zip(baseline, rounds, strict=True)]


def bound(bytes_per_step: float, microseconds: float, bandwidths: Sequence[float | None]) -> dict[str, Any]:
    """Bytes a second against what this machine reads in the same rounds, and a word on what bounds the step."""
    read = bytes_per_step / microseconds * 1e6
    known = [each for each in bandwidths if each is not None]
    if not known:
        return {"bytes_per_second": rounded(read), "bandwidth": None, "bandwidth_share": None, "bound": None}
    bandwidth = float(np.median(known))
    share = read / bandwidth
    return {
        "bytes_per_second": rounded(read),
        "bandwidth": rounded(bandwidth),
        "bandwidth_share": rounded(share),
        "bound": READING if share >= MEMORY_BOUND else OTHER,
    }


def contenders(records: Sequence[Record], baselines: Mapping[str, str], batch: int) -> list[dict[str, Any]]:
    """The document's list of contenders, with all their figures; baselines: whose ratios refer to whom."""
    by_name = {each.contender.name: each for each in records}
    found: list[dict[str, Any]] = [
        {
            "name": record.contender.name,
            "engine": record.contender.engine,
            "runs": record.runs,
            "unit": record.contender.unit,
            "precision": record.contender.precision,
            "table": record.contender.table,
            "baseline": baselines[record.contender.name],
            "scenarios": {
                name: scenario(
                    record, by_name[baselines[record.contender.name]], name, 1 if name == "generate" else batch
                )
                for name in record.chunks
            },
            "not_measured": record.refused,
        }
        for record in records
    ]
    tell_calm(found)
    return found


def tables(document: dict[str, Any]) -> list[Table]:
    """A table a scenario."""
    return [_table(document, name) for name in document["settings"]["scenarios"]]


def _table(document: dict[str, Any], name: str) -> Table:
    settings = document["settings"]
    batch = 1 if name == "generate" else settings["batch"]
    size = {"step": ", T = 1", "sequence": f", T = {settings['steps']}", "generate": ""}[name]
    title = f"{name}: {SCENARIOS[name]}{size}, B = {batch}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    both = name == "step" and "sequence" in settings["scenarios"]  # a sequence is the stronger baseline
    times = ["times", f"its T = {settings['steps']}"] if both else ["times"]
    on_gpu = ["GPU µs"] if settings["device"] == "cuda" else []  # by its own clock
    for header in (
        "p50 µs",
        "p90",
        "p99",
        *on_gpu,
        "calls",
        "symbols/s",
        *times,
        "m",
        "a²/D²",
        "MB a step",
        "GB/s",
        "of",
    ):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    for contender in document["contenders"]:
        found = contender["scenarios"].get(name)
        if found is None:
            table.add_row(contender["name"], *["–"] * (len(times) + len(on_gpu) + 10), "not measured")
            continue
        ratios = found["ratio_to"]
        spread = f" ± {found['m']['spread']:.2f}" if contender["unit"].startswith("vc") else ""
        table.add_row(
            contender["name"],
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
