"""The TensorRT backend: runs an engine of `vcdeploy export --trt` behind the common interface.

The state stays on the GPU between steps. A decoding step is one CUDA graph: copy the token in, run the engine, copy the
new state over the old one, copy logits and m out. Sampling is done on the host, so that the same seed gives the same
text on every backend.

Not run on a GPU yet: the tests check its names and arguments against the real TensorRT 11 and run it on a stand-in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy import extras
from vcdeploy.errors import NoGpu, VcdeployError
from vcdeploy.gpu import cuda, plan, plugin_files
from vcdeploy.runtime.backends import Check, Past, Rows, RunSequences, Sequences
from vcdeploy.runtime.sources import CheckpointSource, Source
from vcdeploy.spec import UNITS

if TYPE_CHECKING:
    from vcdeploy.vocabulary import Vocabulary

STEP, SEQUENCE = 0, 1  # the optimisation profiles: T = 1, and the range of T set by --steps at export
INPUTS, OUTPUTS = ("tokens", "state"), ("logits", "state_out", "compute")
TYPES = {"tokens": np.int64, "state": np.float32, "logits": np.float32, "state_out": np.float32, "compute": np.float32}
SHOWN = 3  # number of TensorRT's errors in a message

Shape = tuple[int, ...]


def import_tensorrt() -> Any:
    extras.require("tensorrt", for_="the tensorrt backend")
    import tensorrt

    return tensorrt


def collecting_logger(trt: Any) -> Any:
    """A logger that prints nothing and collects TensorRT's errors in `errors`."""

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, msg: str) -> None:
            if severity in (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR):
                self.errors.append(msg.strip())

        def said(self) -> str:
            """The first errors, for a message; later ones mostly follow from them."""
            return "; ".join(dict.fromkeys(self.errors[:SHOWN])) or "no error message"

    return Logger()


def create(kind: Any, logger: Any, version: str) -> Any:
    """Create TensorRT's Builder or Runtime."""
    try:
        return kind(logger)
    except TypeError as error:  # how pybind11 reports a null pointer
        raise NoGpu(f"TensorRT {version} can't start here ({logger.said()}): {cuda.NO_GPU}") from error


@dataclass
class Reading:
    """One sequence of calls. state: its state [S, B, D] while the GPU holds another's; None is zeros."""

    batch: int
    state: NDArray[np.float32] | None = None


class _Lane:
    """An execution context for one optimisation profile, with its tensors on the GPU and pinned on the host."""

    def __init__(self, engine: Any, profile: int, stream: cuda.Stream) -> None:
        self.context, self._stream = engine.create_execution_context(), stream
        if self.context is None or not self.context.set_optimization_profile_async(profile, stream.handle):
            raise VcdeployError(f"TensorRT can't prepare profile {profile} of the engine: is the GPU's memory full?")
        stream.wait()
        self.shape: tuple[int, int] | None = None
        self.graph: cuda.Graph | None = None
        self.host: dict[str, NDArray[Any]] = {}
        self._pinned: dict[str, cuda.Memory] = {}
        self._gpu: dict[str, cuda.Memory] = {}
        self._sizes: dict[str, int] = {}

    def take(self, T: int, B: int, shapes: Mapping[str, Shape], states: Mapping[str, cuda.Memory]) -> None:
        """Prepare for calls of this size. states: the memory of state and state_out, which all lanes share."""
        if self.shape == (T, B):
            return
        self.graph, self.shape = None, None
        for name, shape in shapes.items():
            size = self._sizes[name] = prod(shape) * np.dtype(TYPES[name]).itemsize
            memory = states.get(name)
            if memory is None:
                if name not in self._gpu or self._gpu[name].size < size:
                    self._gpu[name], self._pinned[name] = cuda.Memory(size), cuda.Memory(size, pinned=True)
                self.host[name] = self._pinned[name].array(shape, TYPES[name])
                memory = self._gpu[name]
            if not self.context.set_tensor_address(name, memory.address):
                raise VcdeployError(f"the engine has no tensor {name}")
            if name in INPUTS and not self.context.set_input_shape(name, shape):
                raise VcdeployError(f"the engine rejects {name} of shape {list(shape)}")
        if unknown := self.context.infer_shapes():
            raise VcdeployError(f"the engine does not know the shapes of {', '.join(unknown)}")
        self.shape = (T, B)

    def send(self, name: str) -> None:
        """Copy an input from the host."""
        self._stream.copy(self._gpu[name].address, self._pinned[name].address, self._sizes[name])

    def fetch(self, name: str) -> None:
        """Copy an output to the host."""
        self._stream.copy(self._pinned[name].address, self._gpu[name].address, self._sizes[name])


