"""CUDA for the GPU backends, through cuda-python: device, memory, streams, events and graphs. Contains no kernels.

Not run on a GPU yet: the tests check its names and arguments against the real cuda-python and run it on a stand-in.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from vcdeploy import extras
from vcdeploy.errors import NoGpu, VcdeployError

NO_GPU = "an NVIDIA GPU and its driver are needed; `vcdeploy doctor` shows what is installed"
NO_MEMORY = "the GPU's memory is full: stop other processes on the GPU, or use fewer sequences at once"
OTHER_FAULT = "`vcdeploy gpu-check` tests everything that needs a GPU, one part at a time"


def _cudart() -> Any:
    extras.require("cuda", for_="a GPU backend")
    from cuda.bindings import runtime

    return runtime


def _call(function: Any, *arguments: Any) -> Any:
    """Call a cuda-python function and check its status; returns its other results: None, one value or several."""
    status, *values = function(*arguments)
    if int(status) != 0:
        cudart = _cudart()
        said = cudart.cudaGetErrorString(status)[1]
        reason = said.decode() if isinstance(said, bytes) else str(said)
        kinds = cudart.cudaError_t
        advice = {
            int(kinds.cudaErrorNoDevice): NO_GPU,
            int(kinds.cudaErrorInsufficientDriver): NO_GPU,
            int(kinds.cudaErrorMemoryAllocation): NO_MEMORY,
        }.get(int(status), OTHER_FAULT)
        kind = NoGpu if advice == NO_GPU else VcdeployError
        raise kind(f"CUDA: {function.__name__}: {getattr(status, 'name', status)} ({reason}): {advice}")
    return values[0] if len(values) == 1 else values or None


@dataclass(frozen=True)
class Device:
    """A GPU and its CUDA versions. bandwidth: nominal memory bandwidth in bytes/s."""

    name: str
    capability: str  # for example 8.9
    multiprocessors: int
    memory: int  # bytes
    l2: int  # bytes
    bandwidth: float
    driver: str  # the newest CUDA version the driver supports
    runtime: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def device() -> Device:
    """The first GPU; raises an error if there is none."""
    cudart = _cudart()
    if not _call(cudart.cudaGetDeviceCount):
        raise NoGpu(f"CUDA finds no GPU: {NO_GPU}")
    properties = _call(cudart.cudaGetDeviceProperties, 0)
    name = properties.name
    kinds = cudart.cudaDeviceAttr
    clock = _call(cudart.cudaDeviceGetAttribute, kinds.cudaDevAttrMemoryClockRate, 0)  # kHz
    width = _call(cudart.cudaDeviceGetAttribute, kinds.cudaDevAttrGlobalMemoryBusWidth, 0)  # bits
    return Device(
        name=name.decode() if isinstance(name, bytes) else str(name),
        capability=f"{properties.major}.{properties.minor}",
        multiprocessors=int(properties.multiProcessorCount),
        memory=int(properties.totalGlobalMem),
        l2=int(properties.l2CacheSize),
        bandwidth=2e3 * clock * width / 8,  # two transfers per clock
        driver=_version(_call(cudart.cudaDriverGetVersion)),
        runtime=_version(_call(cudart.cudaRuntimeGetVersion)),
    )


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def fault() -> str | None:
    """Why no GPU can be used; None if one can."""
    try:
        device()
    except VcdeployError as error:
        return str(error)
    except ImportError as error:
        return f"cuda-python can't be used: {error}"
    return None


class Memory:
    """GPU memory or, if pinned, host memory; freed with the object."""

    def __init__(self, size: int, pinned: bool = False) -> None:
        cudart = _cudart()
        self.size = max(size, 1)
        self._free = cudart.cudaFreeHost if pinned else cudart.cudaFree
        self.address = 0
        self.address = int(_call(cudart.cudaMallocHost if pinned else cudart.cudaMalloc, self.size))

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array view of pinned memory, from its beginning."""
        kind = np.dtype(dtype)
        raw: Any = (ctypes.c_byte * (prod(shape) * kind.itemsize)).from_address(self.address)
        return np.frombuffer(raw, kind).reshape(shape)

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            with suppress(Exception):  # at interpreter exit the driver may already be gone
                self._free(self.address)


