"""Engines: a runtime and how it runs a model, selected by name; and why an engine can't run here."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vcdeploy import custom_ops, extras
from vcdeploy.bench import other_runtimes
from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.gpu import plugin_files
from vcdeploy.runtime import backends, sources
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.model import load as load_model
from vcdeploy.spec import DENSE_UNITS, PRECISIONS, TENSORRT_PRECISIONS, UNITS

# The runtimes that dense units are measured in, with their display names.
RUNTIMES = {"onnxruntime": "ONNX Runtime", "torch": "PyTorch", "openvino": "OpenVINO", "jax": "JAX"}
OTHERS = tuple(other_runtimes.RUNTIMES)  # without a backend of vcdeploy
FUNCTION, CUSTOM_OP, BUCKETED = "function", "custom op", "bucketed"  # how ONNX Runtime runs a variable unit
PLUGIN = "plugin"  # how TensorRT runs one
DENSE_FORM, QUANTISED, COMPILED = "dense", "quantised", "compiled"  # how engines run a dense unit
CPU, CUDA = "cpu", "cuda"
ON_GPU = {"torch": "PyTorch with cuDNN", "onnxruntime": "ONNX Runtime's CUDA provider", "tensorrt": "TensorRT"}
COMPILERS = ("g++", "c++", "clang++")
SLOW_STEPS = "PyTorch takes far longer for a single step of nn.LSTM than for a step of a sequence: no fair comparison"


class Absent(Exception):
    """An engine can't run here, which is not an error. The message says why, and how to fix it."""


@dataclass(frozen=True)
class Engine:
    """What one worker runs.

    file: the model, in the folder of the run. form: how the engine runs it, if there are several ways.
    """

    name: str
    runtime: str  # native, tensorrt, or one of RUNTIMES
    unit: str
    file: str
    form: str
    precision: str = "f32"
    table: bool = False
    device: str = CPU

    @property
    def variable(self) -> bool:
        return UNITS[self.unit].variable

    def refuses(self, scenario: str) -> str | None:
        """Why a scenario is not measured; None if it is."""
        dense = (self.runtime, self.unit, self.form, self.device) == ("torch", "lstm", DENSE_FORM, CPU)
        slow = dense and scenario != "sequence"
        return SLOW_STEPS if slow else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def engines(unit: str, precisions: Sequence[str] = tuple(PRECISIONS)) -> list[Engine]:
    """All CPU engines for a variable unit, in report order."""
    found = [Engine("native f32", "native", unit, f"{unit}.onnx", "plain")] if "f32" in precisions else []
    found += [
        Engine(f"native {each} + table", "native", unit, f"{unit}.onnx", "table", each, table=True)
        for each in PRECISIONS
        if each in precisions
    ]
    for form in (CUSTOM_OP, FUNCTION, BUCKETED):
        file = f"{unit}-bucketed.onnx" if form == BUCKETED else f"{unit}.onnx"
        found.append(Engine(f"onnxruntime {form}", "onnxruntime", unit, file, form))
    for runtime in RUNTIMES:
        for dense in UNITS[unit].dense[: 1 if runtime in OTHERS else None]:
            found.append(Engine(f"{runtime} {dense}", runtime, dense, f"{dense}.onnx", DENSE_FORM))
    kin = UNITS[unit].dense[0]
    found += [
        Engine(f"native {kin} {each} + table", "native", kin, f"{kin}.onnx", "table", each, table=True)
        for each in PRECISIONS
        if each in precisions
    ]
    return found


def narrow_op(unit: str, precision: str) -> Engine:
    """Our custom op in ONNX Runtime, with a file whose weights have this narrow precision."""
    name = f"onnxruntime {CUSTOM_OP} {precision}"
    return Engine(name, "onnxruntime", unit, f"{unit}-{precision}.onnx", CUSTOM_OP, precision)


