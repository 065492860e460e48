"""What training minimises beside the loss: a penalty on m, and the steering that holds a budget."""

import math
from typing import Any

import torch
from torch import Tensor

from vcdeploy.training.config import TrainConfig


def penalty(m: Tensor, target: Tensor | float, norm: str, above_only: bool) -> Tensor:
    """The mean over m [T, B, layers] of |m - target| or (m - target)², symmetric or only above the target."""
    gap = m - target
    if above_only:
        gap = gap.clamp_min(0)
    return (gap.abs() if norm == "l1" else gap**2).mean()


def entropy(logits: Tensor) -> Tensor:
    """The entropy of the prediction, in nats: [T, B] of logits [T, B, vocab]; no gradient flows through it."""
    log_p = torch.log_softmax(logits.detach(), -1)
    return -(log_p.exp() * log_p).sum(-1)


class Objective:
    """The penalty of a run: the target of every step, and the weight, which a budget moves while it trains.

    learn: one target for all. guide: a target of their own for chosen symbols. entropy: the target follows the
    entropy of the prediction the step has to make, scaled so that its mean is the target.
    """

    def __init__(self, config: TrainConfig, guided: Tensor | None = None) -> None:
        """guided: bool [vocab], the symbols with --guide-target; None where boundaries say (or no guide)."""
        self.config = config
        self.guided = guided
        self.target = config.target
        self.weight = config.weight
        self.mean_entropy = 0.0
        self.steering = Steering(config.budget, config.weight) if config.budget else None

    def __call__(self, logits: Tensor, m: Tensor, tokens: Tensor, boundaries: Tensor | None) -> Tensor:
        """The weighted penalty for one segment; logits [T, B, vocab], m [T, B, layers], tokens [T, B]."""
        return self.weight * penalty(
            m, self.targets(logits, tokens, boundaries), self.config.norm, self.config.above_only
        )

    def targets(self, logits: Tensor, tokens: Tensor, boundaries: Tensor | None) -> Tensor | float:
        if self.config.setting == "guide":
            chosen = self.guided[tokens] if self.guided is not None else boundaries
            assert chosen is not None
            low = torch.full(tokens.shape, self.target, device=tokens.device)
            return torch.where(chosen.bool(), self.config.guide_target, low).unsqueeze(-1)
        if self.config.setting == "entropy":
            level = entropy(logits)
            mean = self.mean_entropy or level.mean()
            return (self.target * level / mean).clamp(max=1).unsqueeze(-1)
        return self.target

    def observe(self, compute: float, mean_entropy: float) -> None:
        """After a step: the mean of a²/D² and of the prediction's entropy, over all processes."""
        self.mean_entropy = mean_entropy if not self.mean_entropy else 0.99 * self.mean_entropy + 0.01 * mean_entropy
        if self.steering:
            self.weight = self.steering.weight(compute)

    def state(self) -> dict[str, Any]:
        """What a resumed run needs to go on alike."""
        steering = [self.steering.spent, self.steering.integral] if self.steering else None
        return {"weight": self.weight, "mean_entropy": self.mean_entropy, "steering": steering}

    def restore(self, state: dict[str, Any]) -> None:
        self.weight, self.mean_entropy = state["weight"], state["mean_entropy"]
        if self.steering:
            self.steering.spent, self.steering.integral = state["steering"]


class Steering:
    """Steers the penalty's weight until the root of the mean of a²/D² is the budget.

    A proportional-integral controller on the logarithm of what is spent over what may be spent: the weight is
    exp(integral + PROPORTIONAL * error). A steered weight keeps the l1 penalty's virtue, which a penalty on m² has
    not: every step feels the same pull, so that m spreads as the text demands instead of crowding at one value.
    """

    SMOOTHING = 0.05  # of the running mean of a²/D²
    PROPORTIONAL, INTEGRAL = 10.0, 0.02
    HIGHEST = math.log(10.0)  # weight

    def __init__(self, budget: float, weight: float) -> None:
        self.budget = budget
        self.spent: float | None = None  # running mean of a²/D²
        self.integral = math.log(weight)

    def weight(self, compute: float) -> float:
        """The weight for the next step, after one that spent `compute`, a mean of a²/D²."""
        self.spent = compute if self.spent is None else self.spent + self.SMOOTHING * (compute - self.spent)
        error = 0.5 * math.log(max(self.spent, 1e-12)) - math.log(self.budget)
        self.integral = min(self.HIGHEST, self.integral + self.INTEGRAL * error)
        return math.exp(min(self.HIGHEST, self.integral + self.PROPORTIONAL * error))