class TensorRtModel:
    """A TensorRT engine on the first GPU."""

    backend = "tensorrt"

    def __init__(
        self,
        content: bytes,
        folder: Path,
        ranges: Mapping[str, Sequence[int]],
        config: dict[str, Any],
        vocab: Vocabulary,
        graphs: bool = True,
    ) -> None:
        """content: the plan. folder: its bundle. ranges: its minimum, optimum and maximum of "steps" and "batch".

        graphs: False to launch steps without a CUDA graph, for tests and comparisons.
        """
        trt = import_tensorrt()
        self.name, self.config, self.vocab = str(folder), config, vocab
        self.device = cuda.device()
        self._ranges = {name: tuple(ranges[name]) for name in ("steps", "batch")}
        self._logger = collecting_logger(trt)
        self._runtime, self._engine, self._plugin = self._start(trt, content)
        self._check_tensors()
        self.stream = cuda.Stream()
        self._lanes = [_Lane(self._engine, profile, self.stream) for profile in (STEP, SEQUENCE)]
        self._rows = config["layers"] * UNITS[config["unit"]].state_rows
        most = self._rows * self._ranges["batch"][2] * config["dim"] * 4
        self._states = {name: cuda.Memory(most) for name in ("state", "state_out")}
        self._pinned_state = cuda.Memory(most, pinned=True)
        self._holder: Reading | None = None
        self._graphs, self._graph_fault = graphs, "" if graphs else "not asked for"
        self._capture(self._ranges["batch"][0])

    @classmethod
    def open(cls, folder: Path, config: dict[str, Any], vocab: Vocabulary) -> TensorRtModel:
        """Open the engine of a bundle, which must have been built for this machine."""
        content, section = plan.read_plan(folder, cuda.device(), import_tensorrt().__version__)
        return cls(content, folder, section["ranges"], config, vocab)

    @property
    def detail(self) -> str:
        """The GPU, the origin of the plugin, and whether a step is a CUDA graph."""
        graph = "CUDA graph" if not self._graph_fault else f"no CUDA graph: {self._graph_fault}"
        return f"{self.device.name}, {self._plugin}, {graph}"

    def run(
        self, tokens: NDArray[np.int64], state: NDArray[np.float32] | None = None, position: int = 0
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """tokens [T, B], state [S, B, D] -> logits [T, B, vocab], state [S, B, D], m [T, B, layers].

        position is for backends whose units need it; these do not.
        """
        self._enter(Reading(tokens.shape[1], state))
        parts = [(logits.copy(), m.copy()) for logits, m in self._pieces(tokens)]
        after = self._state_on_host()
        self._holder = None  # the state is now the caller's
        logits, m = (np.concatenate(each) for each in zip(*parts, strict=True))
        return logits, after, m

    def sequences(self, batch: int) -> Sequences:
        return GpuSequences(self, batch)

    def read(self, reading: Reading, tokens: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Read tokens [T, B]; only the last logits [B, vocab] and m [B, layers] leave the GPU. Views of its memory."""
        self._enter(reading)
        for logits, m in self._pieces(tokens):
            last = logits[-1], m[-1]
        return last

    def leave(self, reading: Reading) -> NDArray[np.float32] | None:
        """The state of a reading, which ends; None if it has read nothing."""
        if self._holder is not reading:
            return reading.state
        state, self._holder = self._state_on_host(), None
        return state

    def _start(self, trt: Any, content: bytes) -> tuple[Any, Any, str]:
        """The runtime, the engine, and the origin of its plugin."""
        runtime = create(trt.Runtime, self._logger, trt.__version__)
        runtime.engine_host_code_allowed = True  # the plugin inside the plan is host code
        engine = runtime.deserialize_cuda_engine(content)
        where = "plugin of the plan" if UNITS[self.config["unit"]].variable else "no plugin"
        library = plugin_files.library()
        if engine is None and library is not None:
            runtime.get_plugin_registry().load_library(str(library))
            engine, where = runtime.deserialize_cuda_engine(content), "installed plugin"
        if engine is None:
            raise VcdeployError(
                f"TensorRT {trt.__version__} can't load the engine in {self.name} ({self._logger.said()}): "
                f"run {plan.rebuild_command(Path(self.name))}"
            )
        return runtime, engine, where

    def _check_tensors(self) -> None:
        names = {self._engine.get_tensor_name(number) for number in range(self._engine.num_io_tensors)}
        if names != {*INPUTS, *OUTPUTS}:
            raise VcdeployError(
                f"the engine in {self.name} has the tensors {', '.join(sorted(names))}, not "
                f"{', '.join((*INPUTS, *OUTPUTS))}: run {plan.rebuild_command(Path(self.name))}"
            )

    def _shapes(self, T: int, B: int) -> dict[str, Shape]:
        state = (self._rows, B, self.config["dim"])
        return {
            "tokens": (T, B), "state": state, "logits": (T, B, len(self.vocab)), "state_out": state,
            "compute": (T, B, self.config["layers"]),
        }  # fmt: skip

    def _enter(self, reading: Reading) -> None:
        """Load the state of a reading onto the GPU; the state of another one there is saved to the host."""
        low, _, high = self._ranges["batch"]
        if not low <= reading.batch <= high:
            raise VcdeployError(
                f"the engine in {self.name} takes {low} to {high} sequences at once, not {reading.batch}: run "
                f"{plan.rebuild_command(Path(self.name))} --batch {low}:{low}:{max(high, reading.batch)}"
            )
        if self._holder is reading:
            return
        if self._holder is not None:
            self._holder.state = self._state_on_host()
        self._holder = reading
        shape = (self._rows, reading.batch, self.config["dim"])
        size = prod(shape) * 4
        if reading.state is None:
            self.stream.clear(self._states["state"].address, size)
        else:
            self._pinned_state.array(shape, np.float32)[...] = reading.state
            self.stream.copy(self._states["state"].address, self._pinned_state.address, size)
            self.stream.wait()  # the pinned memory may be reused
            reading.state = None

    def _state_on_host(self) -> NDArray[np.float32]:
        assert self._holder is not None
        shape = (self._rows, self._holder.batch, self.config["dim"])
        self.stream.copy(self._pinned_state.address, self._states["state"].address, prod(shape) * 4)
        self.stream.wait()
        return self._pinned_state.array(shape, np.float32).copy()

    def _pieces(self, tokens: NDArray[np.int64]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Logits and m of tokens [T, B], in as many pieces as the profiles require; each overwrites the previous."""
        low, _, high = self._ranges["steps"]
        while len(tokens):
            T = min(len(tokens), high) if len(tokens) >= low else 1
            piece, tokens = tokens[:T], tokens[T:]
            lane = self._lanes[STEP if T == 1 else SEQUENCE]
            lane.take(T, piece.shape[1], self._shapes(T, piece.shape[1]), self._states)
            lane.host["tokens"][...] = piece
            if T == 1 and lane.graph is None and self._graphs and not self._graph_fault:
                self._capture(piece.shape[1])
            if T == 1 and lane.graph is not None:
                lane.graph.launch()
            else:
                self._launch(lane)
            self.stream.wait()
            yield lane.host["logits"], lane.host["compute"]

    def _launch(self, lane: _Lane) -> None:
        """Put one call on the stream: copy tokens in, run the engine, update the state, copy logits and m out."""
        lane.send("tokens")
        if not lane.context.execute_async_v3(self.stream.handle):
            raise VcdeployError(f"TensorRT can't run the engine in {self.name}: {self._logger.said()}")
        assert lane.shape is not None
        size = self._rows * lane.shape[1] * self.config["dim"] * 4
        self.stream.copy(self._states["state"].address, self._states["state_out"].address, size)
        lane.fetch("logits")
        lane.fetch("compute")

    def _capture(self, batch: int) -> None:
        """Capture the step of `batch` sequences as a CUDA graph. If that fails, steps run without a graph."""
        if not self._graphs:
            return
        lane = self._lanes[STEP]
        lane.take(1, batch, self._shapes(1, batch), self._states)
        kept = None if self._holder is None else self._state_on_host()
        tokens = lane.host["tokens"].copy()
        lane.host["tokens"][...] = 0
        self._launch(lane)  # TensorRT needs one plain call after a change of shapes
        self.stream.wait()
        try:
            with self.stream.captured() as made:
                self._launch(lane)
            (lane.graph,) = made
        except VcdeployError as error:
            self._graph_fault = str(error)
        lane.host["tokens"][...] = tokens
        if kept is not None:
            holder, self._holder = self._holder, None
            assert holder is not None
            holder.state = kept
            self._enter(holder)


class GpuSequences(RunSequences):
    """Sequences whose states stay on the GPU as long as all of them are read together."""

    def __init__(self, model: TensorRtModel, batch: int) -> None:
        super().__init__(model, batch)
        self._engine = model
        self._reading: Reading | None = None  # None while the states are on the host

    def save(self, rows: Rows = None) -> tuple[NDArray[Any] | None, NDArray[Any] | None, list[Past]]:
        self.observe(rows)
        self._leave()
        return super().save(rows)

    def restore(
        self,
        state: NDArray[Any],
        m: NDArray[Any],
        logits: NDArray[Any],
        pasts: Sequence[Past],
        rows: Rows = None,
    ) -> None:
        self._leave()
        super().restore(state, m, logits, pasts, rows)

    def reset(self, rows: Sequence[int]) -> None:
        self._leave()
        super().reset(rows)

    def _leave(self) -> None:
        if self._reading is not None:
            state, self._reading = self._engine.leave(self._reading), None
            self._states = [None if state is None else state[:, n : n + 1] for n in range(len(self._states))]

    def _read(self, rows: list[int], tokens: NDArray[np.int64], check: Check | None, ahead: int = 0) -> None:
        if rows != list(range(len(self._states))):
            self._leave()
            super()._read(rows, tokens, check, ahead)
            return
        if self._reading is None:
            self._reading = Reading(len(rows), self._state(rows))
        if check is not None:
            check()
        self._keep(rows, *self._engine.read(self._reading, tokens))


def start(source: Source, precision: str, threads: int, variant: str) -> TensorRtModel:
    """The registry's entry point."""
    if isinstance(source, CheckpointSource):
        raise VcdeployError(
            f"the tensorrt backend runs an engine, but {source.file} is a checkpoint: build one with "
            f"`vcdeploy export {source.file} --trt` and pass the folder it writes"
        )
    for module in ("tensorrt", "cuda"):
        extras.require(module, for_="the tensorrt backend")
    return TensorRtModel.open(source.file.parent, source.config, source.vocab)
