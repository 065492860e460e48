"""What an experiment is: rows to be trained alike, and compared; at the size of this machine or of the paper."""

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
    """How large an experiment is; the same for all of its rows.

    settings: fields of TrainConfig. characters, held_out: how much is read of the training text, and of the validation
    and the test text (symbols, where the corpus is music); None: all.
    """

    settings: Mapping[str, Any]
    characters: int | None = None
    held_out: int | None = None


@dataclass(frozen=True)
class Row:
    """A model to train.

    settings: what sets it apart, fields of TrainConfig. times: its dim, in multiples of the scale's. matches: the row
    whose rnn_d, as measured on its validation text, gives this one its dim instead.
    """

    name: str
    unit: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    times: float = 1.0
    matches: str | None = None
    series: str = ""


@dataclass(frozen=True)
class Cited:
    """A line of the paper's table: the unit as it names it, its rnn_d, and the score as ours is. beside: our row."""

    unit: str
    rnn_d: int
    score: str
    beside: str | None = None


@dataclass(frozen=True)
class Traced:
    """A figure of m over texts. panels: from above, a row and the text that its model reads.

    above: also show the changes of the dimensions past this fraction of the state. words: mark the peaks inside words.
    """

    name: str
    title: str
    panels: tuple[tuple[str, str], ...]
    above: float | None = None
    words: bool = False


@dataclass(frozen=True)
class Experiment:
    """A table or a figure. about: what it asks, for the head of its report. settings: of all rows at every scale.

    traced: the figures that show m over texts. cited: the paper's lines; source: their place in it, and what sets them
    apart from ours. cited_classes: its mean m by our names of classes. cited_curves: by corpus and series, the points
    (rnn_d, score) of its figure.
    """

    name: str
    title: str
    about: str
    settings: Mapping[str, Any]
    rows: tuple[Row, ...]
    scales: Mapping[str, Scale]
    score: str = "bits"  # what the report compares: bits, bits_per_character or perplexity
    classes: bool = False  # whether it also tells m by class of symbol
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
                raise VcdeployError(f"{self.name}, {row.name}: it matches {row.matches!r}, which is no row before it")
        beside = [line.beside for line in self.cited if line.beside is not None]
        for name in beside:
            if name not in names or beside.count(name) > 1:
                raise VcdeployError(f"{self.name}: of the paper's figures {beside.count(name)} stand beside {name!r}, "
                                    f"of which there are {names.count(name)} rows")  # fmt: skip
        for figure in self.traced:
            for name, _ in figure.panels:
                if name not in names:
                    raise VcdeployError(f"{self.name}: {figure.name} shows {name!r}, which is no row")
        if (self.cited or self.cited_classes or self.cited_curves) and not self.source:
            raise VcdeployError(f"{self.name}: figures of the paper without their source")
        if set(self.scales) != set(SCALES):
            raise VcdeployError(f"{self.name}: its scales must be {' and '.join(SCALES)}")

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def config(self, row: Row, scale: str, seed: int, dim: int | None = None) -> TrainConfig:
        """The settings of a run; dim: of a row that matches another."""
        settings = {**self.settings, **self.scales[scale].settings, **row.settings}
        own = round(settings.pop("dim") * row.times)
        return TrainConfig(**settings, unit=row.unit, dim=dim or own, seed=seed)
