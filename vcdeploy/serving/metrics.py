"""Figures of a running server, in Prometheus' text format."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)  # seconds

Labels = Mapping[str, str]


class Counter:
    """A sum for each set of labels."""

    kind = "counter"

    def __init__(self) -> None:
        self._values: dict[tuple[tuple[str, str], ...], float] = {}
        self._lock = threading.Lock()

    def add(self, amount: float = 1, **labels: str) -> None:
        key = tuple(labels.items())
        with self._lock:
            self._values[key] = self._values.get(key, 0) + amount

    def lines(self, name: str) -> Iterable[str]:
        with self._lock:
            values = dict(self._values)
        return [line(name, dict(labels), value) for labels, value in values.items()]


class Histogram:
    """Durations in buckets, for each set of labels."""

    kind = "histogram"

    def __init__(self) -> None:
        self._counts: dict[tuple[tuple[str, str], ...], list[int]] = {}
        self._sums: dict[tuple[tuple[str, str], ...], float] = {}
        self._lock = threading.Lock()

    def observe(self, seconds: float, **labels: str) -> None:
        key, place = tuple(labels.items()), sum(seconds > bound for bound in BUCKETS)
        with self._lock:
            self._counts.setdefault(key, [0] * (len(BUCKETS) + 1))[place] += 1
            self._sums[key] = self._sums.get(key, 0) + seconds

    def lines(self, name: str) -> Iterable[str]:
        with self._lock:
            counts, sums = {key: list(each) for key, each in self._counts.items()}, dict(self._sums)
        for key, each in counts.items():
            labels, below = dict(key), 0
            for bound, count in zip([*map(str, BUCKETS), "+Inf"], each, strict=True):
                below += count
                yield line(f"{name}_bucket", {**labels, "le": bound}, below)
            yield line(f"{name}_sum", labels, sums[key])
            yield line(f"{name}_count", labels, below)


def line(name: str, labels: Labels, value: float) -> str:
    escaped = (
        (key, each.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for key, each in labels.items()
    )
    inner = ",".join(f'{key}="{each}"' for key, each in escaped)
    return f"{name}{{{inner}}} {value:.10g}" if inner else f"{name} {value:.10g}"


def text(metrics: Iterable[tuple[str, str, str, Iterable[str]]]) -> str:
    """metrics: name, kind, help and lines of each."""
    parts = []
    for name, kind, about, lines in metrics:
        parts += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *lines]
    return "\n".join(parts) + "\n"
