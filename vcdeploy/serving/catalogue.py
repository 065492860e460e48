"""The models of a server: loaded at start or on first use, each with an engine of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.runtime.model import Model, load
from vcdeploy.serving.engine import Engine, Limits
from vcdeploy.serving.streams import Stream


class UnknownModel(VcdeployError):
    """No model of this name is served."""


@dataclass
class Served:
    """A model under the name clients use; `engine` loads it on first use."""

    name: str
    load: Callable[[], Model]
    workers: int
    limits: Limits
    on_end: Callable[[Served, Stream], None]
    _engine: Engine | None = None
    _loading: threading.Lock = field(default_factory=threading.Lock)

    @property
    def loaded(self) -> Engine | None:
        return self._engine

    def engine(self) -> Engine:
        with self._loading:
            if self._engine is None:
                self._engine = Engine(self.load(), self.workers, self.limits, lambda stream: self.on_end(self, stream))
            return self._engine


class Catalogue:
    """The served models by name; the first one is the default."""

    def __init__(
        self,
        sources: list[str],
        *,
        backend: str = "auto",
        precision: str | None = None,
        threads: int = 1,
        workers: int = 1,
        limits: Limits | None = None,
        on_end: Callable[[Served, Stream], None] = lambda served, stream: None,
    ) -> None:
        """sources: models as `vcdeploy.load` takes them, or NAME=MODEL to serve one under another name."""
        self.models: dict[str, Served] = {}
        for source in sources:
            name, path = split_source(source)
            if name in self.models:
                raise BadValue(f"two models are named {name!r}: give one another name, such as {name}2={path}")
            self.models[name] = Served(
                name, _loader(path, backend, precision, threads), workers, limits or Limits(), on_end
            )
        if not self.models:
            raise BadValue("a server needs at least one model")

    def __iter__(self) -> Iterator[Served]:
        return iter(self.models.values())

    def find(self, name: str | None) -> Served:
        if name is None:
            return next(iter(self))
        if name not in self.models:
            raise UnknownModel(f"there is no model {name!r} here; choose from {', '.join(self.models)}")
        return self.models[name]

    def drain(self, seconds: float) -> None:
        for each in self:
            if each.loaded:
                each.loaded.drain(seconds)

    def close(self) -> None:
        for each in self:
            if each.loaded:
                each.loaded.close()


def split_source(source: str) -> tuple[str, str]:
    """The name and the path of NAME=MODEL; without a name, that of the file or folder."""
    name, separator, path = source.partition("=")
    if separator and name and path and "/" not in name:
        return name, path
    stem = Path(source).name
    return stem.removesuffix(".onnx").removesuffix(".safetensors") or source, source


def _loader(path: str, backend: str, precision: str | None, threads: int) -> Callable[[], Model]:
    return lambda: load(path, backend, precision, threads)
