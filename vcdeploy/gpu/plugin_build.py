"""Compiles the TensorRT plugin on the user's machine: finds the toolchain and runs the build."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.gpu import plugin_files

HEADER = "NvInfer.h"
PREFIXES = ("/usr", "/usr/local", "/usr/local/tensorrt", "/usr/local/TensorRT", "/opt/tensorrt", "/usr/src/tensorrt")
PIP_CUDA = "nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl nvidia-nvvm"
SHOWN = 20  # lines shown of a failed build
PATIENCE = 3600.0  # timeout in seconds


@dataclass(frozen=True)
class Toolchain:
    """The tools of a build. nvinfer: the folder of libnvinfer, which only the self-registering library needs."""

    nvcc: Path
    cmake: Path
    headers: Path
    nvinfer: Path | None


def find_toolchain() -> Toolchain:
    """The installed toolchain; raises an error that lists everything missing, with the command to install it."""
    nvcc, cmake, headers = find_nvcc(), find_cmake(), find_headers()
    missing = []
    if nvcc is None:
        missing.append(
            f"nvcc, CUDA's compiler: pip install {PIP_CUDA}, or install the CUDA toolkit and put nvcc on PATH"
        )
    if cmake is None:
        missing.append("cmake: pip install cmake")
    if headers is None:
        missing.append(
            "TensorRT's headers: apt install libnvinfer-headers-dev (NVIDIA's repository), or get the include folder "
            "of a TensorRT archive or of github.com/NVIDIA/TensorRT and set TENSORRT_INCLUDE_DIR to it; it holds "
            f"{HEADER}"
        )
    if nvcc is None or cmake is None or headers is None:
        raise VcdeployError("the TensorRT plugin can't be built here; missing:\n  " + "\n  ".join(missing))
    return Toolchain(nvcc, cmake, headers, find_nvinfer())


def find_nvcc() -> Path | None:
    """Find nvcc: $CUDACXX, PATH, $CUDA_HOME, $CUDA_PATH, /usr/local/cuda, or the pip packages of CUDA."""
    if named := os.environ.get("CUDACXX"):
        return _named(Path(named), "CUDACXX", "nvcc")
    if found := shutil.which("nvcc"):
        return Path(found)
    roots = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    candidates = [root / "bin" / "nvcc" for root in (*roots, Path("/usr/local/cuda"))]
    for folder in _package_folders("nvidia"):
        candidates += sorted(folder.glob("*/bin/nvcc"), reverse=True)  # cu13 before cu12
    return next((each for each in candidates if os.access(each, os.X_OK)), None)


def find_cmake() -> Path | None:
    if found := shutil.which("cmake"):
        return Path(found)
    candidates = (folder / "data" / "bin" / "cmake" for folder in _package_folders("cmake"))
    return next((each for each in candidates if os.access(each, os.X_OK)), None)


def find_headers() -> Path | None:
    """Find TensorRT's headers: $TENSORRT_INCLUDE_DIR, or the usual folders."""
    if named := os.environ.get("TENSORRT_INCLUDE_DIR"):
        return _named(Path(named) / HEADER, "TENSORRT_INCLUDE_DIR", HEADER).parent
    return next((folder for folder in _in_prefixes("include") if (folder / HEADER).is_file()), None)


def find_nvinfer() -> Path | None:
    """Find libnvinfer's folder: $TENSORRT_LIBRARY_DIR, the pip packages of TensorRT, or the usual folders."""
    if named := os.environ.get("TENSORRT_LIBRARY_DIR"):
        found = next(Path(named).glob("libnvinfer.so*"), Path(named) / "libnvinfer.so")
        return _named(found, "TENSORRT_LIBRARY_DIR", "libnvinfer.so").parent
    folders = [*_package_folders("tensorrt_libs"), *_in_prefixes("lib")]
    return next((folder for folder in folders if any(folder.glob("libnvinfer.so*"))), None)


