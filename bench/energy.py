"""Energy counters of the processor, where Linux exposes them (RAPL, /sys/class/powercap)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

POWERCAP = Path("/sys/class/powercap")


class Counter(NamedTuple):
    """Microjoules so far, and the value at which the counter wraps around to 0."""

    microjoules: int
    range: int


def joules(powercap: Path = POWERCAP) -> dict[str, Counter]:
    """The counters of the processor's packages, by folder; empty if there are none or only root may read them."""
    found = {}
    for folder in sorted(powercap.glob("*-rapl:*")):
        if folder.name.count(":") > 1:  # a part of a package, which includes it
            continue
        try:
            values = [int((folder / name).read_text()) for name in ("energy_uj", "max_energy_range_uj")]
        except (OSError, ValueError):
            continue
        found[folder.name] = Counter(*values)
    return found


def between(before: Mapping[str, Counter], after: Mapping[str, Counter]) -> float | None:
    """Joules of all packages between two readings; None without counters."""
    if not before or before.keys() != after.keys():
        return None
    return sum((after[name].microjoules - before[name].microjoules) % after[name].range for name in after) / 1e6


def fault(powercap: Path = POWERCAP) -> str | None:
    """Why energy can't be measured; None if it can."""
    if joules(powercap):
        return None
    if any(powercap.glob("*-rapl:*")):
        return f"only root may read the counters under {powercap}"
    return f"this machine has no energy counters (no RAPL under {powercap}); few virtual machines have any"
