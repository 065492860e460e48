"""The ONNX Runtime backend: an exported file behind the common interface.

By default the units run on the kernels of the custom-op library (plugins/onnxruntime), which skip. On request, or if
the installation lacks the library, they run on the file's function body, which computes densely.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy import extras
from vcdeploy.custom_ops import library
from vcdeploy.errors import VcdeployError
from vcdeploy.format.reader import EXPORT_AGAIN, read_config, read_vocabulary
from vcdeploy.runtime.backends import PythonLoop
from vcdeploy.spec import DENSE_UNITS, PRECISIONS, UNITS
from vcdeploy.vocabulary import Vocabulary

if TYPE_CHECKING:
    from onnx import ModelProto

    from vcdeploy.runtime.sources import Source

CUSTOM_OP, FUNCTION_BODY = "custom op", "function body"
OUTPUTS = ("logits", "state_out", "compute")


class OnnxRuntimeModel(PythonLoop):
    """A file of `vcdeploy export`, or any file that follows docs/design.md, section 2.

    form says what runs: "custom op" (the kernels of plugins/cpu, which skip), "function body" (standard ops, which
    compute densely), "bucketed" (If nodes, which skip), "portable" (Loop nodes), "dense" (ONNX's own RNN, GRU or LSTM
    op) or "standard ops" (a variable unit that another exporter built from standard ops).
    """

    backend = "onnxruntime"

    def __init__(
        self,
        source: Path | str | bytes,
        threads: int = 1,
        custom_op: bool = True,
        name: str = "the model",
        description: tuple[dict[str, Any], Vocabulary] | None = None,
    ) -> None:
        """source: the file, or its content with a name for errors.

        custom_op: False to use the function body even if the library exists. description: the configuration and
        vocabulary in the file, if they have been read already.
        """
        extras.require("onnxruntime", for_="the onnxruntime backend")
        self.name = name if isinstance(source, bytes) else str(source)
        content = source if isinstance(source, bytes) else _read(Path(source))
        model = _parse(content, self.name)
        self.config, self.vocab = description or _description(model, self.name)
        self._rows = self.config["layers"] * UNITS[self.config["unit"]].state_rows
        self.form, self._session = self._start(model, content, threads, custom_op)
        self._check_signature()

    def _start(self, model: ModelProto, content: bytes, threads: int, custom_op: bool) -> tuple[str, Any]:
        """Choose the form and open its session."""
        from vcdeploy.format.functions import check_bodies

        found = library()
        self.form = form_of(model, self.config, found is not None and custom_op)
        self._check_levels(model)
        if self.form == CUSTOM_OP:
            check_bodies(model, self.name)
        if not custom_op and self.form != FUNCTION_BODY:
            raise VcdeployError(f"{self.name} is {self.form} and has no function body: use the backend onnxruntime")
        return self.form, self._open(model, content, threads, found if self.form == CUSTOM_OP else None)

    @property
    def detail(self) -> str:
        """The form in use."""
        return self.form

    def run(
        self, tokens: NDArray[np.int64], state: NDArray[np.float32] | None = None, position: int = 0
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """tokens [T, B], state [S, B, D] -> logits [T, B, vocab], state [S, B, D], m [T, B, layers].

        position is part of the common interface; no exported unit needs it.
        """
        if state is None:
            state = np.zeros((self._rows, tokens.shape[1], self.config["dim"]), np.float32)
        try:
            logits, after, compute = self._session.run(OUTPUTS, {"tokens": tokens, "state": state})
        except Exception as error:  # ONNX Runtime's errors have no common base class
            reason = str(error).strip().splitlines()[0]
            raise VcdeployError(f"ONNX Runtime can't run {self.name} ({self.form}): {reason}") from error
        return logits, after, compute

    def __repr__(self) -> str:
        unit, dim = self.config["unit"], self.config["dim"]
        return f"OnnxRuntimeModel({self.name}: {unit}-{dim}, {self.config['precision']}, {self.form})"

    def _open(self, model: ModelProto, content: bytes, threads: int, custom_ops: Path | None) -> Any:
        import onnxruntime

        options = session_options(threads)
        remedy = EXPORT_AGAIN
        try:
            if custom_ops is not None:
                remedy += ", or use the backend onnxruntime:function, which needs no custom op"
                options.add_session_config_entry("vcdeploy.threads", str(threads))
                options.add_session_config_entry("vcdeploy.precision", self.config["precision"])
                options.register_custom_ops_library(str(custom_ops))
                # Without function bodies ONNX Runtime can't fall back to them silently.
                content = _without_bodies(model)
            return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's errors have no common base class
            reason = str(error).strip().splitlines()[0]
            if "is not a registered function/op" in reason and custom_ops is None:
                reason += "; the functions of its ops are missing: vcdeploy.export.attach_functions adds them"
            raise VcdeployError(
                f"ONNX Runtime {onnxruntime.__version__} can't load {self.name} ({self.form}: {reason}): {remedy}"
            ) from error

    def _check_levels(self, model: ModelProto) -> None:
        """Raise unless the ops of a quantized file declare the activation levels of this version."""
        from vcdeploy.format.functions import levels_of_ops
        from vcdeploy.format.precision import activation_levels

        precision = self.config["precision"]
        if not PRECISIONS[precision].levels or self.form not in (CUSTOM_OP, FUNCTION_BODY):
            return
        wanted = activation_levels(precision, self.config["dim"])
        if (found := levels_of_ops(model)) != {wanted}:
            raise VcdeployError(
                f"{self.name} is {precision}, but its ops have activation_levels {sorted(found, key=str)} "
                f"instead of {wanted}: {EXPORT_AGAIN}"
            )

    def _check_signature(self) -> None:
        D, layers = self.config["dim"], self.config["layers"]
        wanted = {
            "tokens": ("tensor(int64)", ["T", "B"]),
            "state": ("tensor(float)", [self._rows, "B", D]),
            "logits": ("tensor(float)", ["T", "B", len(self.vocab)]),
            "state_out": ("tensor(float)", [self._rows, "B", D]),
            "compute": ("tensor(float)", ["T", "B", layers]),
        }
        values = {each.name: each for each in (*self._session.get_inputs(), *self._session.get_outputs())}
        for name, (kind, shape) in wanted.items():
            if name not in values:
                raise VcdeployError(f"{self.name} has no input or output {name!r}: {EXPORT_AGAIN}")
            value = values[name]
            # T and B may have other names, but must be dynamic; every other size is fixed.
            fits = len(value.shape) == len(shape) and all(
                not isinstance(got, int) if isinstance(size, str) else got == size
                for got, size in zip(value.shape, shape, strict=True)
            )
            if value.type != kind or not fits:
                raise VcdeployError(
                    f"{self.name}: {name} is {value.type} {value.shape}, but its description "
                    f"({self.config['unit']}, dim {D}, layers {layers}, {len(self.vocab)} symbols) "
                    f"requires {kind} {shape}: {EXPORT_AGAIN}"
                )


def start(source: Source, precision: str, threads: int, variant: str) -> OnnxRuntimeModel:
    """Entry point for the registry. variant: "function" to use the function body even if the custom op was built."""
    return OnnxRuntimeModel(
        source.content(),
        threads,
        custom_op=variant != "function",
        name=str(source.file),
        description=(source.config, source.vocab),
    )


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise VcdeployError(f"no model at {path}: give the .onnx file that `vcdeploy export` wrote")
    try:
        return path.read_bytes()
    except OSError as error:
        raise VcdeployError(f"cannot read {path}: {error.strerror or error}") from error


def _parse(content: bytes, name: str) -> ModelProto:
    """Parse a file's content. External data is never read."""
    import onnx

    try:
        return onnx.load_model_from_string(content)
    except Exception as error:  # protobuf implementations raise different types
        raise VcdeployError(f"{name} is not a complete ONNX file ({error}): {EXPORT_AGAIN}") from error


def _description(model: ModelProto, name: str) -> tuple[dict[str, Any], Vocabulary]:
    metadata = {each.key: each.value for each in model.metadata_props}
    config = read_config(metadata, name)
    return config, read_vocabulary(metadata, config, name)


def session_options(threads: int) -> Any:
    """Options of a session that logs nothing: errors are raised, and a log would not filter the names in a file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return options


def form_of(model: ModelProto, config: dict[str, Any], custom_op: bool) -> str:
    """The form of a model in ONNX Runtime. custom_op: whether our kernels are available."""
    from vcdeploy.format.functions import used_ops

    if config["unit"] in DENSE_UNITS:
        return "dense"
    if not used_ops(model):
        return next((form for form in ("bucketed", "portable") if config.get(form)), "standard ops")
    return CUSTOM_OP if custom_op else FUNCTION_BODY


def _without_bodies(model: ModelProto) -> bytes:
    from vcdeploy.format.steps import DOMAIN

    kept = [each for each in model.functions if each.domain != DOMAIN]
    del model.functions[:]
    model.functions.extend(kept)
    return model.SerializeToString()
