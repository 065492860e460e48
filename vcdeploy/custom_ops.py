"""The custom-op library for ONNX Runtime (plugins/onnxruntime), installed with every build of vcdeploy."""

from importlib.util import find_spec
from pathlib import Path

HOW_TO_BUILD = "this installation of vcdeploy is incomplete; install it again"


def library() -> Path | None:
    """Path of the library, next to the native module; None if the installation is incomplete."""
    native = find_spec("vcdeploy._native")
    if native is None or native.origin is None:
        return None
    return next(Path(native.origin).parent.glob("libvcdeploy_onnxruntime.*"), None)
