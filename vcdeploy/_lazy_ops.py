"""Registers the ops torch.ops.vcdeploy.* for `import vcdeploy`, without importing PyTorch itself.

Programs saved by torch.export, torch.jit and AOTInductor call the ops by name, so they must exist before such a program
is loaded. If PyTorch is imported already, they are registered at once, else as soon as it is.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:  # importlib.abc takes 15 ms
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec


class _Watch:
    """Finds torch where the other finders do, with a loader that also registers the ops."""

    def __init__(self) -> None:
        self.asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "torch" or self.asking:
            return None
        from importlib.util import find_spec

        self.asking = True
        try:
            spec = find_spec(name)
        finally:
            self.asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = cast("Loader", _ThenRegister(spec.loader, self))
        return spec


class _ThenRegister:
    def __init__(self, loader: Loader, watch: _Watch) -> None:
        self.loader, self.watch = loader, watch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader  # PyTorch's own, as if nobody had watched
        if self.watch in sys.meta_path:
            sys.meta_path.remove(self.watch)
        self.loader.exec_module(module)
        try:
            import_module("vcdeploy.kernels")
        except Exception as error:  # whatever is wrong, it is not PyTorch
            import warnings

            warnings.warn(f"the ops torch.ops.vcdeploy.* are missing: {error}", RuntimeWarning, stacklevel=2)


def register() -> None:
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _Watch())
    elif hasattr(sys.modules["torch"], "library"):  # a stand-in for torch in somebody's tests has none
        import_module("vcdeploy.kernels")
