"""Package versions, to record in reports and manifests."""

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from vcdeploy import __version__


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of vcdeploy, of Python, and of the given packages that are installed."""
    found = {"vcdeploy": __version__, "python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
