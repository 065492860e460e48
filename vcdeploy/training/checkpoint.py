"""Checkpoints: weights plus JSON in one safetensors file. Reading one executes no code from it.

Files are written to a temporary name in the same folder and renamed, so a killed run leaves either the old file or the
new one. The header has a checksum of the whole file but itself, to detect damage.
"""

import json
import tempfile
import warnings
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
from vcdeploy.files import write_atomically, write_privately
from vcdeploy.format import checksum
from vcdeploy.format.reader import CONFIG_KEY, VOCAB_KEY, brief
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

FORMAT = "vcdeploy.checkpoint.2"
FORMAT_1 = "vcdeploy.checkpoint.1"  # up to version 0.2; its checksum covers the tensors only
LONGEST_HEADER = 2**25  # bytes; parsed JSON takes many times its text
MOST_DIMENSIONS = 8
PROGRESS_KEY = "vcdeploy.progress"
UNSEALED = "0" * 64


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
            model = LanguageModel(self.config["unit"], len(self.vocab), **shape, bias=bool(self.config.get("bias")))
            model.load_state_dict(self.model)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise VcdeployError(f"the checkpoint's weights do not match its description: {error}") from error
        return model.eval()

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        """The weights in float32, by PyTorch name."""
        return {name: each.detach().float().numpy() for name, each in self.build().named_parameters()}


def _checksum_1(tensors: Mapping[str, Tensor]) -> str:
    crc = 0
    for name in sorted(tensors):
        crc = zlib.crc32(tensors[name].flatten().view(torch.uint8).numpy().tobytes(), zlib.crc32(name.encode(), crc))
    return f"{crc:08x}"


def write(path: Path, checkpoint: Checkpoint, *, rescue: bool = True) -> None:
    """Save a checkpoint. On a full disk (or any OSError) keep the old file and save to the temporary folder instead.

    rescue: False to raise the OSError and save nothing.
    """
    tensors = {f"model.{name}": tensor.detach().cpu() for name, tensor in checkpoint.model.items()}
    tensors |= {f"training.{name}": tensor.detach().cpu() for name, tensor in checkpoint.training.items()}
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    header = {
        "vcdeploy.format": FORMAT,
        CONFIG_KEY: json.dumps(checkpoint.config),
        VOCAB_KEY: json.dumps(checkpoint.vocab.symbols, ensure_ascii=False),
        PROGRESS_KEY: json.dumps(checkpoint.progress),
    }
    content = sealed(tensors, header)
    try:
        write_atomically(path, content)
    except OSError as error:
        if not rescue:
            raise
        kept = f"the previous checkpoint is still at {path}" if path.exists() else "there is no previous checkpoint"
        message = f"could not save {path}: {error.strerror or error}; {kept}"
        try:
            rescued = write_privately(Path(tempfile.gettempdir()), path.name, content)
        except OSError:
            raise VcdeployError(f"{message}. Free some space, then resume or start again.") from error
        raise VcdeployError(
            f"{message}. The current state was saved as {rescued}: free some space, move it to {path} and resume."
        ) from error


def sealed(tensors: dict[str, Tensor], header: Mapping[str, str]) -> bytes:
    """The content of a safetensors file with a checksum in its header."""
    content = save(tensors, {**header, checksum.KEY: UNSEALED})
    at = content.index(f'"{UNSEALED}"'.encode())
    before, after = checksum.around(content, at, at + len(UNSEALED) + 2)
    return b"".join((before, f'"{checksum.checksum(before, after)}"'.encode(), after))


def _intact(content: bytes, header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> bool:
    """Whether the checksum in the header fits the file."""
    stored = header.get(checksum.KEY)
    if header["vcdeploy.format"] == FORMAT_1:
        return stored == _checksum_1(tensors)
    at = content.find(f'"{stored}"'.encode())
    return at >= 0 and stored == checksum.checksum(*checksum.around(content, at, at + len(str(stored)) + 2))


def _header(content: bytes) -> dict[str, str]:
    """The metadata of a safetensors file. Limits the header and its shapes before they are used."""
    length = int.from_bytes(content[:8], "little")
    if length > LONGEST_HEADER:
        raise ValueError(f"its header has {length:,} bytes, more than {LONGEST_HEADER:,}")
    entries = json.loads(content[8 : 8 + length])
    if not isinstance(entries, dict):
        raise ValueError("its header is not a JSON object")
    header = entries.pop("__metadata__", {})
    if not isinstance(header, dict):
        raise ValueError("its metadata is not a JSON object")
    for entry in entries.values():
        if not isinstance(entry, dict) or not isinstance(entry.get("shape"), list):
            raise ValueError("a tensor in its header has no shape")
        if len(entry["shape"]) > MOST_DIMENSIONS:
            raise ValueError(f"a tensor has more than {MOST_DIMENSIONS} dimensions")
    return header


def _instead(path: Path) -> str:
    """What to use instead of a damaged checkpoint."""
    purpose = {"best": "the best model so far, to use but not to resume", "last": "the latest state of the run"}
    for name, holds in purpose.items():
        other = path.with_name(f"{name}.safetensors")
        if other != path and other.is_file():
            return f"{other} beside it has {holds}"
    return "restore it from a copy, or train again"


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
        if not content:
            raise ValueError("it is empty")
        header = _header(content)
        tensors = load(content)
    except OSError as error:
        raise VcdeployError(f"cannot read {path}: {error.strerror or error}") from error
    except (SafetensorError, ValueError, RecursionError) as error:
        raise VcdeployError(f"{damaged} ({brief(error)}): {_instead(path)}") from error
    if header.get("vcdeploy.format") not in (FORMAT, FORMAT_1):
        raise VcdeployError(
            f"{path} is a safetensors file, but not a checkpoint of this version "
            f"(format {brief(repr(header.get('vcdeploy.format')))}, expected {FORMAT!r})"
        )
    if not _intact(content, header, tensors):
        raise VcdeployError(f"{damaged} (its checksum is wrong): {_instead(path)}")
    if header["vcdeploy.format"] == FORMAT_1:
        warnings.warn(
            f"{path} was written by vcdeploy 0.2 or earlier: its checksum doesn't cover the description of its "
            "weights, so damage there can't be detected; resume or export it to write a complete checksum",
            stacklevel=2,
        )
    try:
        config, symbols, progress = (json.loads(header[key]) for key in (CONFIG_KEY, VOCAB_KEY, PROGRESS_KEY))
        if not isinstance(config, dict) or not isinstance(progress, dict):
            raise TypeError("config and progress must be JSON objects")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise TypeError("vocab must be a JSON list of strings")
        vocab = Vocabulary(symbols, kind=config["kind"], buffer=config["buffer"])
    except (KeyError, ValueError, TypeError, RecursionError, VcdeployError) as error:
        raise VcdeployError(f"{damaged} (missing or invalid in its header: {brief(error)})") from error

    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}

    return Checkpoint(config, vocab, part("model."), part("training."), progress)
