"""The definition of an experiment: rows that are trained alike and compared, at machine or at paper scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vcdeploy.errors import VcdeployError
from vcdeploy.spec import UNITS
from vcdeploy.training.config import TrainConfig

SCALES = ("machine", "paper")

Curve = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Scale:
    """The size of an experiment, the same for all of its rows.

    settings: fields of TrainConfig. characters: how much of the training text is read; held_out: of the validation and
    test texts (for music in symbols); None: all.
    """

    settings: Mapping[str, Any]
    characters: int | None = None
    held_out: int | None = None


@dataclass(frozen=True)
class Row:
    """A model to train.

    settings: fields of TrainConfig specific to this row. times: its dim, as a multiple of the scale's. matches: the row
    whose rnn_d, measured on the validation text, determines the dim of this one instead.
    """

    name: str
    unit: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    times: float = 1.0
    matches: str | None = None
    series: str = ""


@dataclass(frozen=True)
class Cited:
    """A line of the paper's table: the unit as named there, rnn_d, and the score in our terms. beside: our row."""

    unit: str
    rnn_d: int
    score: str
    beside: str | None = None


@dataclass(frozen=True)
class Traced:
    """A figure of m over texts. panels: from top to bottom, a row and the text that its model reads.

    above: also show changes of the dimensions past this fraction of the state. words: mark the peaks inside words.
    """

    name: str
    title: str
    panels: tuple[tuple[str, str], ...]
    above: float | None = None
    words: bool = False


@dataclass(frozen=True)
class Experiment:
    """A table or a figure. about: its question, for the top of its page. settings: of all rows at every scale.

    traced: figures of m over texts. cited: lines of the paper's table; source: where they are in the paper, and how
    they differ from ours. cited_classes: the paper's mean m, by our class names. cited_curves: by corpus and series,
    the points (rnn_d, score) of the paper's figure.
    """

    name: str
    title: str
    about: str
    settings: Mapping[str, Any]
    rows: tuple[Row, ...]
    scales: Mapping[str, Scale]
    score: str = "bits"  # what the report compares: bits, bits_per_character or perplexity
    classes: bool = False  # whether the page also has m by class of symbol
    traced: tuple[Traced, ...] = ()
    cited: tuple[Cited, ...] = ()
    cited_classes: Mapping[str, str] = field(default_factory=dict)
    cited_curves: Mapping[str, Mapping[str, Curve]] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        for row in self.rows:
            if names.count(row.name) > 1:
                raise VcdeployError(f"{self.name}: two rows are called {row.name!r}")
            if row.unit not in UNITS:
                raise VcdeployError(f"{self.name}, {row.name}: no unit {row.unit!r}; there are {', '.join(UNITS)}")
            if row.matches is not None and row.matches not in names[: names.index(row.name)]:
                raise VcdeployError(f"{self.name}, {row.name}: it matches {row.matches!r}, which is not an earlier row")
        beside = [line.beside for line in self.cited if line.beside is not None]
        for name in beside:
            if name not in names or beside.count(name) > 1:
                raise VcdeployError(f"{self.name}: {beside.count(name)} cited lines are beside {name!r}, of which "
                                    f"there are {names.count(name)} rows; there must be one of each")  # fmt: skip
        for figure in self.traced:
            for name, _ in figure.panels:
                if name not in names:
                    raise VcdeployError(f"{self.name}: {figure.name} shows {name!r}, which is not a row")
        if (self.cited or self.cited_classes or self.cited_curves) and not self.source:
            raise VcdeployError(f"{self.name}: the paper's figures are given without their source")
        if set(self.scales) != set(SCALES):
            raise VcdeployError(f"{self.name}: its scales must be {' and '.join(SCALES)}")

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def config(self, row: Row, scale: str, seed: int, dim: int | None = None) -> TrainConfig:
        """The settings of a run; dim: for a row that matches another."""
        settings = {**self.settings, **self.scales[scale].settings, **row.settings}
        own = round(settings.pop("dim") * row.times)
        return TrainConfig(**settings, unit=row.unit, dim=dim or own, seed=seed)
