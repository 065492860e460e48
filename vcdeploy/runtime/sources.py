"""Sources of models: a pretrained model's name, a model file, a checkpoint or the folder of a run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import VcdeployError
from vcdeploy.extras import require
from vcdeploy.format import reader, structure
from vcdeploy.spec import PRECISIONS, UNITS
from vcdeploy.vocabulary import Vocabulary
from vcdeploy.zoo import model_file, names

if TYPE_CHECKING:
    from vcdeploy.format.reader import Stored
    from vcdeploy.units import LanguageModel


class Source(Protocol):
    """A trained model before it is started on a backend.

    config: its description (unit, dim, layers, sharpness, epsilon, kind, …). progress: how long it was trained.
    """

    file: Path
    config: dict[str, Any]
    vocab: Vocabulary
    progress: dict[str, Any]

    def weights(self) -> Mapping[str, Any]:
        """The weights by name, as they are stored."""

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        """The weights in float32, by PyTorch name."""

    def content(self) -> bytes:
        """The model as the bytes of an ONNX file."""

    def network(self) -> LanguageModel:
        """The model in PyTorch."""


def open_source(path: str | Path) -> Source:
    """Open the model that `load` would run, and validate its description."""
    file = find(path)
    return OnnxSource(file) if holds_onnx(file) else CheckpointSource(file)


def find(path: str | Path) -> Path:
    """The model file for a path or a pretrained model's name."""
    if isinstance(path, str) and path in names():
        return model_file(path)
    file = Path(path)
    if file.is_dir():
        for name in ("best.safetensors", "last.safetensors", "model.onnx"):
            if (file / name).is_file():
                return file / name
        raise VcdeployError(
            f"{path} holds no best.safetensors, last.safetensors or model.onnx: "
            "is it the folder of a run, or of `vcdeploy export --bundle`?"
        )
    if file.suffix == ".plan" and (model := file.with_name("model.onnx")).is_file():
        return model  # it has the vocabulary; the engine is in the same folder
    if not file.is_file():
        near = get_close_matches(str(path), names(), n=1)
        raise VcdeployError(
            f"no model at {path}: " + (f"did you mean {near[0]}? Otherwise " if near else "") + "give the file of "
            "`vcdeploy export`, a checkpoint or the folder of `vcdeploy train`, or the name of a pretrained model: "
            + ", ".join(names())
        )
    return file


def holds_onnx(file: Path) -> bool:
    """Whether a file is ONNX, by its name or else its content: safetensors has eight bytes of length, then JSON."""
    if file.suffix in (".onnx", ".safetensors"):
        return file.suffix == ".onnx"
    with file.open("rb") as opened:
        return opened.read(9)[8:] != b"{"


def _check_description(config: dict[str, Any], file: Path) -> None:
    """Raise if a value that backends rely on is missing or invalid."""

    def whole(value: Any) -> bool:
        return type(value) is int and value > 0

    def between(value: Any, most: float) -> bool:
        return type(value) in (int, float) and 0 < value <= most

    sound = {
        "unit": config.get("unit") in tuple(UNITS),
        "dim": whole(config.get("dim")),
        "layers": whole(config.get("layers")),
        "sharpness": between(config.get("sharpness"), 1e9),
        "epsilon": between(config.get("epsilon"), 0.5),
        "precision": config.get("precision", "f32") in tuple(PRECISIONS),
    }
    for key, fits in sound.items():
        if not fits:
            raise VcdeployError(
                f"the description of {file} has {key} = {str(config.get(key))[:80]}, which is invalid: "
                "export it again with `vcdeploy export`, or use another checkpoint"
            )


