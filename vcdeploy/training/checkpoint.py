"""Checkpoints: weights plus JSON in one safetensors file. Reading one executes no code from it.

Files are written to a temporary name in the same folder and renamed, so a killed run leaves either the old file or the
new one. The header has a checksum of the tensors, to detect damaged files.
"""

import json
import os
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from vcdeploy.errors import VcdeployError
from vcdeploy.files import write_atomically
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

FORMAT = "vcdeploy.checkpoint.1"


@dataclass
class Checkpoint:
    """The content of a checkpoint file.

    config: the model's description (unit, dim, layers, sharpness, epsilon, kind, buffer, …), as in an exported file.
    model: weights by name; a state_dict's sharpness and epsilon are kept in config only. training: the other tensors
    needed to resume (empty in `best`).
    """

    config: dict[str, Any]
    vocab: Vocabulary
    model: dict[str, Tensor]
    training: dict[str, Tensor]
    progress: dict[str, Any]

    def __post_init__(self) -> None:
        """Drop what a unit's state_dict repeats of the description, after comparing it."""
        repeated = self.model.get("unit._extra_state")
        if repeated is None:
            return
        told = [self.config.get(key) for key in ("sharpness", "epsilon")]
        if repeated.shape != (2,) or repeated.tolist() != told:
            raise VcdeployError(
                f"the weights were saved with sharpness and epsilon {repeated.flatten()[:2].tolist()}, but the "
                f"checkpoint's description has {str(told)[:80]}: describe the model as it is"
            )
        self.model = {name: each for name, each in self.model.items() if each is not repeated}

    def build(self) -> LanguageModel:
        """Build the model with its weights, in eval mode."""
        try:
            shape = {name: self.config[name] for name in ("dim", "layers", "dropout", "sharpness", "epsilon")}
            model = LanguageModel(self.config["unit"], len(self.vocab), **shape)
            model.load_state_dict(self.model)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise VcdeployError(f"the checkpoint's weights do not match its description: {error}") from error
        return model.eval()

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        """The weights in float32, by PyTorch name."""
        return {name: each.detach().float().numpy() for name, each in self.build().named_parameters()}


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    crc = 0
    for name in sorted(tensors):
        crc = zlib.crc32(tensors[name].flatten().view(torch.uint8).numpy().tobytes(), zlib.crc32(name.encode(), crc))
    return f"{crc:08x}"


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Save a checkpoint. On a full disk (or any OSError) keep the old file and save to the temporary folder instead."""
    tensors = {f"model.{name}": tensor.detach().cpu() for name, tensor in checkpoint.model.items()}
    tensors |= {f"training.{name}": tensor.detach().cpu() for name, tensor in checkpoint.training.items()}
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    header = {
        "vcdeploy.format": FORMAT,
        "vcdeploy.config": json.dumps(checkpoint.config),
        "vcdeploy.vocab": json.dumps(checkpoint.vocab.symbols, ensure_ascii=False),
        "vcdeploy.progress": json.dumps(checkpoint.progress),
        "vcdeploy.checksum": _checksum(tensors),
    }
    content = save(tensors, header)
    try:
        write_atomically(path, content)
    except OSError as error:
        kept = f"the previous checkpoint is still at {path}" if path.exists() else "there is no previous checkpoint"
        message = f"could not save {path}: {error.strerror or error}; {kept}"
        rescued = Path(tempfile.gettempdir()) / f"vcdeploy-rescued-{os.getpid()}-{path.name}"
        try:
            write_atomically(rescued, content)
        except OSError:
            raise VcdeployError(f"{message}. Free some space, then resume or start again.") from error
        raise VcdeployError(
            f"{message}. The current state was saved as {rescued}: free some space, move it to {path} and resume."
        ) from error


def find(path: Path, prefer: str = "best") -> Path:
    """The checkpoint at a path: the file itself, or the one in a run's folder."""
    if path.is_dir():
        for name in (prefer, "last"):
            if (path / f"{name}.safetensors").is_file():
                return path / f"{name}.safetensors"
        raise VcdeployError(f"{path} holds no best.safetensors or last.safetensors: is it the folder of a run?")
    if not path.is_file():
        raise VcdeployError(f"no checkpoint at {path}: give the file, or the folder of a `vcdeploy train` run")
    return path


def read(path: Path) -> Checkpoint:
    """Load and verify a checkpoint; raises VcdeployError if the file is damaged or not a checkpoint."""
    damaged = f"{path} is not a complete vcdeploy checkpoint"
    try:
        content = path.read_bytes()
        tensors = load(content)
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    except OSError as error:
        raise VcdeployError(f"cannot read {path}: {error.strerror or error}") from error
    except (SafetensorError, ValueError) as error:
        raise VcdeployError(f"{damaged} ({error}): use another one, such as last.safetensors beside it") from error
    if header.get("vcdeploy.format") != FORMAT:
        raise VcdeployError(
            f"{path} is a safetensors file, but not a checkpoint of this version "
            f"(format {header.get('vcdeploy.format')!r}, expected {FORMAT!r})"
        )
    if header.get("vcdeploy.checksum") != _checksum(tensors):
        raise VcdeployError(f"{damaged} (its checksum is wrong): use another one, such as last.safetensors beside it")
    try:
        config = json.loads(header["vcdeploy.config"])
        symbols = json.loads(header["vcdeploy.vocab"])
        progress = json.loads(header["vcdeploy.progress"])
        vocab = Vocabulary(symbols, kind=config["kind"], buffer=config["buffer"])
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise VcdeployError(f"{damaged} (missing or invalid in its header: {error})") from error

    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}

    return Checkpoint(config, vocab, part("model."), part("training."), progress)
