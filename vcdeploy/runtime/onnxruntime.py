"""The ONNX Runtime backend: an exported file behind the common interface, arrays in and out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy import extras
from vcdeploy.corpora import Vocabulary
from vcdeploy.errors import VcdeployError

STATE_ROWS = {"vcrnn": 1, "vcgru": 1, "vclstm": 2, "rnn": 1, "gru": 1, "lstm": 2}
DENSE = ("rnn", "gru", "lstm")
EXPORT_AGAIN = "export it again with `vcdeploy export`"


class OnnxRuntimeModel:
    """A file of `vcdeploy export`, or any that keeps to docs/design.md, section 2.

    form says what runs: "function" (the body the file carries for the vcdeploy ops, which computes densely),
    "bucketed" (If nodes, which skip) or "dense" (ONNX's own RNN, GRU or LSTM op).
    """

    backend = "onnxruntime"

    def __init__(self, source: Path | str | bytes, threads: int = 1) -> None:
        """source: the file, or its content."""
        extras.require("onnxruntime", for_="the onnxruntime backend")
        self.name = "the model" if isinstance(source, bytes) else str(source)
        self._session = _open(source, self.name, threads)
        metadata = self._session.get_modelmeta().custom_metadata_map
        self.config = _config(metadata, self.name)
        self.vocab = _vocabulary(metadata, self.config, self.name)
        self._rows = self.config["layers"] * STATE_ROWS[self.config["unit"]]
        self._check_signature()

    @property
    def form(self) -> str:
        if self.config["unit"] in DENSE:
            return "dense"
        return "bucketed" if self.config.get("bucketed") else "function"

    def run(
        self, tokens: NDArray[np.int64], state: NDArray[np.float32] | None = None, position: int = 0
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """tokens [T, B], state [S, B, D] -> logits [T, B, vocab], state [S, B, D], m [T, B, layers].

        position, how many symbols came before, is there for the common interface: no exported unit needs it.
        """
        if tokens.ndim != 2 or 0 in tokens.shape or not np.issubdtype(tokens.dtype, np.integer):
            raise VcdeployError(
                f"tokens must be integers of shape [T, B], T and B at least 1, not {tokens.dtype} {list(tokens.shape)}"
            )
        if tokens.min() < 0 or tokens.max() >= len(self.vocab):
            outside = tokens[(tokens < 0) | (tokens >= len(self.vocab))][0]
            raise VcdeployError(f"there is no symbol {outside}; the ids of {self.name} are 0 to {len(self.vocab) - 1}")
        shape = (self._rows, tokens.shape[1], self.config["dim"])
        if state is None:
            state = np.zeros(shape, np.float32)
        if state.shape != shape:
            raise VcdeployError(f"{self.name} takes a state of shape {list(shape)} here, not {list(state.shape)}")
        feed = {"tokens": tokens.astype(np.int64, copy=False), "state": state.astype(np.float32, copy=False)}
        logits, after, compute = self._session.run(["logits", "state_out", "compute"], feed)
        return logits, after, compute

    def __repr__(self) -> str:
        unit, dim = self.config["unit"], self.config["dim"]
        return f"OnnxRuntimeModel({self.name}: {unit}-{dim}, {self.config['precision']}, {self.form})"

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
            # T and B may have other names, but must be open; every other size is fixed.
            fits = len(value.shape) == len(shape) and all(
                not isinstance(got, int) if isinstance(size, str) else got == size
                for got, size in zip(value.shape, shape, strict=True)
            )
            if value.type != kind or not fits:
                raise VcdeployError(
                    f"{self.name}: {name} is {value.type} {value.shape}, but its description "
                    f"({self.config['unit']}, dim {D}, layers {layers}, {len(self.vocab)} symbols) "
                    f"asks for {kind} {shape}: {EXPORT_AGAIN}"
                )


def _open(source: Path | str | bytes, name: str, threads: int) -> Any:
    import onnxruntime

    if not isinstance(source, bytes) and not Path(source).is_file():
        raise VcdeployError(f"no model at {name}: give the .onnx file that `vcdeploy export` wrote")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors only; they come as exceptions
    content = source if isinstance(source, bytes) else str(source)
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common type of their own
        reason = str(error).strip().splitlines()[0]
        if "is not a registered function/op" in reason:
            reason += "; the functions of its ops are missing: vcdeploy.export.attach_functions puts them in"
        raise VcdeployError(
            f"ONNX Runtime {onnxruntime.__version__} can't load {name} ({reason}): {EXPORT_AGAIN}"
        ) from error


def _config(metadata: dict[str, str], name: str) -> dict[str, Any]:
    if "vcdeploy.config" not in metadata or "vcdeploy.vocab" not in metadata:
        raise VcdeployError(
            f"{name} is an ONNX file, but no vcdeploy model: its metadata lacks vcdeploy.config or vcdeploy.vocab. "
            "Models of other origin run in ONNX Runtime itself."
        )
    try:
        config = json.loads(metadata["vcdeploy.config"])
        sound = config["unit"] in STATE_ROWS and all(
            type(config[key]) is int and config[key] > 0 for key in ("dim", "layers")
        )
        if not sound or not {"sharpness", "epsilon", "precision", "kind"} <= config.keys():
            raise ValueError(f"{metadata['vcdeploy.config'][:200]}")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise VcdeployError(f"the vcdeploy.config of {name} lacks or garbles {error}: {EXPORT_AGAIN}") from error
    return dict(config)


def _vocabulary(metadata: dict[str, str], config: dict[str, Any], name: str) -> Vocabulary:
    try:
        symbols = json.loads(metadata["vcdeploy.vocab"])
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise ValueError("it is no list of strings")
        return Vocabulary(symbols, kind=config["kind"], buffer=config.get("buffer", 0))
    except (TypeError, ValueError, RecursionError, VcdeployError) as error:
        raise VcdeployError(f"the vcdeploy.vocab of {name} is unusable ({error}): {EXPORT_AGAIN}") from error
