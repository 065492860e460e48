"""Fake CUDA and TensorRT modules, to test the control flow of the GPU code without a GPU.

test_real_bindings.py checks their names and arguments against the real cuda-python and TensorRT, so code that runs here
uses only what exists there. "GPU" memory is host memory. An engine computes with the native kernels, or in ONNX Runtime
for dense units.
"""

from __future__ import annotations

import ctypes
import enum
import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from vcdeploy.format import reader
from vcdeploy.format.checksum import seal
from vcdeploy.gpu import plugin_files
from vcdeploy.spec import UNITS

# --- CUDA -------------------------------------------------------------------------------------------------------------


class cudaError_t(enum.IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorInsufficientDriver = 35
    cudaErrorNoDevice = 100
    cudaErrorStreamCaptureUnsupported = 900


class cudaMemcpyKind(enum.IntEnum):
    cudaMemcpyDefault = 4


class cudaStreamCaptureMode(enum.IntEnum):
    cudaStreamCaptureModeThreadLocal = 1


class cudaDeviceAttr(enum.IntEnum):
    cudaDevAttrMemoryClockRate = 36
    cudaDevAttrGlobalMemoryBusWidth = 37


class Gpu:
    """The state and counters of the fake GPU; tests modify it."""

    def __init__(self) -> None:
        self.devices = 1
        self.properties = SimpleNamespace(
            name=b"Stand-in GPU", major=8, minor=9, multiProcessorCount=58, totalGlobalMem=2**34, l2CacheSize=48 * 2**20
        )
        self.captures = True  # False: capturing fails
        self.full = False  # True: out of memory
        self.blocks: dict[int, Any] = {}
        self.capturing: list[Callable[[], None]] | None = None
        self.launches = self.executions = self.copies = 0

    def do(self, work: Callable[[], None]) -> None:
        if self.capturing is not None:
            self.capturing.append(work)
        else:
            work()


GPU = Gpu()
OK = cudaError_t.cudaSuccess


def cudaGetErrorString(error: Any) -> Any:
    return OK, f"error {int(error)}".encode()


def cudaGetDeviceCount() -> Any:
    return (OK, GPU.devices) if GPU.devices else (cudaError_t.cudaErrorNoDevice, None)


def cudaGetDeviceProperties(device: int) -> Any:
    return OK, GPU.properties


def cudaDeviceGetAttribute(attr: Any, device: int) -> Any:
    return OK, {36: 6_251_000, 37: 192}[int(attr)]


def cudaDriverGetVersion() -> Any:
    return OK, 13010


def cudaRuntimeGetVersion() -> Any:
    return OK, 13000


def cudaMalloc(size: int) -> Any:
    if GPU.full:
        return cudaError_t.cudaErrorMemoryAllocation, None
    block = (ctypes.c_byte * size)()
    ctypes.memset(block, 0xFF, size)  # NaN as floats, to expose reads of uninitialized memory
    GPU.blocks[ctypes.addressof(block)] = block
    return OK, ctypes.addressof(block)


def cudaMallocHost(size: int) -> Any:
    return cudaMalloc(size)


def cudaFree(devPtr: int) -> Any:
    del GPU.blocks[devPtr]
    return (OK,)


def cudaFreeHost(ptr: int) -> Any:
    return cudaFree(ptr)


def _known(address: int, size: int) -> None:
    start = max((each for each in GPU.blocks if each <= address), default=None)
    assert start is not None and address + size <= start + len(GPU.blocks[start]), "outside any memory"


def cudaMemcpyAsync(dst: int, src: int, count: int, kind: Any, stream: Any) -> Any:
    assert kind is cudaMemcpyKind.cudaMemcpyDefault and int(stream)
    _known(dst, count)
    _known(src, count)

    def work() -> None:
        GPU.copies += 1
        ctypes.memmove(dst, src, count)

    GPU.do(work)
    return (OK,)


def cudaMemsetAsync(devPtr: int, value: int, count: int, stream: Any) -> Any:
    _known(devPtr, count)

    def work() -> None:
        ctypes.memset(devPtr, value, count)

    GPU.do(work)
    return (OK,)


cudaStreamNonBlocking = 1


def cudaStreamCreateWithFlags(flags: int) -> Any:
    return OK, 7


def cudaStreamDestroy(stream: Any) -> Any:
    return (OK,)


def cudaStreamSynchronize(stream: Any) -> Any:
    assert GPU.capturing is None, "a stream that is captured can't be waited for"
    return (OK,)


def cudaStreamBeginCapture(stream: Any, mode: Any) -> Any:
    if not GPU.captures:
        return (cudaError_t.cudaErrorStreamCaptureUnsupported,)
    GPU.capturing = []
    return (OK,)


def cudaStreamEndCapture(stream: Any) -> Any:
    graph, GPU.capturing = GPU.capturing, None
    return OK, graph


def cudaGraphInstantiate(graph: Any, flags: int) -> Any:
    return OK, list(graph)


def cudaGraphDestroy(graph: Any) -> Any:
    return (OK,)


def cudaGraphExecDestroy(graphExec: Any) -> Any:
    return (OK,)


def cudaGraphLaunch(graphExec: Any, stream: Any) -> Any:
    GPU.launches += 1
    for work in graphExec:
        work()
    return (OK,)


def cudaEventCreate() -> Any:
    return OK, SimpleNamespace(at=0.0)


def cudaEventDestroy(event: Any) -> Any:
    return (OK,)


def cudaEventRecord(event: Any, stream: Any) -> Any:
    event.at = time.perf_counter()
    return (OK,)


def cudaEventSynchronize(event: Any) -> Any:
    return (OK,)


def cudaEventElapsedTime(start: Any, end: Any) -> Any:
    return OK, max(end.at - start.at, 1e-9) * 1e3


CUDA_NAMES = [name for name in globals() if name.startswith("cuda")]


# --- TensorRT ---------------------------------------------------------------------------------------------------------


class ILogger:
    class Severity(enum.IntEnum):
        INTERNAL_ERROR = 0
        ERROR = 1
        WARNING = 2

    def log(self, severity: Any, msg: str) -> None: ...


class NetworkDefinitionCreationFlag(enum.IntEnum):
    STRONGLY_TYPED = 1


class BuilderFlag(enum.IntEnum):
    TF32 = 7


class LayerType(enum.IntEnum):
    PLUGIN_V3 = 46
    GATHER = 12


class ILayer:
    def __init__(self, type: Any) -> None:
        self.type = type


class IPluginRegistry:
    def __init__(self) -> None:
        self._loaded: list[str] = []

    def load_library(self, plugin_path: str) -> Any:
        if plugin_path in self._loaded or not Path(plugin_path).read_bytes().startswith(b"plugin"):
            return None
        self._loaded.append(plugin_path)
        return object()

    def get_creator(self, type: str, version: str, plugin_namespace: str = "") -> Any:
        known = self._loaded and type in ("VCRNN", "VCGRU", "VCLSTM") and (version, plugin_namespace) == ("1", "")
        return object() if known else None


class INetworkDefinition:
    def __init__(self, registry: IPluginRegistry) -> None:
        self._registry, self._layers, self._content = registry, list[ILayer](), b""

    @property
    def num_layers(self) -> int:
        return len(self._layers)

    def get_layer(self, index: int) -> ILayer:
        return self._layers[index]


class ParserError:
    def __init__(self, text: str) -> None:
        self._text = text

    def desc(self) -> str:
        return self._text


class OnnxParser:
    plugin_is_taken: ClassVar[bool] = True  # False: use the function body instead
    num_errors = 0

    def __init__(self, network: INetworkDefinition, logger: Any) -> None:
        self._network, self._errors = network, list[ParserError]()

    def parse(self, model: bytes, path: str | None = None) -> bool:
        self._network._content = model
        for node in onnx.load_model_from_string(model).graph.node:
            ours = node.op_type.startswith("VC")
            attributes = {each.name: each.s.decode() for each in node.attribute if each.name.startswith("plugin_")}
            if ours and self._network._registry.get_creator(node.op_type, **_as_arguments(attributes)) is None:
                self._errors.append(ParserError(f"no plugin {node.op_type}"))
            taken = ours and self.plugin_is_taken
            self._network._layers.append(ILayer(LayerType.PLUGIN_V3 if taken else LayerType.GATHER))
        self.num_errors = len(self._errors)
        return not self._errors

    def get_error(self, index: int) -> ParserError:
        return self._errors[index]


def _as_arguments(attributes: dict[str, str]) -> dict[str, str]:
    return {"version": attributes["plugin_version"], "plugin_namespace": attributes["plugin_namespace"]}


class IOptimizationProfile:
    def __init__(self) -> None:
        self._shapes: dict[str, list[tuple[int, ...]]] = {}

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:
        self._shapes[input] = [tuple(min), tuple(opt), tuple(max)]


class ITimingCache:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def serialize(self) -> bytes:
        return self._content + b"+"


class IBuilderConfig:
    def __init__(self) -> None:
        self.plugins_to_serialize: list[str] = []
        self._profiles: list[IOptimizationProfile] = []
        self._cleared: list[Any] = []

    def clear_flag(self, flag: Any) -> None:
        self._cleared.append(flag)

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        self._profiles.append(profile)
        return len(self._profiles) - 1

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache:
        return ITimingCache(serialized_timing_cache)

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        self._cache = cache
        return b"other" not in cache._content

    def get_timing_cache(self) -> ITimingCache:
        return self._cache


class Builder:
    def __init__(self, logger: Any) -> None:
        self._registry = IPluginRegistry()

    def get_plugin_registry(self) -> IPluginRegistry:
        return self._registry

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        assert flags == 1 << NetworkDefinitionCreationFlag.STRONGLY_TYPED
        return INetworkDefinition(self._registry)

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig()

    def create_optimization_profile(self) -> IOptimizationProfile:
        return IOptimizationProfile()

    def build_serialized_network(self, network: INetworkDefinition, config: IBuilderConfig) -> bytes | None:
        assert BuilderFlag.TF32 in config._cleared
        PLANS.append([each._shapes for each in config._profiles])
        inside = b"plugin inside " if config.plugins_to_serialize else b""
        return b"plan " + str(len(PLANS) - 1).encode() + b" " + inside + b"of " + network._content


PLANS: list[list[dict[str, list[tuple[int, ...]]]]] = []  # profiles of each plan built


class Runtime:
    refuses: ClassVar[bool] = False

    def __init__(self, logger: Any) -> None:
        self.engine_host_code_allowed = False
        self._registry, self._logger = IPluginRegistry(), logger

    def get_plugin_registry(self) -> IPluginRegistry:
        return self._registry

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> Any:
        head, _, content = serialized_engine.partition(b"of ")
        embedded = b"plugin inside" in head and self.engine_host_code_allowed
        known = embedded or self._registry._loaded or b"trt.plugins" not in content
        if self.refuses or not head.startswith(b"plan ") or not known:
            self._logger.log(ILogger.Severity.ERROR, "the stand-in refuses this plan")
            return None
        return ICudaEngine(content, PLANS[int(head.split()[1])])


class ICudaEngine:
    def __init__(self, content: bytes, profiles: list[dict[str, list[tuple[int, ...]]]]) -> None:
        self._content, self._profiles = content, profiles
        self._names = ["tokens", "state", "logits", "state_out", "compute"]

    @property
    def num_io_tensors(self) -> int:
        return len(self._names)

    def get_tensor_name(self, index: int) -> str:
        return self._names[index]

    def create_execution_context(self) -> Any:
        return IExecutionContext(self)


def _network(content: bytes) -> Any:
    """A model that runs the content of a plan."""
    properties = reader.read(content).metadata
    config = reader.read_config(properties, "the plan")
    if not UNITS[config["unit"]].variable:
        from vcdeploy.runtime.onnxruntime import OnnxRuntimeModel

        return OnnxRuntimeModel(content)
    from vcdeploy.runtime.native import NativeModel

    vocab = reader.read_vocabulary(properties, config, "the plan")
    settings = {name: config[name] for name in ("unit", "sharpness", "epsilon", "precision")}
    model = seal(unpack(onnx.load_model_from_string(content)))
    return NativeModel(reader.read(model.SerializeToString()).weights, vocab, **settings)


def unpack(model: onnx.ModelProto) -> onnx.ModelProto:
    """Restore U and V of a plugin graph, in place, as an exported file has them."""
    D = model.graph.input[1].type.tensor_type.shape.dim[2].dim_value  # of the state
    for tensor in model.graph.initializer:
        if len(tensor.dims) == 5:
            blocks, panels, gates, rows, columns = tensor.dims
            packed = numpy_helper.to_array(tensor).transpose(2, 1, 3, 0, 4)
            matrix = packed.reshape(gates, panels * rows, blocks * columns)[:, :D, :D]
            tensor.CopyFrom(numpy_helper.from_array(matrix.reshape(gates * D, D), tensor.name))
    return model


class IExecutionContext:
    def __init__(self, engine: ICudaEngine) -> None:
        self._engine, self._network = engine, _network(engine._content)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._called: tuple[Any, ...] = ()

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        self._profile = self._engine._profiles[profile_index]
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        low, _, high = self._profile[name]
        self._shapes[name] = shape
        return all(least <= size <= most for least, size, most in zip(low, shape, high, strict=True))

    def set_tensor_address(self, name: str, memory: int) -> bool:
        assert memory in GPU.blocks
        self._addresses[name] = memory
        return name in self._engine._names

    def infer_shapes(self) -> list[str]:
        return [name for name in ("tokens", "state") if name not in self._shapes]

    def execute_async_v3(self, stream_handle: int) -> bool:
        shapes, addresses = dict(self._shapes), dict(self._addresses)
        key = tuple(sorted(shapes.items()))
        assert GPU.capturing is None or self._called == key, "TensorRT wants a plain call of a shape before a capture"
        self._called = key
        GPU.do(lambda: self._compute(shapes, addresses))
        return True

    def _compute(self, shapes: dict[str, tuple[int, ...]], addresses: dict[str, int]) -> None:
        GPU.executions += 1

        def at(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            _known(addresses[name], size)
            raw = (ctypes.c_byte * size).from_address(addresses[name])
            return np.frombuffer(raw, dtype).reshape(shape)

        tokens, state = at("tokens", shapes["tokens"], np.int64), at("state", shapes["state"], np.float32)
        outputs = self._network.run(tokens.copy(), state.copy())
        for name, made in zip(("logits", "state_out", "compute"), outputs, strict=True):
            at(name, made.shape, np.float32)[...] = made


TENSORRT_CLASSES = (
    ILogger, NetworkDefinitionCreationFlag, BuilderFlag, LayerType, ILayer, IPluginRegistry, INetworkDefinition,
    ParserError, OnnxParser, IOptimizationProfile, ITimingCache, IBuilderConfig, Builder, Runtime, ICudaEngine,
    IExecutionContext,
)  # fmt: skip
VERSION = "11.4.0.106"


def module(name: str, contents: dict[str, Any]) -> ModuleType:
    made = ModuleType(name)
    made.__spec__ = ModuleSpec(name, None)
    for key, value in contents.items():
        setattr(made, key, value)
    return made


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, plugin: bool = True) -> Gpu:
    """Replace cuda-python and TensorRT by the stand-ins, with or without a plugin."""
    global GPU
    GPU = Gpu()
    PLANS.clear()
    classes = {each.__name__: each for each in TENSORRT_CLASSES}
    runtime = module("cuda.bindings.runtime", {name: globals()[name] for name in CUDA_NAMES})
    bindings = module("cuda.bindings", {"runtime": runtime, "__version__": "13.0"})
    modules = {
        "tensorrt": module("tensorrt", {**classes, "__version__": VERSION}),
        "cuda": module("cuda", {"bindings": bindings}),
        "cuda.bindings": bindings,
        "cuda.bindings.runtime": runtime,
    }
    for name, each in modules.items():
        monkeypatch.setitem(sys.modules, name, each)
    library = folder / "installed" / plugin_files.CORE
    library.parent.mkdir(exist_ok=True)
    if plugin:
        library.write_bytes(b"plugin of the stand-in")
    monkeypatch.setattr(plugin_files, "library", lambda name=plugin_files.CORE: library if plugin else None)
    return GPU


def uninstall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine without TensorRT and cuda-python."""
    for name in ("tensorrt", "cuda", "cuda.bindings", "cuda.bindings.runtime"):
        monkeypatch.setitem(sys.modules, name, None)