class Stream:
    """A CUDA stream: its work runs in order."""

    def __init__(self) -> None:
        cudart = _cudart()
        self._cudart = cudart
        self._stream = _call(cudart.cudaStreamCreateWithFlags, cudart.cudaStreamNonBlocking)
        self.handle = int(self._stream)

    def copy(self, to: int, origin: int, size: int) -> None:
        """Copy `size` bytes between addresses, each on the host (pinned) or on the GPU."""
        _call(
            self._cudart.cudaMemcpyAsync, to, origin, size, self._cudart.cudaMemcpyKind.cudaMemcpyDefault, self._stream
        )

    def clear(self, address: int, size: int) -> None:
        _call(self._cudart.cudaMemsetAsync, address, 0, size, self._stream)

    def wait(self) -> None:
        """Wait until all work on the stream is done."""
        _call(self._cudart.cudaStreamSynchronize, self._stream)

    @contextmanager
    def captured(self) -> Iterator[list[Graph]]:
        """Capture work put on the stream as a graph instead of running it; the list holds the graph afterwards."""
        cudart, made = self._cudart, list[Graph]()
        mode = cudart.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        _call(cudart.cudaStreamBeginCapture, self._stream, mode)
        try:
            yield made
        except BaseException:
            with suppress(VcdeployError):  # the capture has failed; this would report it again
                _call(cudart.cudaStreamEndCapture, self._stream)
            raise
        graph = _call(cudart.cudaStreamEndCapture, self._stream)
        try:
            made.append(Graph(_call(cudart.cudaGraphInstantiate, graph, 0), self))
        finally:
            _call(cudart.cudaGraphDestroy, graph)

    def __del__(self) -> None:
        if hasattr(self, "_stream"):
            with suppress(Exception):
                self._cudart.cudaStreamDestroy(self._stream)


class Graph:
    """Captured work, launched as one unit."""

    def __init__(self, executable: Any, stream: Stream) -> None:
        self._executable, self._stream = executable, stream

    def launch(self) -> None:
        _call(self._stream._cudart.cudaGraphLaunch, self._executable, self._stream._stream)

    def __del__(self) -> None:
        with suppress(Exception):
            self._stream._cudart.cudaGraphExecDestroy(self._executable)


class Stopwatch:
    """A GPU timer: the time between two events on a stream."""

    def __init__(self, handle: int) -> None:
        """handle: the stream to time."""
        cudart = _cudart()
        self._cudart, self._stream = cudart, handle
        self._begin, self._end = (_call(cudart.cudaEventCreate) for _ in range(2))

    def begin(self) -> None:
        _call(self._cudart.cudaEventRecord, self._begin, self._stream)

    def end(self) -> None:
        _call(self._cudart.cudaEventRecord, self._end, self._stream)

    def nanoseconds(self) -> int:
        """Time from begin to end; waits for the end."""
        _call(self._cudart.cudaEventSynchronize, self._end)
        return round(_call(self._cudart.cudaEventElapsedTime, self._begin, self._end) * 1e6)

    def __del__(self) -> None:
        for event in (getattr(self, "_begin", None), getattr(self, "_end", None)):
            if event is not None:
                with suppress(Exception):
                    self._cudart.cudaEventDestroy(event)


def copy_bandwidth(size: int, seconds: float) -> float:
    """Bandwidth of copies within the GPU that touch `size` bytes, read plus written, in bytes/s.

    Measured for at least `seconds`.
    """
    half = max(size // 2, 1)
    one, other, stream = Memory(half), Memory(half), Stream()
    watch, rounds = Stopwatch(stream.handle), 4
    while True:
        watch.begin()
        for _ in range(rounds):
            stream.copy(one.address, other.address, half)
        watch.end()
        took = watch.nanoseconds() / 1e9
        if took >= seconds:
            return 2 * half * rounds / took
        rounds *= 4
