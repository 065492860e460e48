"""Inference: one interface to all backends, with sampling on top."""

from vcdeploy.runtime.backends import BACKENDS
from vcdeploy.runtime.model import Model, load
from vcdeploy.runtime.sampling import Sampling, Token
from vcdeploy.runtime.session import Session

__all__ = ["BACKENDS", "Model", "Sampling", "Session", "Token", "load"]
