"""The full report: its parts are measured in turn, each visit stored in a file, so that a stopped run can continue.

All parts are measured once, then all again: a disturbance of a minute affects one visit of a part and not the others.
Each visit starts new processes, since the speed of a process depends on where its memory happens to lie.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from vcdeploy.bench import design, energy, interleave, machine, models, report
from vcdeploy.bench.defaults import REPORT_DIM, REPORT_ROUNDS
from vcdeploy.bench.design import Part
from vcdeploy.bench.run import Entrant, measure, silent
from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.files import write_atomically
from vcdeploy.versions import versions

VISITS, SECONDS, TAIL = 3, 0.006, 100_000
# The figures of an engine that the report keeps.
KEPT = ("fastest", "fastest_ratio", "reproducible", "visits", "p50", "p90", "p99", "symbols_per_second", "calls",
        "steps", "m", "mean_square", "bytes_per_step", "working_set", "tail", "joules")  # fmt: skip
KIND = "full"  # distinguishes the JSON of a full report from that of a plain run


def run(
    folder: Path,
    *,
    dim: int = REPORT_DIM,
    rounds: int = REPORT_ROUNDS,
    seed: int = 0,
    tail: int = TAIL,
    only: Sequence[str] = (),
    command: str = "",
    tell: Callable[[str], None] = silent,
) -> dict[str, Any]:
    """Measure the parts and return the document of `vcdeploy bench report`; stored visits are not measured again.

    dim: the largest D. rounds: per visit. tail: steps per engine of the tail part. only: names of parts; the document
    has these and all parts measured before. Settings, machine and versions must match those the folder was started
    with.
    """
    cores = os.cpu_count() if not hasattr(os, "sched_getaffinity") else len(os.sched_getaffinity(0))
    parts = design.parts(dim, cores or 1, tail)
    for name in only:
        if name not in [each.name for each in parts]:
            raise BadValue(f"no part {name!r}; there are: {', '.join(each.name for each in parts)}")
    settings = {"dim": dim, "rounds": rounds, "visits": VISITS, "chunk_seconds": SECONDS, "seed": seed, "tail": tail}
    begun = _begin(folder, settings, command)
    wanted = [(number, each) for number in range(VISITS) for each in parts if not only or each.name in only]
    wanted = [(number, each) for number, each in wanted if number < _visits(each)]
    made: dict[tuple[str, int, design.Range], models.BenchModel] = {}
    for place, (number, part) in enumerate(wanted):
        file = _file(folder, part, number)
        if file.exists():
            continue

        def told(line: str, before: str = f"{place + 1} of {len(wanted)}, {part.name}: ") -> None:
            tell(before + line)

        measured = _measure(part, rounds, seed, made, told)
        write_atomically(file, (json.dumps(measured, indent=1, ensure_ascii=False) + "\n").encode())
    files = {each.name: [_file(folder, each, number) for number in range(_visits(each))] for each in parts}
    missing = [name for name, visits in files.items() if not all(file.exists() for file in visits)]
    cores_then = begun["machine"]["cores"]
    found = [
        _brief(_together([_read(file) for file in visits]), cores_then)
        for name, visits in files.items()
        if name not in missing
    ]
    return {**begun, "energy": energy.fault(), "parts": found, "missing": missing}


def done(folder: Path) -> int:
    """The number of visits stored in a folder."""
    return len(list((folder / "parts").glob("*.json")))


def _visits(part: Part) -> int:
    """How often a part is measured, with all other parts in between; the tail part is one long run."""
    return VISITS if part.rounds is None else 1


def _file(folder: Path, part: Part, number: int) -> Path:
    return folder / "parts" / f"{part.name}-{number + 1}.json"


def _begin(folder: Path, settings: dict[str, Any], command: str) -> dict[str, Any]:
    """What the folder was started with: written the first time, then required to stay the same."""
    file = folder / "settings.json"
    now = {
        "kind": KIND,
        "command": command,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "versions": versions(machine.PACKAGES),
        "settings": settings,
    }
    if not file.exists():
        if folder.exists() and any(folder.iterdir()):
            raise VcdeployError(f"{folder} holds other files and no report to continue: pass another -o")
        write_atomically(file, (json.dumps(now, indent=1, ensure_ascii=False) + "\n").encode())
        return now
    before = _read(file)
    for name, then, here in _differences(before, now):
        raise VcdeployError(
            f"{folder} was started with {name} {then}, and now it is {here}: all parts of a report must have the same. "
            f"Continue with the original settings (`{before['command']}`), or pass another -o"
        )
    return before


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """(name, old value, new value) of everything that must be the same within a report and is not."""
    found = []
    for name in {**before["settings"], **now["settings"]}:
        found.append((name, before["settings"].get(name), now["settings"].get(name)))
    for name in ("processor", "cores", "instruction_sets"):
        found.append((f"the machine's {name}", before["machine"].get(name), now["machine"].get(name)))
    for name in {**before["versions"], **now["versions"]}:
        found.append((name, before["versions"].get(name), now["versions"].get(name)))
    return [each for each in found if each[1] != each[2]]


def _read(file: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise VcdeployError(f"{file} can't be read ({error}): remove it to measure it again") from error
    return document


def _measure(
    part: Part,
    rounds: int,
    seed: int,
    made: dict[tuple[str, int, design.Range], models.BenchModel],
    tell: Callable[[str], None],
) -> dict[str, Any]:
    entrants = []
    for each in part.entries:
        at = (each.unit, each.dim, each.m_range)
        if at not in made:
            made[at] = models.synthetic(each.unit, each.dim, *each.m_range, seed)
        about = {"label": each.label, "beside": each.unit, "dim": each.dim,
                 "m_range": list(each.m_range) if each.engine.variable else None}  # fmt: skip
        entrants.append(Entrant(each.engine, made[at], each.baseline, about))
    cores = sorted(os.sched_getaffinity(0))[-part.threads :] if hasattr(os, "sched_getaffinity") else None
    settings = interleave.Settings(
        part.scenarios,
        part.threads,
        design.STEPS,
        part.rounds or rounds,
        SECONDS,
        seed,
        part.calls,
        cores,
        0,
    )
    streams = models.random_streams(len(models.SYMBOLS), part.batch, models.STREAM, seed)
    load, date, began = machine.describe()["load"], datetime.now(timezone.utc), monotonic()
    figures, left_out = measure(entrants, streams, settings, tell)
    return {
        "part": part.name,
        "title": part.title,
        "varies": part.varies,
        "date": date.isoformat(timespec="seconds"),
        "seconds": round(monotonic() - began, 1),
        "load": load,
        "settings": {
            "scenarios": list(part.scenarios), "steps": design.STEPS, "batch": part.batch, "threads": part.threads,
            "rounds": settings.rounds, "calls": part.calls,
        },
        "engines": figures,
        "left_out": left_out,
    }  # fmt: skip


def _together(visits: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the visits of a part: the rounds of all, sums of counts, medians of other figures."""
    whole = visits[0]
    whole["seconds"] = round(sum(each["seconds"] for each in visits), 1)
    whole["load"] = max((each["load"] for each in visits if each["load"] is not None), default=None)
    whole["settings"]["visits"] = len(visits)
    by_name = [{engine["name"]: engine for engine in each["engines"]} for each in visits]
    whole["engines"] = [each for each in whole["engines"] if all(each["name"] in others for others in by_name)]
    for each in visits[1:]:
        whole["left_out"] |= each["left_out"]
    for engine in whole["engines"]:
        for name, found in engine["scenarios"].items():
            alike = [others[engine["name"]]["scenarios"][name] for others in by_name]
            found["rounds"] = [took for each in alike for took in each["rounds"]]
            found["visits"] = [min(each["rounds"]) for each in alike]
            found |= {key: sum(each[key] for each in alike) for key in ("calls", "steps")}
            for key in ("p50", "p90", "p99", "symbols_per_second", "joules"):
                if key in found:
                    found[key] = report.rounded(median(each[key] for each in alike))
    report.mark_fastest(whole["engines"])
    return whole


def _brief(part: dict[str, Any], cores: int) -> dict[str, Any]:
    """Reduce a part to the figures of the report; its own file also has single rounds and all ratios."""
    report.mark_reproducible(part["engines"], part["settings"]["threads"], cores)
    for engine in part["engines"]:
        scenarios = engine["scenarios"]
        for name, found in scenarios.items():
            scenarios[name] = {key: found[key] for key in KEPT if key in found}
    return part