def peers() -> list[Engine]:
    """The alternatives: dense units of every kind, and the faster forms that runtimes offer for them.

    ONNX Runtime's quantiser supports LSTM and leaves GRU and RNN in float32; PyTorch's supports GRU and LSTM.
    """
    found = [Engine(f"onnxruntime {unit}", "onnxruntime", unit, f"{unit}.onnx", DENSE_FORM)
             for unit in DENSE_UNITS]  # fmt: skip
    found.append(Engine("onnxruntime lstm int8", "onnxruntime", "lstm", "lstm.onnx", QUANTISED, "int8"))
    for unit in ("gru", "lstm"):
        found.append(Engine(f"torch {unit}", "torch", unit, f"{unit}.onnx", DENSE_FORM))
        found.append(Engine(f"torch {unit} int8", "torch", unit, f"{unit}.onnx", QUANTISED, "int8"))
    found.append(Engine("torch gru compiled", "torch", "gru", "gru.onnx", COMPILED))
    for runtime in OTHERS:
        found += [Engine(f"{runtime} {unit}", runtime, unit, f"{unit}.onnx", DENSE_FORM) for unit in ("gru", "lstm")]
    return found


def gpu_engines(unit: str, precisions: Sequence[str] = tuple(PRECISIONS)) -> list[Engine]:
    """All GPU engines for a variable unit, in report order."""
    found = [
        Engine(f"tensorrt {each}", "tensorrt", unit, f"{unit}-{each}.onnx", PLUGIN, each, device=CUDA)
        for each in TENSORRT_PRECISIONS
        if each in precisions
    ]
    portable = f"{unit}-f32.onnx"
    found.append(Engine("onnxruntime cuda", "onnxruntime", unit, portable, FUNCTION, device=CUDA))
    found.append(Engine("onnxruntime tensorrt", "onnxruntime", unit, portable, PLUGIN, device=CUDA))
    for runtime in ON_GPU:
        for dense in UNITS[unit].dense:
            found.append(Engine(f"{runtime} {dense}", runtime, dense, f"{dense}.onnx", DENSE_FORM, device=CUDA))
    return found


def choose(known: Sequence[Engine], wanted: Sequence[str]) -> list[Engine]:
    """The engines whose name is, or starts with, one of the wanted names; all of them if no name is given."""
    chosen: set[str] = set()
    names = [each.name for each in known]
    for want in wanted:
        found = [want] if want in names else [name for name in names if name.startswith(want)]
        if not found:
            raise BadValue(f"no engine {want!r}; there are: {', '.join(names)}")
        chosen.update(found)
    return [each for each in known if each.name in chosen or not wanted]


def absence(engine: Engine) -> str | None:
    """Why an engine can't run here, and how to fix it, as far as is known without loading its model; None if it can."""
    runtime = engine.runtime
    if engine.device == CUDA:
        return _absence_on_gpu(engine)
    if runtime == "native":
        fault = backends.native_fault()
        return fault and f"the native module can't be used ({fault}): `vcdeploy doctor` says how to fix it"
    if engine.form == CUSTOM_OP and custom_ops.library() is None:
        return f"the custom-op library was not built: {custom_ops.HOW_TO_BUILD}"
    if find_spec(runtime) is None:
        command = extras.install_command(runtime) if runtime in extras.EXTRAS else f"pip install {runtime}"
        return f"{RUNTIMES[runtime]} is not installed; run: {command}"
    if engine.form == COMPILED and not any(map(shutil.which, COMPILERS)):
        return f"torch.compile needs a C++ compiler, and none of {', '.join(COMPILERS)} was found"
    return None


