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
from vcdeploy.runtime.sources import open_source
from vcdeploy.training.checkpoint import Checkpoint
from vcdeploy.zoo import FOLDER


@dataclass(frozen=True)
class Job:
    """An export: the model, its file, and the form to write."""

    file: Path
    checkpoint: Checkpoint
    precision: str
    opset: int
    bucketed: bool
    tell: Callable[[str], None] = lambda line: None  # gets what is being done, for progress

    @classmethod
    def open(
        cls,
        name: str,
        precision: str | None,
        opset: int,
        bucketed: bool,
        tell: Callable[[str], None] = lambda line: None,
    ) -> Job:
        """precision: None for that of the model."""
        tell(f"loading {name}")
        source = open_source(name)
        checkpoint = source.checkpoint
        precision = precision or checkpoint.config.get("precision", "f32")
        return cls(source.file, checkpoint, precision, opset, bucketed, tell)

    def default_path(self, suffix: str) -> Path:
        """A path next to the model and named after it; in the current folder for a pretrained model."""
        stored = self.checkpoint.config.get("precision", "f32")
        form = f"-{self.precision}" * (self.precision != stored) + "-bucketed" * self.bucketed
        folder = Path() if self.file.parent == FOLDER else self.file.parent
        return folder / f"{self.file.stem}{form}{suffix}"

    def check_place(self, path: Path, force: bool) -> None:
        """Raise if writing there would overwrite the model itself or, without `force`, another regular file."""
        if path.exists() and path.samefile(self.file):
            raise VcdeployError(f"{path} is the model itself: choose another path with -o or --bundle")
        if path.is_file() and not force and not is_standard_output(path):
            raise VcdeployError(
                f"{path} exists: give --force to replace it, or choose another path with -o or --bundle"
            )

    @cached_property
    def model(self) -> ModelProto:
        self.tell("building the graph")
        return build(self.checkpoint, precision=self.precision, opset=self.opset, bucketed=self.bucketed)

    @cached_property
    def content(self) -> bytes:
        """The bytes of the file; deterministic for a given model."""
        return self.model.SerializeToString(deterministic=True)

    @cached_property
    def report(self) -> Report:
        """The comparison with PyTorch on every installed runtime."""
        return check_export(self.model, self.content, self.checkpoint, self.tell)

    def about(self) -> dict[str, Any]:
        """Description of the export, for manifests and --json."""
        return {
            **{name: self.checkpoint.config[name] for name in ("unit", "dim", "layers")},
            "precision": self.precision,
            "bucketed": self.bucketed,
            "opset": self.opset,
            "checkpoint": {"name": self.file.name, "sha256": hashlib.sha256(self.file.read_bytes()).hexdigest()},
        }
