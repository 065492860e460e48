"""The interface of a backend, and the registry used by load, doctor, the export check and bench.

A backend is a module with a function `start`, and a row in BACKENDS.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import VcdeployError
from vcdeploy.extras import install_command, require
from vcdeploy.runtime.limits import Check
from vcdeploy.runtime.session import Sequences
from vcdeploy.spec import UNITS

if TYPE_CHECKING:
    from vcdeploy.runtime.sources import Source

Arrays = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]


class Backend(Protocol):
    """A model on one backend."""

    @property
    def detail(self) -> str:
        """The variant in use: native's instruction set, ONNX Runtime's custom op or function body, the GPU, …"""

    def run(self, tokens: NDArray[np.int64], state: NDArray[np.float32] | None = None, position: int = 0) -> Arrays:
        """tokens [T, B], state [S, B, D] -> logits [T, B, vocab], state [S, B, D], m [T, B, layers].

        position: number of symbols processed so far; only the CRNN on bits needs it.
        """

    def sequences(self, batch: int) -> Sequences:
        """New sequences, from zero states."""


class Interruptible:
    """Base class of backends that call `check` every few milliseconds; an exception that it raises ends the call.

    They also compute only the logits that are wanted: all, the last, or none. Other backends are checked between their
    calls (runtime/limits.py).
    """

    def run(
        self,
        tokens: NDArray[np.int64],
        state: NDArray[np.float32] | None = None,
        position: int = 0,
        check: Check | None = None,
        logits: str = "all",
    ) -> Arrays:
        raise NotImplementedError


@dataclass(frozen=True)
class Row:
    """A backend in the registry.

    module: its `start(source, precision, threads, variant)` returns a Backend. requires: optional packages it needs.
    variable, dense, crnn: the units it runs. repacks: whether it can change the precision of a file's weights.
    """

    name: str
    module: str
    requires: tuple[str, ...] = ()
    variable: bool = True
    dense: bool = True
    crnn: bool = False
    repacks: bool = False
    gpu: bool = False

    def runs(self, unit: str) -> bool:
        if UNITS[unit].variable:
            return self.variable
        return self.dense if UNITS[unit].exports else self.crnn

    def fault(self) -> str | None:
        """Why the backend can't be used here; None if it can."""
        for module in self.requires:
            if not find_spec(module):
                return f"{module} is not installed; run: {install_command(module)}"
        if self.name == "native":
            return native_fault()
        return None

    def start(self, source: Source, precision: str, threads: int, isa: str | None = None) -> Backend:
        """Start a model on this backend. The part of the name after the colon is passed to the module as variant.

        isa: the instruction set, which is the variant of native.
        """
        name, _, variant = self.name.partition(":")
        if isa is not None:
            if name != "native":
                raise VcdeployError(f"only the native backend has instruction sets: omit isa, or use it, not {name}")
            variant = isa
        for module in self.requires:
            require(module, for_=f"the {name} backend")
        if (fault := self.fault()) is not None:
            raise VcdeployError(
                f"the {name} backend can't be used here ({fault}): `vcdeploy doctor` says how to fix it"
            )
        backend: Backend = import_module(self.module).start(source, precision, threads, variant)
        return backend


FUNCTION_BODY = "onnxruntime:function"  # ONNX Runtime without our custom op

# In the order `auto` tries them. `auto` never chooses a GPU backend.
BACKENDS = {
    row.name: row
    for row in (
        Row("native", "vcdeploy.runtime.native", repacks=True),
        Row("onnxruntime", "vcdeploy.runtime.onnxruntime", ("onnxruntime",)),
        Row("torch", "vcdeploy.runtime.torch", ("torch",), crnn=True),
        Row(FUNCTION_BODY, "vcdeploy.runtime.onnxruntime", ("onnxruntime",)),
        # An engine of `vcdeploy export --trt`; ONNX Runtime's CUDA provider; its TensorRT provider with our plugin.
        Row("tensorrt", "vcdeploy.gpu.tensorrt", gpu=True),
        Row("onnxruntime:cuda", "vcdeploy.gpu.providers", ("onnxruntime",), gpu=True),
        Row("onnxruntime:tensorrt", "vcdeploy.gpu.providers", ("onnxruntime",), gpu=True),
    )
}
CHOICES = ("auto", *BACKENDS)


def choose(unit: str) -> Row:
    """The first backend that is installed and runs the unit."""
    for row in BACKENDS.values():
        if not row.gpu and row.runs(unit) and row.fault() is None:
            return row
    raise VcdeployError(
        f"no backend here runs {unit}: install ONNX Runtime with {install_command('onnxruntime')}, "
        f"or PyTorch with {install_command('torch')}; `vcdeploy doctor` shows what else is missing"
    )


def native_fault() -> str | None:
    """Why the native module can't be used; None if it can."""
    try:
        import_module("vcdeploy._native")
    except ImportError as error:
        return str(error)
    return None
