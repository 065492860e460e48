"""Loading: from a name of the zoo, a file, a checkpoint or a run's folder to a model that runs, on some backend."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vcdeploy import extras, zoo
from vcdeploy.corpora import Vocabulary
from vcdeploy.errors import VcdeployError
from vcdeploy.runtime import description, model_file, sampling

if TYPE_CHECKING:
    from vcdeploy.runtime.model_file import Stored
    from vcdeploy.training.checkpoint import Checkpoint

BACKENDS = ("native", "onnxruntime", "torch")
FUNCTION_BODY = "onnxruntime:function"  # the onnxruntime backend without our custom op
# An engine of `vcdeploy export --trt`; ONNX Runtime's CUDA provider; its TensorRT provider, with our plugin
ON_GPU = ("tensorrt", "onnxruntime:cuda", "onnxruntime:tensorrt")
CHOICES = ("auto", *BACKENDS, FUNCTION_BODY, *ON_GPU)
PRECISIONS = ("f32", "f16", "bf16", "int8")
VARIABLE_UNITS = ("vcrnn", "vcgru", "vclstm")
_STATE_ROWS = {"vclstm": 2, "lstm": 2, "crnn": 2}

Arrays = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]


@dataclass
class Model:
    """A model on one backend; what every backend offers, with the same checks and the same errors.

    backend: the one that runs. config: the description the file carries (unit, dim, layers, sharpness, kind, …).
    precision: that of the weights it runs with.
    """

    backend: str
    config: dict[str, Any]
    vocab: Vocabulary
    precision: str
    name: str
    _runner: Any = field(repr=False)

    @property
    def detail(self) -> str:
        """What of the backend runs: native's instruction set; the custom op or the function body of onnxruntime; …"""
        return str(getattr(self._runner, "detail", ""))

    def run(self, tokens: NDArray[np.int64], state: NDArray[np.float32] | None = None, position: int = 0) -> Arrays:
        """tokens [T, B], state [S, B, D] -> logits [T, B, vocab], state [S, B, D], compute (m) [T, B, layers].

        Without a state it starts from zeros. position, how many symbols came before, matters to the CRNN on bits only.
        """
        tokens = np.asarray(tokens)
        if tokens.ndim != 2 or 0 in tokens.shape or tokens.dtype.kind not in "iu":
            raise VcdeployError(
                f"tokens must be integers of shape [T, B], T and B at least 1, not {tokens.dtype} {list(tokens.shape)}"
            )
        if self.backend != "native":  # which refuses foreign ids itself, in less time than NumPy takes to look
            self._check_ids(tokens)
        if state is not None:
            state = np.ascontiguousarray(state, np.float32)
            shape = (self._state_rows, tokens.shape[1], self.config["dim"])
            if state.shape != shape:
                raise VcdeployError(f"{self.name} takes a state of shape {list(shape)} here, not {list(state.shape)}")
        try:
            outputs: Arrays = self._runner.run(np.ascontiguousarray(tokens, np.int64), state, position)
        except VcdeployError:
            self._check_ids(tokens)  # the same words whoever noticed
            raise
        return outputs

    @cached_property
    def _state_rows(self) -> int:
        rows: int = _STATE_ROWS.get(self.config["unit"], 1) * self.config["layers"]
        return rows

    def generate(
        self,
        prime: ArrayLike,
        length: int = 200,
        *,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> Iterator[int]:
        """`length` ids after those of the prime, one by one; the same seed, the same ids on every backend.

        Temperature 0 takes the most likely symbol; top_k 0 and top_p 1 leave nothing out.
        """
        if isinstance(prime, str):
            raise VcdeployError("the prime is text, and generate takes ids: give model.vocab.encode(prime)")
        given = np.asarray(prime)
        sampling.check_settings(given.size, length, temperature, top_k, top_p)
        if not np.issubdtype(given.dtype, np.integer):
            raise VcdeployError(f"the prime must be integers, the ids of model.vocab.encode, not {given.dtype}")
        ids = given.astype(np.int64).reshape(-1)
        self._check_ids(ids)
        settings: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        if hasattr(self._runner, "generate"):  # a loop of its own, with the same draws
            made: Iterator[int] = self._runner.generate(ids, length, **settings)
            return made
        return sampling.generate(self._runner, ids, length, **settings)

    def _check_ids(self, ids: NDArray[Any]) -> None:
        low, high = (ids.min(), ids.max()) if ids.size > 1 else (ids.item(), ids.item())
        if low < 0 or high >= len(self.vocab):
            outside = low if low < 0 else high
            raise VcdeployError(f"there is no symbol {outside}; the ids of {self.name} are 0 to {len(self.vocab) - 1}")


def load(path: str | Path, backend: str = "auto", precision: str | None = None, threads: int = 1) -> Model:
    """The model of the zoo that a string names ("english"), or the one at `path`.

    A path is that of a file of `vcdeploy export` (or the folder of a bundle), a checkpoint, or a run's folder. A name
    of the zoo comes before a file of that name, which is "./english" or a Path.

    backend: native, onnxruntime or torch, or auto: the first of them that is installed and runs the unit (native
    runs the variable ones); `Model.backend` says which. A backend that is named runs, or it is an error. onnxruntime
    runs the units on our custom op where that was built, else on the function body that the file carries, which
    computes densely: `Model.detail` says which. onnxruntime:function always takes the latter.
    On a GPU: tensorrt runs the engine of a folder that `vcdeploy export --trt` wrote; onnxruntime:cuda the function
    body, with ONNX Runtime's CUDA provider; onnxruntime:tensorrt our plugin, with its TensorRT provider.
    precision: f32, f16, bf16 or int8; by default the file's own. Only the native backend can change it.
    threads: of the CPU. PyTorch knows one number for the whole process, and this sets it.

    >>> model = load("english")
    >>> ids = model.generate(model.vocab.encode("The prime min"), length=20)
    >>> model.vocab.decode(list(ids))
    """
    if backend not in CHOICES:
        raise VcdeployError(f"no backend {backend!r}; choose from {', '.join(CHOICES)}")
    if precision not in (None, *PRECISIONS):
        raise VcdeployError(f"no precision {precision!r}; choose from {', '.join(PRECISIONS)}")
    if threads < 1:
        raise VcdeployError(f"threads must be at least 1, not {threads}")
    file = find(path)
    if Path(path).suffix == ".plan" and backend == "auto":
        backend = "tensorrt"
    try:
        return _start(file, backend, precision, threads)
    except MemoryError as error:
        raise VcdeployError(
            f"{file} asks for more memory than this process can get: use a smaller --precision or a smaller model, "
            "or export it again if it should be small"
        ) from error


def _start(file: Path, backend: str, precision: str | None, threads: int) -> Model:
    source = _open(file)
    _check_description(source.config, file)
    unit = source.config["unit"]
    if backend == "auto":
        backend = _choose_backend(unit)
    backend, _, form = backend.partition(":")
    stored = source.config.get("precision", "f32")
    precision = precision or stored
    if precision != stored and backend != "native":
        raise VcdeployError(
            f"{file} is {stored}, and the {backend} backend runs a file as it is: write an {precision} one with "
            f"`vcdeploy export --precision {precision}`, or use the native backend"
        )
    start: Callable[[], Any] = {
        "native": lambda: _native(source, precision, threads),
        "onnxruntime": lambda: _onnxruntime(source, threads, form),
        "torch": lambda: _torch(source, precision, threads),
        "tensorrt": lambda: _tensorrt(source, file),
    }[backend]
    return Model(backend, source.config, source.vocab, precision, str(file), start())


def open_source(path: str | Path) -> _CheckpointSource | _OnnxSource:
    """What `load` makes a model of: its config, vocab and weights()."""
    return _open(find(path))


def _open(file: Path) -> _CheckpointSource | _OnnxSource:
    return _OnnxSource(file) if holds_onnx(file) else _CheckpointSource(file)


def _check_description(config: dict[str, Any], file: Path) -> None:
    """Raise where a value that a backend relies on is missing or of no use."""

    def whole(value: Any) -> bool:
        return type(value) is int and value > 0

    def between(value: Any, most: float) -> bool:
        return type(value) in (int, float) and 0 < value <= most

    sound = {
        "unit": config.get("unit") in (*VARIABLE_UNITS, "rnn", "gru", "lstm", "crnn"),
        "dim": whole(config.get("dim")),
        "layers": whole(config.get("layers")),
        "sharpness": between(config.get("sharpness"), 1e9),
        "epsilon": between(config.get("epsilon"), 0.5),
        "precision": config.get("precision", "f32") in PRECISIONS,
    }
    for key, fits in sound.items():
        if not fits:
            raise VcdeployError(
                f"the description of {file} has {key} = {str(config.get(key))[:80]}, which no model has: "
                "export it again with `vcdeploy export`, or use another checkpoint"
            )


def _choose_backend(unit: str) -> str:
    """The first backend that is here and runs the unit."""
    if unit in VARIABLE_UNITS and native_fault() is None:
        return "native"
    if unit != "crnn" and find_spec("onnxruntime"):
        return "onnxruntime"
    if find_spec("torch"):
        return "torch"
    raise VcdeployError(
        f"no backend here runs {unit}: install ONNX Runtime with {extras.install_command('onnxruntime')}, "
        f"or PyTorch with {extras.install_command('torch')}; `vcdeploy doctor` says what else is amiss"
    )


def native_fault() -> str | None:
    """Why the native module can't be used; None where it can."""
    try:
        import vcdeploy.runtime.native  # noqa: F401
    except ImportError as error:
        return str(error)
    return None


def find(path: str | Path) -> Path:
    """The file that a string, which may be a name of the zoo, or a path means."""
    if isinstance(path, str) and path in zoo.names():
        return zoo.model_file(path)
    file = Path(path)
    if file.is_dir():
        for name in ("best.safetensors", "last.safetensors", "model.onnx"):
            if (file / name).is_file():
                return file / name
        raise VcdeployError(
            f"{path} holds no best.safetensors, last.safetensors or model.onnx: "
            "is it the folder of a run, or of `vcdeploy export --bundle`?"
        )
    if file.suffix == ".plan" and (model := file.with_name("model.onnx")).is_file():
        return model  # which has the vocabulary; the engine lies beside it
    if not file.is_file():
        near = get_close_matches(str(path), zoo.names(), n=1)
        raise VcdeployError(
            f"no model at {path}: " + (f"did you mean {near[0]}? Otherwise " if near else "") + "give the file of "
            "`vcdeploy export`, a checkpoint or the folder of `vcdeploy train`, or the name of a model that ships: "
            + ", ".join(zoo.names())
        )
    return file


def holds_onnx(file: Path) -> bool:
    """By its name, or else by how it begins: a safetensors file has eight bytes of length, then JSON."""
    if file.suffix in (".onnx", ".safetensors"):
        return file.suffix == ".onnx"
    with file.open("rb") as opened:
        return opened.read(9)[8:] != b"{"


class _CheckpointSource:
    """A checkpoint, and what each backend takes from it."""

    def __init__(self, file: Path) -> None:
        for module in ("torch", "safetensors"):
            extras.require(module, for_="loading a checkpoint")
        from vcdeploy.training import checkpoint

        self.checkpoint: Checkpoint = checkpoint.read(file)
        self.config, self.vocab = self.checkpoint.config, self.checkpoint.vocab

    def weights(self) -> Mapping[str, Any]:
        return self.checkpoint.model

    def content(self) -> bytes:
        from vcdeploy.export import build

        exported: bytes = build(self.checkpoint).SerializeToString()
        return exported

    def network(self) -> Any:
        return self.checkpoint.build()


def network_of(content: bytes, name: str) -> Any:
    """PyTorch's network of an exported file's content, with the weights as they are stored."""
    return _OnnxSource(Path(name), content).network()


class _OnnxSource:
    """An exported file, read without any runtime."""

    def __init__(self, file: Path, content: bytes | None = None) -> None:
        """content: that of the file, where it is known already."""
        self.file = file
        try:
            self._content = file.read_bytes() if content is None else content
            self._read = model_file.read(self._content)
        except OSError as error:
            raise VcdeployError(f"cannot read {file}: {error.strerror or error}") from error
        except Exception as error:  # NumPy's, and those of onnx and its parser
            raise VcdeployError(f"{file} is not a whole ONNX file ({error}): {description.EXPORT_AGAIN}") from error
        self.config = description.read_config(self._read.metadata, str(file))
        self.vocab = description.read_vocabulary(self._read.metadata, self.config, str(file))

    def weights(self) -> Mapping[str, Stored]:
        """The numbers of the file, which must be as many as its description says."""
        weights = self._read.weights
        try:
            for name, size in self._sizes(weights):
                if weights[name].values.size < size:
                    raise ValueError(f"{name} has the shape {list(weights[name].shape)}")
        except (KeyError, ValueError) as error:
            raise VcdeployError(
                f"the weights of {self.file} are missing or don't fit its description ({error}): "
                "export it again with `vcdeploy export`"
            ) from error
        return weights

    def _sizes(self, weights: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
        """What must be there at least: checked before a network of the described size is made."""
        D = self.config["dim"]
        for name in ("embedding", "output.weight"):
            yield name, len(self.vocab) * D
        numbers = {int(found[1]) for name in weights if (found := re.match(r"layers\.(\d+)\.", name))}
        if len(numbers) != self.config["layers"] or max(numbers) != len(numbers) - 1:
            raise ValueError(f"there are weights of {len(numbers)} layers, not {self.config['layers']}")
        for number in numbers:
            yield f"layers.{number}." + ("U" if self.config["unit"] in VARIABLE_UNITS else "R"), D * D

    def content(self) -> bytes:
        return self._content

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """What a checkpoint of this model would hold, as far as the file has it: to export it in another form."""
        for module in ("torch", "safetensors"):
            extras.require(module, for_="a model's weights in PyTorch")
        from vcdeploy.training.checkpoint import Checkpoint

        config = dict(self.config)
        config.setdefault("dropout", 0.0)
        return Checkpoint(config, self.vocab, self.network().state_dict(), {}, config.get("training") or {})

    def network(self) -> Any:
        import torch

        from vcdeploy.export.dense import ORDER, torch_gates
        from vcdeploy.units import LanguageModel

        unit, dense = self.config["unit"], {"W": "weight_ih_l0", "R": "weight_hh_l0"}
        parameters: dict[str, NDArray[np.float32]] = {}
        for name, stored in self.weights().items():
            array = stored.wide()
            layer, _, part = name.rpartition(".")
            if name == "embedding":
                parameters["embedding.weight"] = array
            elif layer.startswith("layers."):
                gates = unit in ORDER
                parameters[f"unit.{layer}.{dense.get(part, part)}"] = torch_gates(unit, array) if gates else array
            elif layer == "output":
                parameters[name] = array
        settings = {name: self.config[name] for name in ("dim", "layers", "sharpness", "epsilon")}
        network = LanguageModel(unit, len(self.vocab), **settings)
        try:
            network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in parameters.items()})
        except RuntimeError as error:
            raise VcdeployError(f"the weights of {self.file} don't fit its description: {error}") from error
        return network


