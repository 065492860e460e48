"""load: from a name, a file or a folder to a model that runs."""

from __future__ import annotations

from pathlib import Path

from vcdeploy.errors import VcdeployError
from vcdeploy.runtime.backends import BACKENDS, CHOICES, choose
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.sources import open_source
from vcdeploy.spec import PRECISIONS


def load(path: str | Path, backend: str = "auto", precision: str | None = None, threads: int = 1) -> Model:
    """Load a pretrained model by name ("english"), or the model at `path`.

    A path is a file of `vcdeploy export`, the folder of a bundle, a checkpoint, or the folder of a run. A pretrained
    model's name comes before a file of that name, which is "./english" or a Path.

    backend: native, onnxruntime or torch, or auto: the first one that is installed and runs the unit (native runs the
    variable units); `Model.backend` says which. A backend that is named runs, or it is an error. onnxruntime runs the
    units on our custom op if it was built, else on the function body in the file, which computes densely;
    `Model.detail` says which. onnxruntime:function always takes the function body.
    On a GPU: tensorrt runs the engine of a folder that `vcdeploy export --trt` wrote; onnxruntime:cuda the function
    body with ONNX Runtime's CUDA provider; onnxruntime:tensorrt our plugin with its TensorRT provider.
    precision: f32, f16, bf16 or int8; the file's own by default. Only the native backend can change it.
    threads: CPU threads. PyTorch has one setting for the whole process, and this sets it.

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
                f"{source.file} is {stored}, and the {name} backend runs a file as it is: write an {precision} one "
                f"with `vcdeploy export --precision {precision}`, or use the native backend"
            )
        runner = row.start(source, precision, threads)
    except MemoryError as error:
        raise VcdeployError(
            f"{path} needs more memory than this process can get: use a smaller --precision or a smaller model, "
            "or export it again if it should be small"
        ) from error
    return Model(name, source.config, source.vocab, precision, str(source.file), runner)
