"""Locates the libraries of the TensorRT plugin (plugins/tensorrt), packaged or built by `vcdeploy plugin build`."""

import hashlib
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from vcdeploy import __version__
from vcdeploy.errors import VcdeployError

CORE = "libvcdeploy_tensorrt.so"
REGISTERING = "libvcdeploy_tensorrt_register.so"  # the same creators, registered on load
HOW_TO_BUILD = "run `vcdeploy plugin build`, which lists what it needs"


def sources() -> Path:
    """The plugin's sources, which the package always includes."""
    package = _package()
    if package is not None and (package / "plugins" / "tensorrt" / "CMakeLists.txt").is_file():
        return package / "plugins" / "tensorrt"
    raise VcdeployError(
        "the sources of the TensorRT plugin are not in this installation of vcdeploy: reinstall it; "
        "`vcdeploy doctor` says how"
    )


def built_folder() -> Path:
    """The folder `vcdeploy plugin build` installs to: in the user's cache, one per version of the sources."""
    root = sources()
    digest = hashlib.sha256()
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "vcdeploy" / "plugin" / f"{__version__}-{digest.hexdigest()[:12]}"


def library(name: str = CORE) -> Path | None:
    """The path of a plugin library, or None. One built on this machine takes precedence over the packaged one."""
    folders = []
    with suppress(VcdeployError):  # without sources there is no build of them
        folders.append(built_folder())
    if (package := _package()) is not None:
        folders.append(package)
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _package() -> Path | None:
    """The folder of the native module and the other files CMake installed."""
    native = find_spec("vcdeploy._native")
    return None if native is None or native.origin is None else Path(native.origin).parent
