"""Optional packages: the extra that installs each, and the error if one is missing."""

from importlib.util import find_spec

from vcdeploy.errors import VcdeployError

EXTRAS = {
    "cuda": "gpu",
    "matplotlib": "plots",
    "music21": "music",
    "onnxruntime": "cpu",
    "onnxscript": "train",
    "safetensors": "train",
    "tensorboard": "dev",
    "tensorrt": "gpu",
    "torch": "train",
    "verovio": "music",
}


def install_command(module: str) -> str:
    """The command that installs an optional module."""
    return f'pip install "vcdeploy[{EXTRAS[module]}]"'


def missing(module: str, for_: str) -> VcdeployError:
    """The error for an optional module that is needed but not installed."""
    return VcdeployError(f"{for_} needs {module}, which is not installed; run: {install_command(module)}")


def require(module: str, for_: str) -> None:
    """Raise unless an optional module is installed; does not import it.

    >>> require("torch", for_="vcdeploy train")
    """
    if find_spec(module) is None:
        raise missing(module, for_)