def _absence_on_gpu(engine: Engine) -> str | None:
    runtime = engine.runtime
    if find_spec(runtime) is None:
        return f"{ON_GPU[runtime]} is not installed; run: {extras.install_command(runtime)}"
    if engine.form == PLUGIN:
        name = plugin_files.CORE if runtime == "tensorrt" else plugin_files.REGISTERING
        if plugin_files.library(name) is None:
            return f"{name} was not found: {plugin_files.HOW_TO_BUILD}"
    if runtime == "torch":
        import torch

        return None if torch.cuda.is_available() else f"PyTorch {torch.__version__} finds no CUDA: see pytorch.org"
    if runtime == "onnxruntime":
        from vcdeploy.gpu.providers import PROVIDERS, provider_fault

        return provider_fault(PROVIDERS["tensorrt" if engine.form == PLUGIN else "cuda"].provider)
    return None


def load(engine: Engine, folder: Path, threads: int, steps: int = 1, batch: int = 1) -> Model:
    """Load the engine's model; raises Absent if it turns out that it can't run here.

    steps, batch: the largest call that a TensorRT engine is built for.
    """
    file = folder / engine.file
    if engine.device == CUDA:
        return _on_gpu(engine, file, threads, steps, batch)
    if engine.runtime in OTHERS:
        return other_runtimes.load(engine.runtime, file, threads)
    if engine.form in (QUANTISED, COMPILED):
        from vcdeploy.bench import peers

        return peers.load(engine, file, threads)
    if engine.runtime == "native" and not engine.table:
        return _without_table(file, engine.precision, threads)
    backend = backends.FUNCTION_BODY if engine.form == FUNCTION else engine.runtime
    model = load_model(file, backend, engine.precision, threads)
    from vcdeploy.runtime.native import NativeModel

    if engine.table and not (isinstance(model.runner, NativeModel) and model.runner.table_bytes):
        raise Absent(f"{len(model.vocab)} symbols are too many for a table: it would exceed its memory limit")
    return model


def _without_table(file: Path, precision: str, threads: int) -> Model:
    from vcdeploy.runtime.native import NativeModel

    source = sources.open_source(file)
    config = source.config
    settings = {name: config[name] for name in ("unit", "sharpness", "epsilon")}
    runner = NativeModel(
        source.weights(), source.vocab, **settings, precision=precision, threads=threads, table_bytes=0
    )
    return Model("native", config, source.vocab, precision, str(file), runner)


def _on_gpu(engine: Engine, file: Path, threads: int, steps: int, batch: int) -> Model:
    if engine.runtime == "onnxruntime":
        provider = "tensorrt" if engine.form == PLUGIN else "cuda"
        try:
            return load_model(file, f"onnxruntime:{provider}", threads=threads)
        except VcdeployError as error:
            raise Absent(str(error)) from error
    source = sources.open_source(file)
    runner = _torch_on_gpu(source) if engine.runtime == "torch" else _engine(source, file, steps, batch)
    return Model(engine.runtime, source.config, source.vocab, engine.precision, str(file), runner)


def _torch_on_gpu(source: Any) -> Any:
    from vcdeploy.runtime.torch import TorchModel

    return TorchModel(source.network().to("cuda"), source.vocab)


def _engine(source: Any, file: Path, steps: int, batch: int) -> Any:
    """Build a TensorRT engine for calls of 1 to `steps` steps."""
    import onnx

    from vcdeploy.gpu.engine import build_engine
    from vcdeploy.gpu.plugin_graph import plugin_graph
    from vcdeploy.gpu.tensorrt import TensorRtModel

    ranges = {"steps": (1, steps, max(steps, 64)), "batch": (1, batch, batch)}
    graph = plugin_graph(onnx.load(file)).SerializeToString()
    built = build_engine(graph, source.config, ranges["steps"], ranges["batch"], plugin_files.library())
    return TensorRtModel(built.plan, file.parent, ranges, source.config, source.vocab)


def stream_of(model: Model) -> int:
    """The CUDA stream that a model runs on."""
    if model.backend == "torch":
        import torch

        return int(torch.cuda.current_stream().cuda_stream)
    runner: Any = model.runner  # of vcdeploy.gpu: all of them have a stream
    return int(runner.stream.handle)
