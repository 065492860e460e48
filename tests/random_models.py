"""Native models with random weights, for tests/attack. They need NumPy only."""

from typing import Any

import numpy as np

from vcdeploy.runtime.native import NativeModel
from vcdeploy.spec import UNITS
from vcdeploy.vocabulary import Vocabulary

VOCAB = Vocabulary("\n abcdefghijklmnopqrstuvwxyz")


def model(unit: str = "vcgru", dim: int = 64, layers: int = 1, bias: float = 0.0, **options: Any) -> NativeModel:
    """bias: of the schedulers; the larger, the more of the state a step updates."""
    random, gates = np.random.default_rng(0), len(UNITS[unit].gates)
    weights = {"embedding": random.standard_normal((len(VOCAB), dim))}
    for n in range(layers):
        for name, shape in (("U", (gates * dim, dim)), ("V", (gates * dim, dim)), ("u", (dim,)), ("v", (dim,))):
            weights[f"layers.{n}.{name}"] = random.standard_normal(shape) * dim**-0.5
        weights[f"layers.{n}.b"] = np.full(1, bias)
    weights["output.weight"] = random.standard_normal((len(VOCAB), dim)) * 4 * dim**-0.5
    weights["output.bias"] = np.zeros(len(VOCAB))
    return NativeModel(weights, VOCAB, unit=unit, **options)
