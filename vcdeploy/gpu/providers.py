"""ONNX Runtime on a GPU: its CUDA provider with the function body, its TensorRT provider with our plugin.

ONNX Runtime falls back to the CPU if a provider is unavailable, with a warning at most. Here that is an error.

Not run on a GPU yet: the tests run it on a stand-in.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from vcdeploy import extras
from vcdeploy.errors import NoGpu, VcdeployError
from vcdeploy.format.reader import EXPORT_AGAIN
from vcdeploy.gpu import cuda, plugin_files
from vcdeploy.runtime.onnxruntime import OnnxRuntimeModel, form_of, session_options

if TYPE_CHECKING:
    from onnx import ModelProto

    from vcdeploy.runtime.sources import Source

CUDA, TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"
RECORD = "session.record_ep_graph_assignment_info"
HEAVY = {"Scan", "If", "RNN", "GRU", "LSTM", "VCRNN", "VCGRU", "VCLSTM"}  # ops that must run on the provider


def provider_fault(provider: str) -> str | None:
    """Why the installed ONNX Runtime lacks a provider; None if it has it."""
    import onnxruntime

    available = onnxruntime.get_available_providers()
    if provider in available:
        return None
    return (
        f"the installed ONNX Runtime {onnxruntime.__version__} has no {provider} (it has {', '.join(available)}): "
        f"{extras.install_command('tensorrt')}, in an environment without the CPU-only onnxruntime"
    )


class CudaModel(OnnxRuntimeModel):
    """A model file on the CUDA provider: variable units run as function bodies, dense ones with cuDNN."""

    provider = CUDA

    def _start(self, model: ModelProto, content: bytes, threads: int, custom_op: bool) -> tuple[str, Any]:
        self._need_provider()
        form = form_of(model, self.config, custom_op=False)
        return form, self._session_on_gpu(content, threads, [(CUDA, self._cuda_options())])

    def _need_provider(self) -> None:
        if (fault := provider_fault(self.provider)) is not None:
            raise NoGpu(fault)

    def _cuda_options(self) -> dict[str, str]:
        self.stream = cuda.Stream()
        # Without TF32, float32 stays float32. Work on a stream of our own can be timed from outside.
        return {"device_id": "0", "use_tf32": "0", "user_compute_stream": str(self.stream.handle)}

    @property
    def detail(self) -> str:
        """The provider in use, and the form."""
        return f"{self.provider.removesuffix('ExecutionProvider')} provider, {self.form}{self._placed}"

    def _session_on_gpu(self, content: bytes, threads: int, providers: list[tuple[str, dict[str, str]]]) -> Any:
        import onnxruntime

        options = session_options(threads)
        options.add_session_config_entry(RECORD, "1")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # fallbacks are an error below
                session = onnxruntime.InferenceSession(content, options, providers=providers)
            session.disable_fallback()
        except Exception as error:  # its errors have no common type
            reason = str(error).strip().splitlines()[0]
            raise VcdeployError(
                f"ONNX Runtime {onnxruntime.__version__} can't load {self.name} with {self.provider}: {reason}: "
                f"{EXPORT_AGAIN}, or use another backend"
            ) from error
        running = session.get_providers()
        if not running or running[0] != self.provider:
            raise VcdeployError(
                f"ONNX Runtime {onnxruntime.__version__} could not start {self.provider} and used "
                f"{', '.join(running)} instead: its CUDA, cuDNN or TensorRT libraries do not match; `vcdeploy doctor` "
                "shows what is installed"
            )
        self._placed = self._check_places(session)
        return session

    def _check_places(self, session: Any) -> str:
        """The number of nodes on the provider, for detail; raises an error if a heavy op runs elsewhere."""
        if not hasattr(session, "get_provider_graph_assignment_info"):  # before ONNX Runtime 1.24
            return ""
        places = [
            (part.ep_name, node.op_type)
            for part in session.get_provider_graph_assignment_info()
            for node in part.get_nodes()
        ]
        for place, op in places:
            if op in HEAVY and place != self.provider:
                raise VcdeployError(f"ONNX Runtime runs {op} on {place}, not on {self.provider}: use another backend")
        there = sum(place == self.provider for place, _ in places)
        return f", {there} of {len(places)} nodes"


class TensorRtProviderModel(CudaModel):
    """The plugin graph on the TensorRT provider, which builds an engine when the model is loaded."""

    provider = TENSORRT

    def _start(self, model: ModelProto, content: bytes, threads: int, custom_op: bool) -> tuple[str, Any]:
        from vcdeploy.format.functions import used_ops
        from vcdeploy.gpu.engine import BATCH, STEPS
        from vcdeploy.gpu.plugin_graph import plugin_graph

        self._need_provider()
        options: dict[str, str] = {"device_id": "0"}
        form = form_of(model, self.config, custom_op=False)
        if used_ops(model):
            library = plugin_files.library(plugin_files.REGISTERING)
            if library is None:
                raise VcdeployError(
                    f"ONNX Runtime's TensorRT provider needs {plugin_files.REGISTERING}, which is not built; with "
                    f"libnvinfer installed, {plugin_files.HOW_TO_BUILD}"
                )
            form, content = "plugin", plugin_graph(model).SerializeToString()
            options["trt_extra_plugin_lib_paths"] = str(library)
        for place, name in enumerate(("min", "opt", "max")):
            T, B = STEPS[place], BATCH[place]
            options[f"trt_profile_{name}_shapes"] = f"tokens:{T}x{B},state:{self._rows}x{B}x{self.config['dim']}"
        cuda_options = self._cuda_options()
        options["user_compute_stream"] = cuda_options["user_compute_stream"]
        return form, self._session_on_gpu(content, threads, [(TENSORRT, options), (CUDA, cuda_options)])


PROVIDERS = {"cuda": CudaModel, "tensorrt": TensorRtProviderModel}


def start(source: Source, precision: str, threads: int, variant: str) -> CudaModel:
    """The registry's entry point; variant: a key of PROVIDERS."""
    return PROVIDERS[variant](source.content(), threads, name=str(source.file))
