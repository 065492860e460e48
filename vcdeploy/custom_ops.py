"""The custom-op library for ONNX Runtime (plugins/onnxruntime): where the build put it, and how to get it built."""

from importlib.util import find_spec
from pathlib import Path

HOW_TO_BUILD = (
    "install ONNX Runtime's headers (Debian 13: libonnxruntime-dev), or set ORT_INCLUDE_DIR to the include folder of "
    "an ONNX Runtime release, and build vcdeploy again"
)


def library() -> Path | None:
    """The library, beside the native module; None where it was not built."""
    native = find_spec("vcdeploy._native")
    if native is None or native.origin is None:
        return None
    return next(Path(native.origin).parent.glob("libvcdeploy_onnxruntime.*"), None)