class CheckpointSource:
    """A checkpoint, in the forms the backends need."""

    def __init__(self, file: Path) -> None:
        for module in ("torch", "safetensors"):
            require(module, for_="loading a checkpoint")
        from vcdeploy.training import checkpoint

        self.file = file
        self._checkpoint = checkpoint.read(file)
        self.config, self.vocab = self._checkpoint.config, self._checkpoint.vocab
        self.progress = self._checkpoint.progress
        _check_description(self.config, file)

    def weights(self) -> Mapping[str, Any]:
        return self._checkpoint.model

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        return self._checkpoint.parameters()

    def content(self) -> bytes:
        from vcdeploy.format.graph import build

        exported: bytes = build(self).SerializeToString()
        return exported

    def network(self) -> LanguageModel:
        return self._checkpoint.build()


def network_of(content: bytes, name: str) -> LanguageModel:
    """The PyTorch network for an exported file's content, with the weights as stored."""
    return OnnxSource(Path(name), content).network()


class OnnxSource:
    """An exported file, read without any runtime."""

    def __init__(self, file: Path, content: bytes | None = None, compare: bool = True) -> None:
        """content: the file's content, if it has been read already.

        compare: whether `weights` compares the graph; False for the check of an export, which runs both side by side.
        """
        self.file, self._compare = file, compare
        try:
            self._content = file.read_bytes() if content is None else content
            self._read = reader.read(self._content)
        except OSError as error:
            raise VcdeployError(f"cannot read {file}: {error.strerror or error}") from error
        except Exception as error:  # from NumPy, onnx or its parser
            raise VcdeployError(
                f"{file} is not a complete ONNX file ({reader.brief(error)}): {reader.EXPORT_AGAIN}"
            ) from error
        self.config = reader.read_config(self._read.metadata, str(file))
        self.vocab = reader.read_vocabulary(self._read.metadata, self.config, str(file))
        self.progress = self.config.get("training") or {}
        _check_description(self.config, file)
        if not self._read.sealed:
            warnings.warn(
                f"{file} has no checksum, so damage to it can't be detected: it was edited, or written by vcdeploy 0.2 "
                f"or earlier; {reader.EXPORT_AGAIN} to add one",
                stacklevel=2,
            )

    def weights(self) -> Mapping[str, Stored]:
        """The weights in the file. They are the whole model only if the graph is the one its description implies."""
        if self._compare:
            difference = structure.difference(self._read.graph, self.config, len(self.vocab))
            if difference:
                raise VcdeployError(
                    f"the graph of {self.file} is not the one that vcdeploy writes for its description ({difference}), "
                    "so its weights alone do not define it: run it as it is with the onnxruntime backend, or "
                    f"{reader.EXPORT_AGAIN}"
                )
            self._compare = False  # once is enough: nothing of the file changes
        return self._read.weights

    def content(self) -> bytes:
        return self._content

    def network(self) -> LanguageModel:
        import torch

        from vcdeploy.units import LanguageModel

        parameters = self.parameters()  # compares the graph, before a network of the described size is built
        settings = {name: self.config[name] for name in ("dim", "layers", "sharpness", "epsilon")}
        try:
            network = LanguageModel(
                self.config["unit"], len(self.vocab), **settings, bias=bool(self.config.get("bias"))
            )
        except ValueError as error:
            raise VcdeployError(f"the description of {self.file} is invalid: {error}") from error
        try:
            network.load_state_dict({name: torch.from_numpy(array) for name, array in parameters.items()})
        except RuntimeError as error:
            raise VcdeployError(f"the weights of {self.file} don't match its description: {error}") from error
        return network

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        from vcdeploy.format.dense import own_weights

        weights = self.weights()
        if not UNITS[self.config["unit"]].variable:
            weights = own_weights(self.config["unit"], weights)
        parameters: dict[str, NDArray[np.float32]] = {}
        for name, stored in weights.items():
            layer, _, _ = name.rpartition(".")
            if name == "embedding":
                parameters["embedding.weight"] = stored.wide()
            elif layer.startswith("layers."):
                parameters[f"unit.{name}"] = stored.wide()
            elif layer == "output":
                parameters[name] = stored.wide()
        return parameters