def _native(source: _CheckpointSource | _OnnxSource, precision: str, threads: int) -> Any:
    if (fault := native_fault()) is not None:
        raise VcdeployError(
            f"the native backend needs the native module, which can't be used here ({fault}): "
            "`vcdeploy doctor` says how to mend it"
        )
    from vcdeploy.runtime.native import NativeModel

    config = source.config
    model = NativeModel(
        source.weights(),
        source.vocab,
        unit=config["unit"],
        sharpness=config["sharpness"],
        epsilon=config["epsilon"],
        precision=precision,
        threads=threads,
    )
    if (model.dim, model.layers) != (config["dim"], config["layers"]):
        raise VcdeployError(
            f"the weights don't fit the model's description: they have {model.dim} dimensions and {model.layers} "
            f"layers, and it says {config['dim']} and {config['layers']}; export it again with `vcdeploy export`"
        )
    return model


def _onnxruntime(source: _CheckpointSource | _OnnxSource, threads: int, form: str) -> Any:
    extras.require("onnxruntime", for_="the onnxruntime backend")
    if form and form != "function":
        from vcdeploy.runtime.onnxruntime_gpu import PROVIDERS

        return PROVIDERS[form](source.content(), threads)
    from vcdeploy.runtime.onnxruntime import OnnxRuntimeModel

    return OnnxRuntimeModel(source.content(), threads, custom_op=form != "function")


def _tensorrt(source: _CheckpointSource | _OnnxSource, file: Path) -> Any:
    if isinstance(source, _CheckpointSource):
        raise VcdeployError(
            f"the tensorrt backend runs an engine, and {file} is a checkpoint: make one with "
            f"`vcdeploy export {file} --trt`, and give the folder it writes"
        )
    for module in ("tensorrt", "cuda"):
        extras.require(module, for_="the tensorrt backend")
    from vcdeploy.runtime.tensorrt import TensorRtModel

    return TensorRtModel.open(file.parent, source.config, source.vocab)


def _torch(source: _CheckpointSource | _OnnxSource, precision: str, threads: int) -> Any:
    extras.require("torch", for_="the torch backend")
    import torch

    from vcdeploy.runtime.torch import TorchModel

    torch.set_num_threads(threads)
    return TorchModel(source.network(), source.vocab, precision)
