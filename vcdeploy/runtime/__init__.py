"""Running trained models: one interface, a module a backend, sampling on top."""

from vcdeploy.runtime.loading import BACKENDS, Model, load

__all__ = ["BACKENDS", "Model", "load"]
