"""Inference: one interface to all backends, with sampling on top."""

from vcdeploy.runtime.backends import BACKENDS
from vcdeploy.runtime.model import Model, load
from vcdeploy.runtime.sampling import Sampling, Token

__all__ = ["BACKENDS", "Model", "Sampling", "Token", "load"]
