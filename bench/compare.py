"""Two documents of `vcdeploy bench`, an old and a new one: which ratios to the dense baseline have changed.

Times change with the machine's mood from day to day; ratios within one interleaved run hardly do. So only these are
compared, for every contender that both documents measured in the same circumstances.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from vcdeploy.bench import full
from vcdeploy.errors import VcdeployError

THRESHOLD = 0.10
SAME_MACHINE = ("processor", "system", "cores", "caches")


class Place(NamedTuple):
    """A contender and its circumstances. part: of a full report, else empty."""

    part: str
    model: str
    share: str
    batch: int
    threads: int
    steps: int
    scenario: str
    contender: str
    baseline: str


class Change(NamedTuple):
    """The ratios of one place then and now: how many times as fast as the baseline.

    firm: whether both documents expect another run to find the same (vcdeploy.bench.report.tell_firm).
    """

    place: Place
    old: float
    new: float
    firm: bool

    @property
    def times(self) -> float:
        """Above 1: slower than before, against the same baseline."""
        return self.old / self.new


@dataclass(frozen=True)
class Comparison:
    """remarks: what differs between the two beside the figures."""

    changes: list[Change]
    threshold: float
    remarks: list[str] = field(default_factory=list)

    @property
    def firm(self) -> list[Change]:
        return [each for each in self.changes if each.firm]

    @property
    def regressions(self) -> list[Change]:
        return [each for each in self.firm if each.times > 1 + self.threshold]

    @property
    def improvements(self) -> list[Change]:
        return [each for each in self.firm if each.times < 1 / (1 + self.threshold)]

    @property
    def widest(self) -> float:
        """The largest firm change in either direction, as a factor above 1."""
        return max((max(each.times, 1 / each.times) for each in self.firm), default=1.0)


def read(file: Path) -> dict[str, Any]:
    """A document of `vcdeploy bench`, --quick or --full."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise VcdeployError(f"cannot read {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise VcdeployError(f"{file} is no JSON ({error}): give what `vcdeploy bench --json FILE` wrote") from error
    if not isinstance(document, dict) or not ("parts" in document or "contenders" in document):
        raise VcdeployError(f"{file} is no document of `vcdeploy bench`: give what --json or --full wrote")
    return document


def compare(old: dict[str, Any], new: dict[str, Any], threshold: float = THRESHOLD) -> Comparison:
    """Everything that is in both. A full report and a plain one meet in what was measured alike."""
    then, now = dict(ratios(old)), dict(ratios(new))
    if old.get("kind") != new.get("kind"):
        then, now = _without_parts(then), _without_parts(now)
    common = [
        Change(place, then[place][0], ratio, firm and then[place][1])
        for place, (ratio, firm) in now.items()
        if place in then
    ]
    if not common:
        raise VcdeployError(
            "the two documents have nothing in common: the same model or --unit, --dim and --share, --batch, "
            "--threads, --steps, scenarios and contenders must be in both"
        )
    return Comparison(common, threshold, list(_remarks(old, new)))


def ratios(document: dict[str, Any]) -> Iterator[tuple[Place, tuple[float, bool]]]:
    """Every ratio of a document to a dense baseline, but those of the baselines themselves, and whether it is firm."""
    for part in document["parts"] if document.get("kind") == full.KIND else [document]:
        settings, name = part["settings"], part.get("part", "")
        by_name = {each["name"]: each for each in part["contenders"]}
        for each in part["contenders"]:
            against = each.get("baseline", part.get("baseline"))
            if each["name"] == against:
                continue
            for scenario, found in each["scenarios"].items():
                ratio = found.get("calm_ratio", found.get("ratio"))  # an older document has the second alone
                if ratio is not None:
                    place = _place(part, name, settings, scenario, each, by_name[against])
                    yield place, (ratio, found.get("firm", True))


def _place(
    part: dict[str, Any],
    name: str,
    settings: dict[str, Any],
    scenario: str,
    contender: dict[str, Any],
    baseline: dict[str, Any],
) -> Place:
    model, share = part.get("model"), contender.get("share", settings.get("share"))
    if model is None:
        source = f"{contender['beside']}-{contender['dim']}"
    else:
        made_up = model["source"] == "random weights"
        source = f"{model['unit']}-{model['dim']}" if made_up else model["source"]
    variable = contender["unit"].startswith("vc")
    return Place(
        name, source, "–".join(f"{each:g}" for each in dict.fromkeys(share)) if share and variable else "",
        1 if scenario == "generate" else settings["batch"], settings["threads"],
        settings["steps"] if scenario == "sequence" else 1, scenario, contender.get("label", contender["name"]),
        baseline.get("label", baseline["name"]),
    )  # fmt: skip


def _without_parts(found: dict[Place, tuple[float, bool]]) -> dict[Place, tuple[float, bool]]:
    """Each place once: of several parts that have it, the first counts."""
    plain: dict[Place, tuple[float, bool]] = {}
    for place, ratio in found.items():
        plain.setdefault(place._replace(part=""), ratio)
    return plain


def _remarks(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for name in SAME_MACHINE:
        then, now = old["machine"].get(name), new["machine"].get(name)
        if then != now:
            yield f"another machine: {name} {_said(then)} then, {_said(now)} now; ratios depend on it"
    for name in {**old["versions"], **new["versions"]}:
        then, now = old["versions"].get(name), new["versions"].get(name)
        if then != now and name != "vcdeploy":
            yield f"{name} {then or 'not installed'} then, {now or 'not installed'} now"


def _said(value: Any) -> str:
    return ", ".join(f"{name} {size}" for name, size in value.items()) if isinstance(value, dict) else str(value)
