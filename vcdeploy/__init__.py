"""vcdeploy: recurrent models that spend only the computation each step needs."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vcdeploy.runtime.loading import load as load


def __getattr__(name: str) -> Any:
    """`vcdeploy.load`, imported when first asked for: most commands load no model."""
    if name == "load":
        from vcdeploy.runtime.loading import load

        return load
    raise AttributeError(f"module 'vcdeploy' has no attribute {name!r}")
