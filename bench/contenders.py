"""Contenders: an engine and what it runs, known by name; and which of them can't run here, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy import extras
from vcdeploy.errors import VcdeployError
from vcdeploy.runtime import loading
from vcdeploy.runtime.loading import PRECISIONS, Model

# The dense units a variable one is measured against; the first is what ratios refer to.
DENSE = {"vcrnn": ("rnn",), "vcgru": ("gru", "lstm"), "vclstm": ("lstm", "gru")}
ENGINES = {"onnxruntime": "ONNX Runtime", "torch": "PyTorch", "openvino": "OpenVINO"}
FUNCTION, CUSTOM_OP, BUCKETED = "function", "custom op", "bucketed"  # what OnnxRuntimeModel.form says
SLOW_STEPS = "a single step of nn.LSTM takes PyTorch far longer than a step of a sequence: no fair figure"


class Absent(Exception):
    """A contender can't run here, and that is no fault: why, and what mends it."""


@dataclass(frozen=True)
class Contender:
    """What one worker runs.

    file: the model, in the folder of the run. form: how the engine must run it, where it could run it in several ways.
    """

    name: str
    engine: str  # native, onnxruntime, torch or openvino
    unit: str
    file: str
    form: str
    precision: str = "f32"
    table: bool = False

    @property
    def variable(self) -> bool:
        return self.unit.startswith("vc")

    def refuses(self, scenario: str) -> str | None:
        """Why a scenario is not measured."""
        slow = (self.engine, self.unit) == ("torch", "lstm") and scenario in ("step", "generate")
        return SLOW_STEPS if slow else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def contenders(unit: str, precisions: Sequence[str] = PRECISIONS) -> list[Contender]:
    """All there are for a variable unit, in the order of reports."""
    found = [Contender("native f32", "native", unit, f"{unit}.onnx", "plain")] if "f32" in precisions else []
    found += [
        Contender(f"native {each} + table", "native", unit, f"{unit}.onnx", "table", each, table=True)
        for each in PRECISIONS
        if each in precisions
    ]
    for form in (CUSTOM_OP, FUNCTION, BUCKETED):
        file = f"{unit}-bucketed.onnx" if form == BUCKETED else f"{unit}.onnx"
        found.append(Contender(f"onnxruntime {form}", "onnxruntime", unit, file, form))
    for engine in ENGINES:
        for dense in DENSE[unit] if engine != "openvino" else DENSE[unit][:1]:
            found.append(Contender(f"{engine} {dense}", engine, dense, f"{dense}.onnx", "dense"))
    return found


def choose(known: Sequence[Contender], wanted: Sequence[str]) -> list[Contender]:
    """Those whose name is one of the wanted, or begins with it; all where nothing is wanted."""
    chosen: set[str] = set()
    names = [each.name for each in known]
    for want in wanted:
        found = [want] if want in names else [name for name in names if name.startswith(want)]
        if not found:
            raise VcdeployError(f"no contender {want!r}; there are: {', '.join(names)}")
        chosen.update(found)
    return [each for each in known if each.name in chosen or not wanted]


def absence(contender: Contender) -> str | None:
    """Why a contender can't run here, with what mends it, as far as that shows without loading its model."""
    engine = contender.engine
    if engine == "native":
        fault = loading.native_fault()
        return fault and f"the native module can't be used ({fault}): `vcdeploy doctor` says how to mend it"
    if find_spec(engine) is None:
        command = extras.install_command(engine) if engine in extras.EXTRAS else f"pip install {engine}"
        return f"{ENGINES[engine]} is not installed; run: {command}"
    return None


def load(contender: Contender, folder: Path, threads: int) -> Model:
    """The contender's model, ready to run; raises Absent where it turns out that it can't."""
    file = folder / contender.file
    if contender.engine == "openvino":
        return _openvino(file, threads)
    if contender.engine == "native" and not contender.table:
        return _without_table(file, contender.precision, threads)
    model = loading.load(file, contender.engine, contender.precision, threads)
    runner = model._runner
    if contender.table and not runner.table_bytes:
        raise Absent(f"{len(model.vocab)} symbols are too many for a table within the memory it may take")
    if contender.engine == "onnxruntime" and runner.form != contender.form:
        raise Absent(f"vcdeploy.load runs such a file as {runner.form!r} in ONNX Runtime here")
    return model


def _without_table(file: Path, precision: str, threads: int) -> Model:
    from vcdeploy.runtime.native import NativeModel

    source = loading.open_source(file)
    config = source.config
    settings = {name: config[name] for name in ("unit", "sharpness", "epsilon")}
    runner = NativeModel(
        source.weights(), source.vocab, **settings, precision=precision, threads=threads, table_bytes=0
    )
    return Model("native", config, source.vocab, precision, str(file), runner)


class OpenVinoModel:
    """A dense exported file in OpenVINO; files with functions would need those inlined first."""

    def __init__(self, file: Path, rows: int, dim: int, threads: int) -> None:
        import openvino

        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",  # where a processor has bfloat16 it would take that
        }
        self._request = openvino.Core().compile_model(str(file), "CPU", settings).create_infer_request()
        self._rows, self._dim = rows, dim

    def run(self, tokens: NDArray[np.int64], state: NDArray[np.float32] | None = None, position: int = 0) -> Any:
        if state is None:
            state = np.zeros((self._rows, tokens.shape[1], self._dim), np.float32)
        made = self._request.infer({"tokens": tokens, "state": state})
        return made["logits"], made["state_out"], made["compute"]


def _openvino(file: Path, threads: int) -> Model:
    source = loading.open_source(file)
    config = source.config
    rows = config["layers"] * (2 if config["unit"] == "lstm" else 1)
    runner = OpenVinoModel(file, rows, config["dim"], threads)
    return Model("openvino", config, source.vocab, "f32", str(file), runner)
