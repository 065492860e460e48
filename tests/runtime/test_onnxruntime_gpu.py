"""ONNX Runtime's GPU providers: the options passed to them, and that nothing else runs in their place.

There is no GPU here: a CPU session stands in for one on the provider, with simulated information about itself.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import stand_in

import vcdeploy
from vcdeploy.bench import models
from vcdeploy.errors import VcdeployError
from vcdeploy.gpu import plugin_files
from vcdeploy.gpu.providers import CUDA, RECORD, TENSORRT

onnxruntime = pytest.importorskip("onnxruntime")
REAL = onnxruntime.InferenceSession


@pytest.fixture
def model(tmp_path: Path) -> Path:
    made = models.synthetic("vcgru", 16, 0.2, 0.8, seed=1)
    made.write(tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


class Session:
    """A session that claims to be on the GPU and runs the function body on the CPU."""

    asked: list[Any]
    running: list[str] | None = None  # the providers it reports; None for the requested ones
    elsewhere = ""  # an op reported to run on the CPU

    def __init__(self, content: bytes, options: Any, providers: list[tuple[str, dict[str, str]]]) -> None:
        type(self).asked = providers
        self.graph = onnx.load_model_from_string(content)
        self.names = [name for name, _ in providers]
        body = content
        if any(node.domain == "trt.plugins" for node in self.graph.graph.node):
            from vcdeploy.export import attach_functions

            for node in self.graph.graph.node:
                node.domain = "vcdeploy" if node.domain else ""
            for opset in self.graph.opset_import:
                opset.domain = "vcdeploy" if opset.domain else ""
            body = attach_functions(stand_in.unpack(self.graph)).SerializeToString()
        self.real = REAL(body, providers=["CPUExecutionProvider"])

    def disable_fallback(self) -> None: ...

    def get_providers(self) -> list[str]:
        return self.running if self.running is not None else [*self.names, "CPUExecutionProvider"]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        ops = ["Gather", "Scan", "VCGRU", "MatMul"]
        place = {op: "CPUExecutionProvider" if op == self.elsewhere else self.names[0] for op in ops}
        return [SimpleNamespace(ep_name=place[op], get_nodes=lambda op=op: [SimpleNamespace(op_type=op)]) for op in ops]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@pytest.fixture
def providers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Session]:
    stand_in.install(monkeypatch, tmp_path)
    kind = type("OfThisTest", (Session,), {})
    monkeypatch.setattr(onnxruntime, "InferenceSession", kind)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [TENSORRT, CUDA])
    return kind


def test_the_real_session_has_what_is_used() -> None:
    for name in ("disable_fallback", "get_providers", "run", "get_inputs", "get_outputs"):
        assert callable(getattr(REAL, name))
    known = onnxruntime.get_all_providers()
    assert CUDA in known and TENSORRT in known


def test_the_real_session_says_where_nodes_run(model: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(RECORD, "1")
    session = REAL(str(model), options, providers=["CPUExecutionProvider"])
    if not hasattr(session, "get_provider_graph_assignment_info"):
        pytest.skip("this ONNX Runtime does not say where nodes run: 1.24 or newer does")
    parts = session.get_provider_graph_assignment_info()
    assert {part.ep_name for part in parts} == {"CPUExecutionProvider"}
    assert "Scan" in {node.op_type for part in parts for node in part.get_nodes()}


@pytest.mark.parametrize(("backend", "form"), [("cuda", "function body"), ("tensorrt", "plugin")])
def test_it_runs_and_says_on_what(backend: str, form: str, model: Path, providers: type[Session]) -> None:
    loaded, other = vcdeploy.load(model, f"onnxruntime:{backend}"), vcdeploy.load(model)
    assert loaded.backend == "onnxruntime"
    name = {"cuda": "CUDA", "tensorrt": "Tensorrt"}[backend]
    assert loaded.detail == f"{name} provider, {form}, 4 of 4 nodes"
    tokens = np.arange(6).reshape(3, 2)
    for one, wanted in zip(loaded.run(tokens), other.run(tokens), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=0, atol=1e-5)
    options = dict(providers.asked)
    assert options[CUDA] == {"device_id": "0", "use_tf32": "0", "user_compute_stream": "7"}
    if backend == "tensorrt":
        asked = options[TENSORRT]
        assert asked["trt_extra_plugin_lib_paths"].endswith(plugin_files.CORE)
        assert asked["trt_profile_min_shapes"] == "tokens:1x1,state:1x1x16"
        assert asked["trt_profile_max_shapes"] == "tokens:512x16,state:1x16x16"


def test_falling_back_is_an_error(model: Path, providers: type[Session]) -> None:
    providers.running = ["CPUExecutionProvider"]
    with pytest.raises(
        VcdeployError, match=r"could not start CUDAExecutionProvider and used CPUExecutionProvider instead"
    ):
        vcdeploy.load(model, "onnxruntime:cuda")
    providers.running = [CUDA]
    with pytest.raises(VcdeployError, match=r"could not start TensorrtExecutionProvider and used CUDAExecution"):
        vcdeploy.load(model, "onnxruntime:tensorrt")


@pytest.mark.parametrize(("backend", "op"), [("cuda", "Scan"), ("tensorrt", "VCGRU")])
def test_the_unit_must_run_there(backend: str, op: str, model: Path, providers: type[Session]) -> None:
    providers.elsewhere = op
    with pytest.raises(VcdeployError, match=f"runs {op} on CPUExecutionProvider, not on"):
        vcdeploy.load(model, f"onnxruntime:{backend}")
    providers.elsewhere = "Gather"
    assert "3 of 4 nodes" in vcdeploy.load(model, f"onnxruntime:{backend}").detail


def test_an_onnxruntime_without_the_provider(model: Path) -> None:
    if CUDA in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has it")
    with pytest.raises(
        VcdeployError,
        match=r"the installed ONNX Runtime .* has no CUDAExecutionProvider \(it has .*pip install \"onnxruntime-gpu",
    ):
        vcdeploy.load(model, "onnxruntime:cuda")


def test_the_plugin_is_needed(model: Path, providers: type[Session], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_files, "library", lambda name="": None)
    with pytest.raises(VcdeployError, match=r"needs libvcdeploy_tensorrt_register\.so, which is not built"):
        vcdeploy.load(model, "onnxruntime:tensorrt")
