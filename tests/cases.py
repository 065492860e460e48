"""Test cases for every implementation of the units: odd sizes, ragged m, edges (docs/design.md, section 5)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vcdeploy.reference import cells
from vcdeploy.spec import TRAINED_UNITS, UNITS, VARIABLE_UNITS

REFERENCE: dict[str, Callable[..., tuple[Tensor, ...]]] = cells.SEQUENCES
GATES = {name: len(UNITS[name].gates) for name in VARIABLE_UNITS}
DENSE = tuple(name for name in TRAINED_UNITS if name not in GATES)  # dense units with an op
EPSILON = 1e-3


@dataclass(frozen=True)
class Case:
    """One op call. level: values of m: near 0, ragged over batch and time, on a block edge, or near 1.

    A dense unit has no m: its level is "dense", and it has no mask.
    """

    unit: str
    T: int
    B: int
    D: int
    level: str
    sharpness: float

    def __str__(self) -> str:
        return f"{self.unit}-T{self.T}-B{self.B}-D{self.D}-{self.level}-{self.sharpness}"

    def inputs(self, dtype: torch.dtype = torch.float64) -> list[Tensor]:
        """The op's tensors, from a seed that depends on the case."""
        draw = torch.Generator().manual_seed(hash((self.T, self.B, self.D)) % 2**31)
        spec = UNITS[self.unit]
        T, B, D, G = self.T, self.B, self.D, len(spec.gates)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=draw, dtype=torch.float64)

        scale = D**-0.5
        X, H0 = normal(T, B, D), normal(B, D).tanh()
        U, V = normal(G * D, D) * scale, normal(G * D, D) * scale
        u, v = normal(D) * scale, normal(D) * scale
        reach = math.log((1 - EPSILON) / EPSILON) / self.sharpness  # how far the mask reaches past m·D
        if self.level == "edge":  # a is exactly 64 (or as close as D allows) in every step
            m = min(max((min(64, D) + 0.5 - reach) / D, 0.01), 0.99)
            u, v, b = u * 0, v * 0, math.log(m / (1 - m))
        else:
            b = {"zero": -9.0, "ragged": 0.0, "one": 9.0, "dense": 0.0}[self.level]
        bias = torch.tensor([b], dtype=torch.float64)
        scheduler = [u, v, bias] if spec.variable else []
        cell = [normal(B, D)] if spec.state_rows > 1 else []
        return [each.to(dtype) for each in (X, H0, U, V, *scheduler, *cell)]

    @property
    def mask(self) -> tuple[float, ...]:
        return mask_of(self.unit, self.sharpness)


def mask_of(unit: str, sharpness: float = 1.0) -> tuple[float, ...]:
    """The op's inputs after the tensors: sharpness and epsilon of a variable unit."""
    return (sharpness, EPSILON) if UNITS[unit].variable else ()


def small(unit: str, T: int = 3, B: int = 2, D: int = 7, sharpness: float = 1.0) -> Case:
    """A case of any unit; a variable one has a different m in every step."""
    return Case(unit, T, B, D, "ragged" if UNITS[unit].variable else "dense", sharpness)


CASES = [
    Case(unit, T, B, D, level, sharpness)
    for unit in GATES
    for T, B, D, level, sharpness in [
        (1, 1, 1, "ragged", 1.0),
        (5, 3, 7, "ragged", 1.0),
        (1, 4, 64, "ragged", 1.0),
        (6, 5, 97, "ragged", 0.5),
        (4, 2, 97, "edge", 1.0),
        (4, 2, 256, "edge", 1.0),
        (3, 3, 256, "ragged", 0.1),
        (6, 3, 97, "zero", 1.0),
        (4, 3, 64, "zero", 0.1),
        (6, 3, 97, "one", 1.0),
        (3, 2, 256, "one", 0.3),
    ]
]

DENSE_CASES = [
    Case(unit, T, B, D, "dense", 1.0)
    for unit in DENSE
    for T, B, D in [(1, 1, 1), (5, 3, 7), (1, 4, 64), (6, 5, 97), (3, 3, 256)]
]
