"""Energy: what the processor's own counters say, where Linux shows them (RAPL, /sys/class/powercap)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

POWERCAP = Path("/sys/class/powercap")


class Counter(NamedTuple):
    """Microjoules so far, and the number after which it starts again at 0."""

    microjoules: int
    range: int


def joules(powercap: Path = POWERCAP) -> dict[str, Counter]:
    """The counters of the processor's packages, by folder; none where there are none, or where only root may read."""
    found = {}
    for folder in sorted(powercap.glob("*-rapl:*")):
        if folder.name.count(":") > 1:  # a part of a package, counted there
            continue
        try:
            values = [int((folder / name).read_text()) for name in ("energy_uj", "max_energy_range_uj")]
        except (OSError, ValueError):
            continue
        found[folder.name] = Counter(*values)
    return found


def between(before: Mapping[str, Counter], after: Mapping[str, Counter]) -> float | None:
    """Joules of all packages from one reading to the next; None where nothing counts."""
    if not before or before.keys() != after.keys():
        return None
    return sum((after[name].microjoules - before[name].microjoules) % after[name].range for name in after) / 1e6


def fault(powercap: Path = POWERCAP) -> str | None:
    """Why there are no figures; None where there are."""
    if joules(powercap):
        return None
    if any(powercap.glob("*-rapl:*")):
        return f"the counters under {powercap} are for root alone"
    return f"this machine shows no counters (no RAPL under {powercap}); few virtual machines do"
