"""Compare two documents of `vcdeploy bench`: which speedups vs the dense baseline have changed.

Absolute times vary from day to day on the same machine; ratios within one interleaved run hardly do. So only ratios are
compared, for every engine that both documents measured with the same settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from vcdeploy.bench import full
from vcdeploy.errors import VcdeployError
from vcdeploy.spec import UNITS

THRESHOLD = 0.10
SAME_MACHINE = ("processor", "system", "cores", "caches")


class Place(NamedTuple):
    """An engine and the settings it was measured with. part: of a full report, else empty."""

    part: str
    model: str
    m_range: str
    batch: int
    threads: int
    steps: int
    scenario: str
    engine: str
    baseline: str


class Change(NamedTuple):
    """The speedup of one engine vs its baseline in the old and the new document.

    reproducible: whether both documents mark the ratio as reproducible (vcdeploy.bench.report.mark_reproducible).
    """

    place: Place
    old: float
    new: float
    reproducible: bool

    @property
    def times(self) -> float:
        """Old speedup divided by new speedup: above 1 is slower than before, vs the same baseline."""
        return self.old / self.new


@dataclass(frozen=True)
class Comparison:
    """The changes between two documents. remarks: differences other than the figures."""

    changes: list[Change]
    threshold: float
    remarks: list[str] = field(default_factory=list)

    @property
    def reproducible(self) -> list[Change]:
        return [each for each in self.changes if each.reproducible]

    @property
    def regressions(self) -> list[Change]:
        return [each for each in self.reproducible if each.times > 1 + self.threshold]

    @property
    def improvements(self) -> list[Change]:
        return [each for each in self.reproducible if each.times < 1 / (1 + self.threshold)]

    @property
    def widest(self) -> float:
        """The largest reproducible change in either direction, as a factor above 1."""
        return max((max(each.times, 1 / each.times) for each in self.reproducible), default=1.0)


def read(file: Path) -> dict[str, Any]:
    """Read a document of `vcdeploy bench run` or `report`."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise VcdeployError(f"cannot read {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise VcdeployError(
            f"{file} is not valid JSON ({error}): pass a file written by `vcdeploy bench --json`"
        ) from error
    if not isinstance(document, dict) or not ("parts" in document or "engines" in document):
        raise VcdeployError(
            f"{file} is not a document of `vcdeploy bench`: pass a file written by --json or `vcdeploy bench report`"
        )
    return document


def compare(old: dict[str, Any], new: dict[str, Any], threshold: float = THRESHOLD) -> Comparison:
    """Compare all ratios found in both documents. A full report and a plain run can be compared as well."""
    then, now = dict(ratios(old)), dict(ratios(new))
    if old.get("kind") != new.get("kind"):
        then, now = _without_parts(then), _without_parts(now)
    common = [
        Change(place, then[place][0], ratio, reproducible and then[place][1])
        for place, (ratio, reproducible) in now.items()
        if place in then
    ]
    if not common:
        raise VcdeployError(
            "the two documents have nothing in common: both need the same model (or --unit, --dim and --m), --batch, "
            "--threads, --steps, scenarios and engines"
        )
    return Comparison(common, threshold, list(_remarks(old, new)))


def ratios(document: dict[str, Any]) -> Iterator[tuple[Place, tuple[float, bool]]]:
    """Yield every ratio to a dense baseline, except the baselines' own, and whether it is reproducible."""
    for part in document["parts"] if document.get("kind") == full.KIND else [document]:
        settings, name = part["settings"], part.get("part", "")
        by_name = {each["name"]: each for each in part["engines"]}
        for each in part["engines"]:
            against = each.get("baseline", part.get("baseline"))
            if each["name"] == against:
                continue
            for scenario, found in each["scenarios"].items():
                ratio = found.get("fastest_ratio", found.get("ratio"))  # older documents have only `ratio`
                if ratio is not None:
                    place = _place(part, name, settings, scenario, each, by_name[against])
                    yield place, (ratio, found.get("reproducible", True))


def _place(
    part: dict[str, Any],
    name: str,
    settings: dict[str, Any],
    scenario: str,
    engine: dict[str, Any],
    baseline: dict[str, Any],
) -> Place:
    model, m_range = part.get("model"), engine.get("m_range", settings.get("m_range"))
    if model is None:
        source = f"{engine['beside']}-{engine['dim']}"
    else:
        synthetic = model["source"] == "random weights"
        source = f"{model['unit']}-{model['dim']}" if synthetic else model["source"]
    variable = UNITS[engine["unit"]].variable
    return Place(
        name, source, "–".join(f"{each:g}" for each in dict.fromkeys(m_range)) if m_range and variable else "",
        1 if scenario == "generate" else settings["batch"], settings["threads"],
        settings["steps"] if scenario == "sequence" else 1, scenario, engine.get("label", engine["name"]),
        baseline.get("label", baseline["name"]),
    )  # fmt: skip


def _without_parts(found: dict[Place, tuple[float, bool]]) -> dict[Place, tuple[float, bool]]:
    """Drop the names of parts; if several parts have the same place, keep the first."""
    plain: dict[Place, tuple[float, bool]] = {}
    for place, ratio in found.items():
        plain.setdefault(place._replace(part=""), ratio)
    return plain


def _remarks(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for name in SAME_MACHINE:
        then, now = old["machine"].get(name), new["machine"].get(name)
        if then != now:
            yield f"different machine: {name} was {_said(then)}, is now {_said(now)}; ratios depend on it"
    for name in {**old["versions"], **new["versions"]}:
        then, now = old["versions"].get(name), new["versions"].get(name)
        if then != now and name != "vcdeploy":
            yield f"{name}: was {then or 'not installed'}, is now {now or 'not installed'}"


def _said(value: Any) -> str:
    return ", ".join(f"{name} {size}" for name, size in value.items()) if isinstance(value, dict) else str(value)


def table(found: Comparison, then: str, now: str) -> Table:
    """One row per ratio found in both runs; then, now: the dates of the two."""
    table = Table(title=f"speedup vs the baseline: {then} and {now}", box=None, pad_edge=False,
                  title_justify="left", title_style="bold", header_style="dim")  # fmt: skip
    for header in ("part", "model", "m", "B", "threads", "", "engine", "baseline"):
        table.add_column(header, no_wrap=True)
    for header in ("old", "new", "old/new"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("")
    for change in found.changes:
        place = change.place
        word = "SLOWER" if change in found.regressions else "faster" if change in found.improvements else ""
        word = word if change.reproducible else "≈"
        table.add_row(place.part, place.model, place.m_range, str(place.batch), str(place.threads), place.scenario,
                      place.engine, place.baseline, f"{change.old:.2f}", f"{change.new:.2f}", f"{change.times:.3f}",
                      word)  # fmt: skip
    return table


def remarks(found: Comparison) -> list[str]:
    """The lines below the table: other differences, and the counts."""
    loose = len(found.changes) - len(found.reproducible)
    lines = list(found.remarks)
    if loose:
        lines.append(f"≈: {loose} ratios that another run may not reproduce; not judged (docs/bench.md)")
    lines.append(
        f"{len(found.reproducible)} reproducible ratios are in both; {len(found.regressions)} slower and "
        f"{len(found.improvements)} faster by more than {100 * found.threshold:g} %; "
        f"the widest change is {100 * (found.widest - 1):.1f} %"
    )
    return lines
