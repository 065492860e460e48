"""The native backend: the kernels of plugins/cpu behind the common interface. It needs NumPy only, no framework."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vcdeploy import _native
from vcdeploy.errors import VcdeployError
from vcdeploy.format.dense import joined_bias, own_weights
from vcdeploy.format.reader import Stored
from vcdeploy.runtime.backends import Check, Drawn, Interruptible, Past, Rows
from vcdeploy.runtime.sampling import Sampling
from vcdeploy.spec import UNITS
from vcdeploy.vocabulary import Vocabulary

if TYPE_CHECKING:
    from vcdeploy.runtime.sources import Source

TABLE_BYTES = 64 * 2**20  # 256 symbols of a VCGRU-1024 take 28 MB


def plain_names(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Rename a checkpoint's weights to their names in a model file (docs/design.md, section 2); others are kept."""
    renamed = {"embedding.weight": "embedding"}
    return {renamed.get(name, name.removeprefix("unit.")): each for name, each in weights.items()}


def _array(weight: ArrayLike | Stored) -> Any:
    """A weight as _native takes it: float32, or for a stored matrix its bytes [rows, …], precision and scales."""
    if not isinstance(weight, Stored):
        return np.require(np.asarray(weight), np.float32, ["C", "A"])
    if weight.values.ndim != 2:
        if weight.precision != "f32":
            raise TypeError(f"a vector is stored in {weight.precision}, not in f32")
        return np.require(weight.values, np.float32, ["C", "A"])
    scale = None if weight.scale is None else np.require(weight.scale.reshape(-1), requirements=["C", "A"])
    return weight.values.view(np.uint8), weight.precision, scale


def _layer(unit: str, arrays: Mapping[str, Any], layer: str) -> list[Any]:
    """The arrays of a layer as _native.Model takes them."""
    if UNITS[unit].variable:
        return [arrays[layer + name] for name in UNITS[unit].weights]
    matrices = [arrays[f"{layer}weight_hh_l0"], arrays[f"{layer}weight_ih_l0"]]
    if f"{layer}bias_ih_l0" not in arrays:
        return matrices
    return [*matrices, joined_bias(unit, *(arrays[f"{layer}bias_{kind}_l0"] for kind in ("ih", "hh")))]


