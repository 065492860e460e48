"""load: load a model from a name, a file or a folder."""

from __future__ import annotations

from pathlib import Path

from vcdeploy import zoo
from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.runtime.backends import BACKENDS, CHOICES, choose
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.sources import open_source
from vcdeploy.spec import MOST_THREADS, PRECISIONS

ISAS = ("avx512", "avx2", "portable")  # of the native backend, as far as the processor has them


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
        precision: f32, f16, bf16 or int8; by default that of the file. Only the native backend can change it.
        threads: Number of CPU threads. In PyTorch this is a process-wide setting.
        isa: Instruction set of the native backend: avx512, avx2 or portable; by default the best one the processor has.
            `Model.detail` names the one in use, `vcdeploy doctor` those available. int8 gives the same bits on each.

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
    again = path if isinstance(path, str) and path in zoo.names() else Path(path).absolute()
    origin = load, (again, row.name, precision, threads, isa)
    return Model(name, source.config, source.vocab, precision, str(source.file), runner, origin)
