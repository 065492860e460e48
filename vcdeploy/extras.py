"""Optional packages: which extra brings each one, and what to say where one is missing."""

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
    """The command that brings in an optional module."""
    return f'pip install "vcdeploy[{EXTRAS[module]}]"'


def missing(module: str, for_: str) -> VcdeployError:
    """The error of a program that needs an optional module and has not got it."""
    return VcdeployError(f"{for_} needs {module}, which is not installed; run: {install_command(module)}")


def require(module: str, for_: str) -> None:
    """Raise unless an optional module is installed; it is found but not imported.

    >>> require("torch", for_="vcdeploy train")
    """
    if find_spec(module) is None:
        raise missing(module, for_)
