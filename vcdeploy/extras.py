"""Optional packages: the extra that installs each, and the error if one is missing."""

import re
from functools import cache
from importlib.util import find_spec

from vcdeploy.errors import NoGpu, VcdeployError

EXTRAS = {
    "cuda": "gpu",
    "matplotlib": "plots",
    "music21": "music",
    "onnxruntime": "cpu",
    "onnxscript": "train",
    "safetensors": "train",
    "starlette": "serve",
    "tensorboard": "dev",
    "tensorrt": "gpu",
    "torch": "train",
    "uvicorn": "serve",
    "verovio": "music",
}


def install_command(module: str) -> str:
    """The command that installs an optional module, with the others of its extra.

    It names the packages, because vcdeploy itself is installed from its source and is on no package index.
    """
    extra = EXTRAS[module]
    packages = [each for each, of in _optional() if of == extra]
    if extra == "dev":  # a user needs none of the other tools
        packages = [each for each in packages if re.match(rf"{module}\b", each)]
    return "pip install " + " ".join(f'"{each}"' for each in packages or [module])


@cache
def _optional() -> list[tuple[str, str]]:
    """The optional requirements of the installed package, each with its extra."""
    from importlib.metadata import PackageNotFoundError, requires  # takes 10 ms

    try:
        declared = requires("vcdeploy") or []
    except PackageNotFoundError:
        return []
    found = (re.fullmatch(r"([^;]+?)\s*;.*\bextra == ['\"](\w+)['\"].*", each) for each in declared)
    return [(match[1], match[2]) for match in found if match]


def missing(module: str, for_: str) -> VcdeployError:
    """The error for an optional module that is needed but not installed."""
    kind = NoGpu if EXTRAS[module] == "gpu" else VcdeployError
    return kind(f"{for_} needs {module}, which is not installed; run: {install_command(module)}")


def require(module: str, for_: str) -> None:
    """Raise unless an optional module is installed; does not import it.

    >>> require("torch", for_="vcdeploy train")
    """
    if find_spec(module) is None:
        raise missing(module, for_)
