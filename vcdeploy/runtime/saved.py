"""The bytes of a saved session: a header, what each sequence read, and the arrays, with a checksum of everything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import VcdeployError
from vcdeploy.runtime.sampling import MOST_HISTORY

MAGIC = b"vcdeploy session 1\n"
DIGEST = 32


@dataclass
class Past:
    """What a sequence has read and generated.

    Attributes:
        read: Number of tokens, with those generated.
        generated: How many of them were generated since the last one that was given.
        drawn: How many were generated since the sequence began.
        history: The last ones.
    """

    read: int = 0
    generated: int = 0
    drawn: int = 0
    history: list[int] = field(default_factory=list)

    def add(self, tokens: list[int]) -> None:
        self.read += len(tokens)
        self.history = (self.history + tokens)[-MOST_HISTORY:]

    def newest(self) -> list[int]:
        """What was generated since the last token that was given, as far as it is known."""
        return self.history[max(0, len(self.history) - self.generated) :]


@dataclass(frozen=True)
class Layout:
    """The model and the sizes of a session. model: of model_digest."""

    model: str
    batch: int
    state_rows: int
    dim: int
    layers: int
    vocab: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "state": (self.state_rows, self.batch, self.dim),
            "m": (self.batch, self.layers),
            "logits": (self.batch, self.vocab),
        }

    def zeros(self, name: str) -> NDArray[np.float32]:
        return np.zeros(self.shapes[name], np.float32)


def model_digest(config: Mapping[str, Any], symbols: Sequence[str]) -> str:
    """Identifies a model by its unit, sizes, mask and vocabulary, but not by its weights: those differ by precision."""
    described = {name: config.get(name) for name in ("unit", "dim", "layers", "sharpness", "epsilon", "kind", "buffer")}
    return hashlib.sha256(json.dumps([described, list(symbols)], sort_keys=True, default=str).encode()).hexdigest()


def pack(layout: Layout, arrays: Mapping[str, NDArray[Any]], pasts: Sequence[Past]) -> bytes:
    counts = [[past.read, past.generated, past.drawn, len(past.history)] for past in pasts]
    header = json.dumps({"model": layout.model, "batch": layout.batch, "counts": counts}).encode()
    histories = [np.array(past.history, "<i8").tobytes() for past in pasts]
    values = [np.ascontiguousarray(arrays[name], "<f4").tobytes() for name in layout.shapes]
    content = b"".join([len(header).to_bytes(8, "little"), header, *histories, *values])
    return MAGIC + hashlib.sha256(content).digest() + content


def unpack(content: bytes, layout: Layout) -> tuple[dict[str, NDArray[np.float32]], list[Past]]:
    """Raises VcdeployError unless this was packed for the same layout."""
    if not isinstance(content, (bytes, bytearray, memoryview)) or not bytes(content[: len(MAGIC)]) == MAGIC:
        raise VcdeployError("this is no saved session of this version: restore takes what Session.save returned")
    digest, body = bytes(content[len(MAGIC) :][:DIGEST]), bytes(content[len(MAGIC) + DIGEST :])
    if hashlib.sha256(body).digest() != digest:
        raise VcdeployError("the saved session is damaged: its checksum is wrong")
    try:
        size = int.from_bytes(body[:8], "little")
        header = json.loads(body[8 : 8 + size])
        model, batch, counts = header["model"], header["batch"], np.array(header["counts"], np.int64).tolist()
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise VcdeployError(f"the saved session can't be read: {error}") from error
    if model != layout.model:
        raise VcdeployError("the session was saved with another model: restore it with the model it comes from")
    if batch != layout.batch:
        raise VcdeployError(
            f"the session was saved with {batch} sequences, but this one has {layout.batch}: use model.session({batch})"
        )
    return _parts(body[8 + size :], layout, counts)


def _parts(body: bytes, layout: Layout, counts: Any) -> tuple[dict[str, NDArray[np.float32]], list[Past]]:
    pasts, at = [], 0
    fits = isinstance(counts, list) and len(counts) == layout.batch
    fits = fits and all(isinstance(row, list) and len(row) == 4 and min(row) >= 0 for row in counts)
    fits = fits and all(row[3] == min(row[0], MOST_HISTORY) and row[1] <= row[0] >= row[2] for row in counts)
    sizes = {name: int(np.prod(shape)) for name, shape in layout.shapes.items()}
    if not fits or len(body) != sum(row[3] for row in counts) * 8 + sum(sizes.values()) * 4:
        raise VcdeployError("the saved session can't be read: its parts don't match its model")
    for read, generated, drawn, length in counts:
        history = np.frombuffer(body, "<i8", length, at)
        at += history.nbytes
        if length and not (history.min() >= 0 and history.max() < layout.vocab):
            raise VcdeployError("the saved session can't be read: a token is outside the vocabulary")
        pasts.append(Past(read, generated, drawn, history.tolist()))
    arrays = {}
    for name, shape in layout.shapes.items():
        arrays[name] = np.frombuffer(body, "<f4", sizes[name], at).reshape(shape).astype(np.float32)
        at += arrays[name].nbytes
    return arrays, pasts
