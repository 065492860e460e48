"""load, and the Model it returns: the same interface on every backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vcdeploy.errors import BadValue, Cancelled, TimedOut, VcdeployError
from vcdeploy.runtime.backends import (
    BACKENDS,
    CHOICES,
    Arrays,
    Backend,
    Check,
    Event,
    Interruptible,
    check_of,
    choose,
    run_in_pieces,
)
from vcdeploy.runtime.sampling import Allowed, Sampling, Token, without_stop
from vcdeploy.runtime.session import (
    MOST_SEQUENCES,
    Layout,
    Session,
    array_of,
    check_ids,
    generate_pieces,
    model_digest,
    settled,
)
from vcdeploy.runtime.sources import open_source
from vcdeploy.spec import MOST_THREADS, PRECISIONS, UNITS
from vcdeploy.vocabulary import Vocabulary
from vcdeploy.zoo import FOLDER

LOGITS = ("all", "last", "none")
ISAS = ("avx512", "avx512vl", "avx2", "portable")  # of the native backend, as far as the processor has them


@dataclass
class Model:
    """A model on one backend, with the same checks and error messages on all of them.

    Attributes:
        backend: Name of the backend.
        config: The description in the file: unit, dim, layers, sharpness, kind, …
        vocab: Symbols and their ids.
        precision: Precision of the weights in use.
        name: The file.
        runner: The backend's own object, for backend-specific features.
        origin: `load` and its arguments, by which a model is pickled.
    """

    backend: str
    config: dict[str, Any]
    vocab: Vocabulary
    precision: str
    name: str
    runner: Backend = field(repr=False)
    origin: tuple[Callable[..., Model], tuple[Any, ...]] | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[Callable[..., Model], tuple[Any, ...]]:
        """Pickled by its source: unpickling loads the same file again, with the same options."""
        if self.origin is None:
            raise VcdeployError(f"{self.name} was not loaded with vcdeploy.load: only models of load can be pickled")
        return self.origin

    @property
    def detail(self) -> str:
        """The variant of the backend: native's instruction set, ONNX Runtime's custom op or function body, …"""
        return self.runner.detail

    def run(
        self,
        tokens: NDArray[np.int64],
        state: NDArray[np.float32] | None = None,
        position: int = 0,
        *,
        logits: str = "all",
        timeout: float | None = None,
        cancel: Event | None = None,
    ) -> Arrays:
        """Run the model over tokens.

        Args:
            tokens: Ids [T, B].
            state: [S, B, D], as returned by an earlier call; zeros by default.
            position: Number of symbols processed so far; only the CRNN on bits needs it.
            logits: Which to return: those of all steps, [T, B, vocab]; the "last", [1, B, vocab]; or "none", [0, B,
                vocab]. The native backend does not compute the others.
            timeout: Raise TimedOut if the call takes longer than so many seconds.
            cancel: A threading.Event; raise Cancelled once another thread has set it.

        Returns:
            Logits [T, B, vocab], state [S, B, D] and m [T, B, layers].

        Both limits, like Ctrl-C, end a call between two steps: on native every few milliseconds; on other backends
        the limits split the tokens into several calls, and Ctrl-C without a limit waits for the backend.
        """
        check = check_of(timeout, cancel)
        if logits not in LOGITS:
            raise BadValue(f"logits must be {', '.join(LOGITS[:-1])} or {LOGITS[-1]}, not {logits!r}")
        tokens = array_of(tokens, "tokens")
        if tokens.ndim != 2 or 0 in tokens.shape or tokens.dtype.kind not in "iu":
            raise VcdeployError(
                f"tokens must be integers of shape [T, B], T and B at least 1, not {tokens.dtype} {list(tokens.shape)}"
            )
        if self.backend != "native":  # native rejects unknown ids itself, faster than NumPy
            check_ids(tokens, self.vocab, self.name)
        if state is not None:
            state = np.ascontiguousarray(array_of(state, "the state", np.float32))
            shape = (self._state_rows, tokens.shape[1], self.config["dim"])
            if state.shape != shape:
                raise VcdeployError(f"{self.name} takes a state of shape {list(shape)} here, not {list(state.shape)}")
        try:
            outputs = self._run(np.ascontiguousarray(tokens, np.int64), state, position, logits, check)
        except (TimedOut, Cancelled):
            raise
        except VcdeployError:
            check_ids(tokens, self.vocab, self.name)  # the same message on every backend
            raise
        return outputs

    def _run(
        self,
        tokens: NDArray[np.int64],
        state: NDArray[np.float32] | None,
        position: int,
        logits: str,
        check: Check | None,
    ) -> Arrays:
        if isinstance(self.runner, Interruptible):
            return self.runner.run(tokens, state, position, check, logits)
        if check is None:
            every, after, m = self.runner.run(tokens, state, position)
        else:
            every, after, m = run_in_pieces(self.runner, tokens, state, position, check)
        return (every if logits == "all" else every[-1:].copy() if logits == "last" else every[:0].copy()), after, m

    @cached_property
    def _state_rows(self) -> int:
        rows: int = UNITS[self.config["unit"]].state_rows * self.config["layers"]
        return rows

    def session(self, batch: int = 1) -> Session:
        """Sequences to read and generate token by token, `batch` of them side by side, from zero states."""
        if not isinstance(batch, (int, np.integer)) or not 1 <= batch <= MOST_SEQUENCES:
            raise BadValue(f"a session has from 1 to {MOST_SEQUENCES} sequences, not {batch!r:.40}")
        batch = int(batch)
        sizes = self._state_rows, self.config["dim"], self.config["layers"], len(self.vocab)
        layout = Layout(model_digest(self.config, self.vocab.symbols), batch, *sizes)
        return Session(self.runner.sequences(batch), layout, self.vocab, self.name)

    def generate(
        self,
        prime: ArrayLike,
        length: int = 200,
        sampling: Sampling | None = None,
        *,
        allowed: Allowed | None = None,
        timeout: float | None = None,
        cancel: Event | None = None,
        **options: Any,
    ) -> Iterator[int]:
        """Generate ids after the prime, one by one; the same seed gives the same ids on every backend.

        Args:
            prime: Ids to start from, at least one.
            length: Number of ids to generate.
            sampling: How to sample.
            allowed: Takes all ids so far, the prime included, and returns the mask [vocab] of the symbols that may
                follow, such as `vcdeploy.music.form.Form(model.vocab.symbols)` for tunes; by default all may.
            timeout: Raise TimedOut if not all ids are there so many seconds after this call.
            cancel: A threading.Event; raise Cancelled once another thread has set it.
            **options: Fields of Sampling, to override those of `sampling`.

        Examples:
            >>> ids = model.generate(model.vocab.encode("The "), 100, temperature=0.5, seed=3)
        """
        pieces = self.pieces(prime, length, sampling, allowed=allowed, timeout=timeout, cancel=cancel, **options)
        return chain.from_iterable(map(attrgetter("id"), piece) for piece in pieces)

    def stream(
        self,
        prime: ArrayLike,
        length: int = 200,
        sampling: Sampling | None = None,
        *,
        allowed: Allowed | None = None,
        timeout: float | None = None,
        cancel: Event | None = None,
        **options: Any,
    ) -> Iterator[Token]:
        """Like generate, but yields tokens with the m of their step and their log-probability."""
        limits: dict[str, Any] = {"timeout": timeout, "cancel": cancel}
        return chain.from_iterable(self.pieces(prime, length, sampling, allowed=allowed, **limits, **options))

    def pieces(
        self,
        prime: ArrayLike,
        length: int = 200,
        sampling: Sampling | None = None,
        *,
        allowed: Allowed | None = None,
        timeout: float | None = None,
        cancel: Event | None = None,
        **options: Any,
    ) -> Iterator[list[Token]]:
        """Like stream, but yields lists of as many tokens as the backend generates at once."""
        if isinstance(prime, str):
            raise VcdeployError("the prime is text, but generate takes ids: pass model.vocab.encode(prime)")
        given = array_of(prime, "the prime")
        sampling = settled(sampling, options, self.vocab)
        if given.ndim > 1:
            raise VcdeployError(
                f"the prime must be one sequence of ids, not an array of shape {list(given.shape)}: "
                f"call generate for each sequence"
            )
        if given.size == 0:
            raise VcdeployError("sampling needs a prime of at least one symbol")
        if not isinstance(length, (int, np.integer)) or length < 0:
            raise VcdeployError(f"length must be 0 or more, not {length}")
        if not np.issubdtype(given.dtype, np.integer):
            raise VcdeployError(f"the prime must be integers, the ids of model.vocab.encode, not {given.dtype}")
        if allowed is not None and not callable(allowed):
            raise VcdeployError(f"allowed must be a function of the ids so far, not {type(allowed).__name__}")
        ids = given.astype(np.int64).reshape(-1)
        check_ids(ids, self.vocab, self.name)
        check = check_of(timeout, cancel)
        pieces = generate_pieces(self.runner.sequences(1), ids, length, sampling, allowed, check)
        return without_stop(pieces, sampling) if sampling.stop else pieces


def load(
    path: str | Path, backend: str = "auto", precision: str | None = None, threads: int = 1, isa: str | None = None
) -> Model:
    """Load a pretrained model by name ("english"), or the model at `path`.

    A path is a file of `vcdeploy export`, the folder of a bundle, a checkpoint, or the folder of a run. The name of a
    pretrained model takes precedence over a file of the same name; for the file use "./english" or a Path.

    Args:
        path: A pretrained model, an ONNX file, a checkpoint, or a folder of one of these.
        backend: native, onnxruntime, torch, or auto for the first one that is installed and runs the unit; see
            `Model.backend`. An explicit backend never falls back to another. onnxruntime uses our custom op if it was
            built, else the function body in the file, which computes densely; see `Model.detail`.
            onnxruntime:function always uses the function body. On a GPU: tensorrt runs the engine in a folder written
            by `vcdeploy export --trt`, onnxruntime:cuda the function body with the CUDA provider,
            onnxruntime:tensorrt our plugin with the TensorRT provider. Not run on a GPU yet.
        precision: f32, f16, bf16, int8 or w8a8; by default that of the file. Only the native backend can change it.
        threads: Number of CPU threads. In PyTorch this is a process-wide setting.
        isa: Instruction set of the native backend: avx512, avx512vl, avx2 or portable; by default the fastest one.
            `Model.detail` names the one in use, `vcdeploy doctor` those available. int8 and w8a8 have the same bits on
            each.

    A file of vcdeploy 0.2 or earlier has no checksum and loads with a UserWarning: damage to it can't be detected. The
    native and torch backends run a file only if its graph is exactly one that `vcdeploy export` writes; onnxruntime
    runs any graph. A model can be pickled: unpickling loads the same path again.

    Examples:
        >>> model = load("english")
        >>> ids = model.generate(model.vocab.encode("The prime min"), length=20)
        >>> model.vocab.decode(list(ids))
    """
    if backend not in CHOICES:
        raise BadValue(f"no backend {backend!r}; choose from {', '.join(CHOICES)}")
    if precision not in (None, *PRECISIONS):
        raise BadValue(f"no precision {precision!r}; choose from {', '.join(PRECISIONS)}")
    if not isinstance(path, (str, Path)):
        raise BadValue(f"a model is a name or a path, not {type(path).__name__}")
    if not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS:
        raise BadValue(f"threads must be from 1 to {MOST_THREADS}, not {threads}")
    if isa not in (None, "auto", *ISAS):
        raise BadValue(f"no instruction set {isa!r}; choose from {', '.join(ISAS)}")
    if Path(path).suffix == ".plan" and backend == "auto":
        backend = "tensorrt"
    try:
        source = open_source(path)
        row = choose(source.config["unit"]) if backend == "auto" else BACKENDS[backend]
        name = row.name.partition(":")[0]
        stored = source.config.get("precision", "f32")
        precision = precision or stored
        if precision != stored and not row.repacks:
            raise BadValue(
                f"{source.file} is {stored}, and the {name} backend can't change the precision of a file: create one "
                f"in {precision} with `vcdeploy export --precision {precision}`, or use the native backend"
            )
        runner = row.start(source, precision, threads, None if isa == "auto" else isa)
    except OSError as error:
        raise VcdeployError(f"cannot read {path}: {error.strerror or error}") from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):  # PyTorch's
            raise
        raise VcdeployError(
            f"{path} needs more memory than is available: use a smaller --precision or a smaller model, "
            "or export it again if it is a small model"
        ) from error
    again = source.file.stem if source.file.parent == FOLDER else Path(path).absolute()
    origin = load, (again, row.name, precision, threads, isa)
    return Model(name, source.config, source.vocab, precision, str(source.file), runner, origin)