class NativeModel(Interruptible):
    """A language model with packed weights, on the CPU.

    weights: `embedding` [vocab, D], `layers.0.U`, `.V`, `.u`, `.v`, `.b` and so on, or those of a dense unit as in a
    file, `output.weight` [vocab, D], `output.bias` [vocab]; or the names of a checkpoint. Weights of a model file are
    packed as they are stored, row by row, without a float32 copy of the matrix. table_bytes: maximum size of the first
    layer's input table; 0 for no table. isa: an instruction set of `_native.instruction_sets()`, for tests.
    """

    backend = "native"

    def __init__(
        self,
        weights: Mapping[str, ArrayLike | Stored],
        vocab: Vocabulary,
        *,
        unit: str,
        sharpness: float = 1.0,
        epsilon: float = 1e-3,
        precision: str = "f32",
        threads: int = 1,
        table_bytes: int = TABLE_BYTES,
        isa: str = "auto",
    ) -> None:
        if not UNITS[unit].exports:
            raise VcdeployError(f"the native backend doesn't run {unit!r}; use the torch backend")
        self.vocab, self.unit, self.precision = vocab, unit, precision
        weights = plain_names(weights)
        if "layers.0.W" in weights:
            weights = own_weights(unit, weights)
        numbers = [int(found[1]) for name in weights if (found := re.match(r"layers\.(\d+)\.", name))]
        try:
            arrays = {name: _array(each) for name, each in weights.items()}
            self._model = _native.Model(
                unit,
                arrays["embedding"],
                [_layer(unit, arrays, f"layers.{n}.") for n in range(max(numbers, default=-1) + 1)],
                arrays["output.weight"],
                arrays["output.bias"],
                sharpness=sharpness,
                epsilon=epsilon,
                precision=precision,
                threads=threads,
                table_bytes=table_bytes,
                isa=isa,
            )
        except KeyError as error:
            raise VcdeployError(f"the model has no weights named {error}: is it complete?") from error
        except (TypeError, ValueError) as error:
            raise VcdeployError(f"the model can't be loaded: {error}") from error
        if self._model.vocab_size != len(vocab):
            raise VcdeployError(
                f"the model has {self._model.vocab_size} embeddings and its vocabulary {len(vocab)} symbols; "
                f"they belong to different models"
            )

    @property
    def detail(self) -> str:
        """The instruction set in use."""
        return self._model.isa

    @property
    def dim(self) -> int:
        """D."""
        return self._model.dim

    @property
    def layers(self) -> int:
        return self._model.state_rows // UNITS[self.unit].state_rows

    @property
    def weight_bytes(self) -> int:
        """Size of the packed weights."""
        return self._model.weight_bytes

    @property
    def table_bytes(self) -> int:
        """Size of the first layer's input table; 0 without one."""
        return self._model.table_bytes

    def run(
        self,
        tokens: NDArray[np.int64],
        state: NDArray[np.float32] | None = None,
        position: int = 0,
        check: Check | None = None,
        logits: str = "all",
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """tokens [T, B], state [S, B, D] -> logits [T, B, vocab], state [S, B, D], m [T, B, layers].

        position is part of the common interface and not used here. logits: "all", only the "last" ones, or "none".
        """
        _check_first(check)
        try:
            return self._model.run(tokens, state, check, logits)
        except ValueError as error:
            raise VcdeployError(f"the model can't run: {error}") from error

    def sequences(self, batch: int) -> NativeSequences:
        return NativeSequences(self._model.session(batch))


def _check_first(check: Check | None) -> None:
    """Native code checks every few milliseconds, and many calls are shorter."""
    if check is not None:
        check()


class NativeSequences:
    """The sequences of a session, with their states in native code."""

    at_once = 64  # few enough for smooth streaming

    def __init__(self, session: _native.Session) -> None:
        self._session = session
        self.step = session.step
        self.logits, self.m = session.logits, session.m

    def feed(self, tokens: NDArray[np.int64], check: Check | None = None, rows: Rows = None) -> None:
        _check_first(check)
        with _refused("read"):
            self._session.feed(tokens, check, rows)

    def observe(self, rows: Rows = None) -> None:
        self._session.observe(rows)

    def generate(
        self,
        uniforms: NDArray[np.float64],
        sampling: Sequence[Sampling],
        allowed: NDArray[np.bool_] | None = None,
        check: Check | None = None,
        rows: Rows = None,
        most: Sequence[int] | None = None,
        alternatives: int = 0,
    ) -> Drawn:
        _check_first(check)
        mask = None if allowed is None else allowed.view(np.uint8)
        options = list(map(_native_sampling, sampling))
        with _refused("generate"):
            return Drawn(*self._session.generate(uniforms, options, mask, check, rows, most, alternatives))

    def save(self, rows: Rows = None) -> tuple[NDArray[Any], NDArray[Any], list[Past]]:
        state, m, pasts = self._session.save(rows)
        return state, m, [Past(read, generated, 0, tokens.tolist()) for read, generated, tokens in pasts]

    def restore(
        self,
        state: NDArray[Any],
        m: NDArray[Any],
        logits: NDArray[Any],
        pasts: Sequence[Past],
        rows: Rows = None,
    ) -> None:
        """The logits follow from the state."""
        with _refused("restore"):
            each = [(p.read, p.generated, np.array(p.history, np.int64)) for p in pasts]
            self._session.restore(state, m, each, rows)

    def fork(self) -> NativeSequences:
        return NativeSequences(self._session.fork())

    def reset(self, rows: Sequence[int]) -> None:
        self._session.reset(rows)


@lru_cache(maxsize=4096)
def _native_sampling(sampling: Sampling) -> _native.Sampling:
    options = {each.name: getattr(sampling, each.name) for each in fields(sampling) if each.name != "seed"}
    return _native.Sampling(**options)


@contextmanager
def _refused(what: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise VcdeployError(f"the model can't {what}: {error}") from error


def start(source: Source, precision: str, threads: int, variant: str) -> NativeModel:
    """Entry point for the registry. variant: the instruction set; the best one if empty."""
    config = source.config
    model = NativeModel(
        source.weights(),
        source.vocab,
        unit=config["unit"],
        sharpness=config["sharpness"],
        epsilon=config["epsilon"],
        precision=precision,
        threads=threads,
        isa=variant or "auto",
    )
    if (model.dim, model.layers) != (config["dim"], config["layers"]):
        raise VcdeployError(
            f"the weights don't match the model's description: they have {model.dim} dimensions and {model.layers} "
            f"layers, but it says {config['dim']} and {config['layers']}; export it again with `vcdeploy export`"
        )
    return model
