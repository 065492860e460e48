"""Pieces of `vcdeploy train` for loops of your own, with any network that contains a VCRNN, VCGRU or VCLSTM.

groups = parameter_groups(network, lr=2e-3)
optimizer = torch.optim.Adam(groups)
sharpness, budget = Sharpness(network, steps), Budget(network.unit, 0.5)
for x, target in batches:
    logits, m = network(x)
    (loss(logits, target) + budget(m)).backward()
    clip_gradients(groups, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    sharpness.step()
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from vcdeploy.training import schedule
from vcdeploy.training.metrics import squares_of
from vcdeploy.training.objective import Steering, penalty
from vcdeploy.units.variable import VariableUnit

SCHEDULER_RATE = 0.2  # of the other parameters' learning rate


def units_of(network: nn.Module) -> list[VariableUnit]:
    """The variable units in a network."""
    return [each for each in network.modules() if isinstance(each, VariableUnit)]


def parameter_groups(network: nn.Module, lr: float, scheduler_rate: float = SCHEDULER_RATE) -> list[dict[str, Any]]:
    """Groups for an optimizer: all other parameters, and the schedulers', which learn at `scheduler_rate` times lr."""
    schedulers = [each for unit in units_of(network) for each in unit.scheduler_parameters()]
    apart = {id(each) for each in schedulers}
    others = [each for each in network.parameters() if id(each) not in apart]
    groups: list[dict[str, Any]] = [{"params": others, "lr": lr}]
    return [*groups, {"params": schedulers, "lr": lr * scheduler_rate}] if schedulers else groups


def clip_gradients(groups: Iterable[dict[str, Any]], norm: float) -> None:
    """Clip each group on its own: the schedulers' gradients are much larger than the others."""
    for group in groups:
        nn.utils.clip_grad_norm_(group["params"], norm)


class Sharpness:
    """Lets the sharpness of all units of a network grow evenly from start to end within nine tenths of `steps`."""

    def __init__(self, network: nn.Module, steps: int, start: float = 0.1, end: float = 1.0) -> None:
        self.units, self.start, self.end = units_of(network), start, end
        self.steps, self.done = max(1, int(0.9 * steps)), 0
        self._set()

    def step(self) -> None:
        self.done += 1
        self._set()

    def _set(self) -> None:
        for unit in self.units:
            unit.sharpness = schedule.sharpness(self.done, self.steps, self.start, self.end - self.start, self.end)


class Budget:
    """A penalty on m whose weight a controller steers until the unit's cost meets a budget.

    budget: cost, as a fraction of the dense unit's: the root of the mean of a²/D², at the final sharpness. Call it once
    per step, on m as `return_m` returned it; leave out padding with m[mask].
    """

    def __init__(self, unit: VariableUnit, budget: float, final_sharpness: float = 1.0) -> None:
        if not 0 < budget < 1:
            raise ValueError(f"budget must be between 0 and 1, a fraction of the dense unit's cost, not {budget}")
        self.unit, self.mask = unit, (final_sharpness, unit.epsilon)
        self.steering = Steering(budget, epoch=1000)
        self.weight = math.exp(self.steering.integral)

    def __call__(self, m: Tensor) -> Tensor:
        """The weighted penalty of this step; the weight of the next one follows its cost."""
        weighted = self.weight * penalty(m, 0.0, "l1", False)
        self.weight = self.steering.weight(self.cost(m))
        return weighted

    def cost(self, m: Tensor) -> float:
        """The root of the mean of a²/D²."""
        with torch.no_grad():
            return math.sqrt(squares_of(m, self.unit.dim, self.mask).mean().item()) / self.unit.dim
