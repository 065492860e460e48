"""load: load a model from a name, a file or a folder."""

from __future__ import annotations

from pathlib import Path

from vcdeploy.errors import VcdeployError
from vcdeploy.runtime.backends import BACKENDS, CHOICES, choose
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.sources import open_source
from vcdeploy.spec import PRECISIONS


def load(path: str | Path, backend: str = "auto", precision: str | None = None, threads: int = 1) -> Model:
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

    Examples:
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
    if Path(path).suffix == ".plan" and backend == "auto":
        backend = "tensorrt"
    try:
        source = open_source(path)
        row = choose(source.config["unit"]) if backend == "auto" else BACKENDS[backend]
        name = row.name.partition(":")[0]
        stored = source.config.get("precision", "f32")
        precision = precision or stored
        if precision != stored and not row.repacks:
            raise VcdeployError(
                f"{source.file} is {stored}, and the {name} backend can't change the precision of a file: create one "
                f"in {precision} with `vcdeploy export --precision {precision}`, or use the native backend"
            )
        runner = row.start(source, precision, threads)
    except MemoryError as error:
        raise VcdeployError(
            f"{path} needs more memory than is available: use a smaller --precision or a smaller model, "
            "or export it again if it is a small model"
        ) from error
    return Model(name, source.config, source.vocab, precision, str(source.file), runner)