def _named(path: Path, variable: str, what: str) -> Path:
    if not path.exists():
        raise VcdeployError(f"{variable} is {os.environ[variable]}, but there is no {what}: unset or correct it")
    return path


def _in_prefixes(kind: str) -> Iterator[Path]:
    """The usual folders of a kind, "include" or "lib"; Debian has one per architecture."""
    for prefix in PREFIXES:
        yield Path(prefix) / kind / f"{platform.machine()}-linux-gnu"
        yield Path(prefix) / kind


def _package_folders(module: str) -> list[Path]:
    spec = find_spec(module)
    return [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]


def read_architectures(text: str) -> str:
    """Convert a list of GPU architectures to CMake's format."""
    parts = [part.strip() for part in re.split("[,;]", text)]
    if parts == ["native"]:
        return "native"
    for part in parts:
        if not re.fullmatch(r"\d{2,3}[af]?(-real|-virtual)?", part):
            raise BadValue(
                f"--arch {text!r} has {part!r}, which is not an architecture: give compute capabilities without the "
                "dot, such as 89 or 80,90, or native for the GPUs of this machine"
            )
    return ";".join(parts)


def build(architectures: str | None, tell: Callable[[str], None]) -> Path:
    """Compile and install the libraries; returns the plugin's path. tell: receives progress messages.

    architectures: such as "89" or "80,90", or "native"; None for all that nvcc supports.
    """
    wanted = None if architectures is None else read_architectures(architectures)
    tools, folder = find_toolchain(), plugin_files.built_folder()
    tell(f"nvcc {tools.nvcc}, TensorRT's headers {tools.headers}, cmake {tools.cmake}")
    if tools.nvinfer is None:
        tell(f"libnvinfer not found: {plugin_files.REGISTERING} is left out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as temporary:
            made = Path(temporary) / "made"
            (folder / "build.log").write_text("")
            for command in _commands(tools, wanted, Path(temporary) / "build", made):
                tell(f"{Path(command[0]).name} {command[1]} …")
                _run(command, folder / "build.log")
            if not (made / plugin_files.CORE).is_file():
                raise VcdeployError(
                    f"the build succeeded but produced no {plugin_files.CORE}: see {folder / 'build.log'}"
                )
            # The plugin first: the other library links against it.
            for name in (plugin_files.CORE, plugin_files.REGISTERING):
                if (made / name).is_file():
                    os.replace(made / name, folder / name)
                elif tools.nvinfer is not None:
                    tell(f"{name} is left out: libnvinfer in {tools.nvinfer} and the headers differ in major version")
    except OSError as error:
        raise VcdeployError(f"could not write {error.filename or folder}: {error.strerror or error}") from error
    return folder / plugin_files.CORE


def _commands(tools: Toolchain, architectures: str | None, build: Path, made: Path) -> list[list[str]]:
    cmake = str(tools.cmake)
    settings = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CUDA_COMPILER": str(tools.nvcc),
        "TENSORRT_INCLUDE_DIR": str(tools.headers),
        "TENSORRT_LIBRARY_DIR": str(tools.nvinfer or ""),
        "VCDEPLOY_CUDA_ARCHITECTURES": architectures or "",
    }
    given = [f"-D{name}={value}" for name, value in settings.items() if value]
    return [
        [cmake, "-S", str(plugin_files.sources()), "-B", str(build), *given],
        [cmake, "--build", str(build)],
        [cmake, "--install", str(build), "--prefix", str(made)],
    ]


def _run(command: list[str], log: Path) -> None:
    """Run a command; if it fails, raise an error with its last lines of output and the path of the log."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=PATIENCE
        )
    except subprocess.TimeoutExpired as error:
        raise VcdeployError(
            f"{' '.join(command[:2])} did not finish within {PATIENCE:.0f} s and was stopped"
        ) from error
    with log.open("a") as file:
        file.write(done.stdout)
    if done.returncode:
        said = "\n".join(done.stdout.rstrip().splitlines()[-SHOWN:])
        raise VcdeployError(f"the plugin did not compile; the full log is {log}, its last lines are:\n{said}")
