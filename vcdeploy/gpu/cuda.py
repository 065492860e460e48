"""CUDA for the GPU backends, over cuda-python: the device, memory, a stream, events, graphs. No kernel is here.

Not run on a GPU yet: the tests hold its names and arguments to the real cuda-python and run it on a stand-in.
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
from vcdeploy.errors import VcdeployError

NO_GPU = "an NVIDIA GPU and its driver are needed; `vcdeploy doctor` says what is here"
NO_MEMORY = "its memory is full: end what else runs on the GPU, or take fewer sequences at once"
OTHER_FAULT = "`vcdeploy gpu-check` tries all that needs a GPU, piece by piece"


def _cudart() -> Any:
    extras.require("cuda", for_="a GPU backend")
    from cuda.bindings import runtime

    return runtime


def _call(function: Any, *arguments: Any) -> Any:
    """What a function of cuda-python returns after its status: nothing, one value, or several."""
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
        raise VcdeployError(f"CUDA: {function.__name__}: {getattr(status, 'name', status)} ({reason}): {advice}")
    return values[0] if len(values) == 1 else values or None


@dataclass(frozen=True)
class Device:
    """A GPU, and the CUDA it runs with. bandwidth: that of its memory by its data sheet, in bytes a second."""

    name: str
    capability: str  # such as 8.9
    multiprocessors: int
    memory: int  # bytes
    l2: int  # bytes
    bandwidth: float
    driver: str  # the newest CUDA that the driver runs
    runtime: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def device() -> Device:
    """The first GPU; an error where there is none."""
    cudart = _cudart()
    if not _call(cudart.cudaGetDeviceCount):
        raise VcdeployError(f"CUDA finds no GPU here: {NO_GPU}")
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
        bandwidth=2e3 * clock * width / 8,  # two transfers a clock
        driver=_version(_call(cudart.cudaDriverGetVersion)),
        runtime=_version(_call(cudart.cudaRuntimeGetVersion)),
    )


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def fault() -> str | None:
    """Why no GPU can be used from here; None where one can."""
    try:
        device()
    except VcdeployError as error:
        return str(error)
    except ImportError as error:
        return f"cuda-python can't be used: {error}"
    return None


class Memory:
    """Bytes of the GPU, or, pinned, of the host; freed with the object."""

    def __init__(self, size: int, pinned: bool = False) -> None:
        cudart = _cudart()
        self.size = max(size, 1)
        self._free = cudart.cudaFreeHost if pinned else cudart.cudaFree
        self.address = 0
        self.address = int(_call(cudart.cudaMallocHost if pinned else cudart.cudaMalloc, self.size))

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Pinned memory as an array, from its beginning."""
        kind = np.dtype(dtype)
        raw: Any = (ctypes.c_byte * (prod(shape) * kind.itemsize)).from_address(self.address)
        return np.frombuffer(raw, kind).reshape(shape)

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            with suppress(Exception):  # the driver may be gone already, when Python ends
                self._free(self.address)


class Stream:
    """Work in order, on a stream of its own."""

    def __init__(self) -> None:
        cudart = _cudart()
        self._cudart = cudart
        self._stream = _call(cudart.cudaStreamCreateWithFlags, cudart.cudaStreamNonBlocking)
        self.handle = int(self._stream)

    def copy(self, to: int, origin: int, size: int) -> None:
        """`size` bytes from address to address, each on the host (pinned) or on the GPU."""
        _call(
            self._cudart.cudaMemcpyAsync, to, origin, size, self._cudart.cudaMemcpyKind.cudaMemcpyDefault, self._stream
        )

    def clear(self, address: int, size: int) -> None:
        _call(self._cudart.cudaMemsetAsync, address, 0, size, self._stream)

    def wait(self) -> None:
        """Until all of it is done."""
        _call(self._cudart.cudaStreamSynchronize, self._stream)

    @contextmanager
    def captured(self) -> Iterator[list[Graph]]:
        """What is put on the stream inside is not run, but becomes a graph; the list holds it afterwards."""
        cudart, made = self._cudart, list[Graph]()
        mode = cudart.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        _call(cudart.cudaStreamBeginCapture, self._stream, mode)
        try:
            yield made
        except BaseException:
            with suppress(VcdeployError):  # the capture has failed, and this says so once more
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
    """Work that was captured, to be launched as one."""

    def __init__(self, executable: Any, stream: Stream) -> None:
        self._executable, self._stream = executable, stream

    def launch(self) -> None:
        _call(self._stream._cudart.cudaGraphLaunch, self._executable, self._stream._stream)

    def __del__(self) -> None:
        with suppress(Exception):
            self._stream._cudart.cudaGraphExecDestroy(self._executable)


class Stopwatch:
    """The GPU's own clock: the time between two events on a stream."""

    def __init__(self, handle: int) -> None:
        """handle: of the stream whose work is timed."""
        cudart = _cudart()
        self._cudart, self._stream = cudart, handle
        self._begin, self._end = (_call(cudart.cudaEventCreate) for _ in range(2))

    def begin(self) -> None:
        _call(self._cudart.cudaEventRecord, self._begin, self._stream)

    def end(self) -> None:
        _call(self._cudart.cudaEventRecord, self._end, self._stream)

    def nanoseconds(self) -> int:
        """From begin to end; waits for the end."""
        _call(self._cudart.cudaEventSynchronize, self._end)
        return round(_call(self._cudart.cudaEventElapsedTime, self._begin, self._end) * 1e6)

    def __del__(self) -> None:
        for event in (getattr(self, "_begin", None), getattr(self, "_end", None)):
            if event is not None:
                with suppress(Exception):
                    self._cudart.cudaEventDestroy(event)


def copy_bandwidth(size: int, seconds: float) -> float:
    """Bytes a second, read and written, of copies within the GPU that touch `size` bytes; for about so long."""
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
