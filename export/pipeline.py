"""Exporting a model: build the file, check it on every installed runtime, and write it if it passes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onnx import ModelProto

from vcdeploy.errors import VcdeployError
from vcdeploy.export.parity import Report, check_export
from vcdeploy.files import is_standard_output
from vcdeploy.format.graph import build
from vcdeploy.runtime.sources import Source, open_source
from vcdeploy.zoo import FOLDER


@dataclass(frozen=True)
class Job:
    """An export: the model, and the form to write."""

    source: Source
    precision: str
    opset: int
    bucketed: bool
    portable: bool
    tell: Callable[[str], None] = lambda line: None  # gets what is being done, for progress

    @classmethod
    def open(
        cls,
        name: str,
        precision: str | None,
        opset: int,
        bucketed: bool,
        portable: bool,
        tell: Callable[[str], None] = lambda line: None,
    ) -> Job:
        """precision: None for that of the model."""
        tell(f"loading {name}")
        source = open_source(name)
        return cls(source, precision or source.config.get("precision", "f32"), opset, bucketed, portable, tell)

    def default_path(self, suffix: str) -> Path:
        """A path next to the model and named after it; in the current folder for a pretrained model."""
        stored = self.source.config.get("precision", "f32")
        form = (
            f"-{self.precision}" * (self.precision != stored)
            + "-bucketed" * self.bucketed
            + "-portable" * self.portable
        )
        file = self.source.file
        folder = Path() if file.parent == FOLDER else file.parent
        return folder / f"{file.stem}{form}{suffix}"

    def check_place(self, path: Path, force: bool) -> None:
        """Raise if writing there would overwrite the model itself or, without `force`, another regular file."""
        if path.exists() and path.samefile(self.source.file):
            raise VcdeployError(f"{path} is the model itself: choose another path with -o or --bundle")
        if path.is_file() and not force and not is_standard_output(path):
            raise VcdeployError(
                f"{path} exists: give --force to replace it, or choose another path with -o or --bundle"
            )

    @cached_property
    def model(self) -> ModelProto:
        self.tell("building the graph")
        forms = {"bucketed": self.bucketed, "portable": self.portable}
        return build(self.source, precision=self.precision, opset=self.opset, **forms)

    @cached_property
    def content(self) -> bytes:
        """The bytes of the file; deterministic for a given model."""
        return self.model.SerializeToString(deterministic=True)

    @cached_property
    def report(self) -> Report:
        """The comparison with PyTorch on every installed runtime."""
        return check_export(self.model, self.content, self.source.network(), self.tell)

    def about(self) -> dict[str, Any]:
        """Description of the export, for manifests and --json."""
        file = self.source.file
        return {
            **{name: self.source.config[name] for name in ("unit", "dim", "layers")},
            "precision": self.precision,
            "bucketed": self.bucketed,
            "portable": self.portable,
            "opset": self.opset,
            "checkpoint": {"name": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()},
        }
