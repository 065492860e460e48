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
    """The penalty of a run: what pulls m, and how strongly.

    learn, steered (no --weight): every m is pulled down alike, by a weight that is steered until the mean of m is
    --target, or the spending --budget; where m has sunk, every one is lifted alike. The text decides which steps
    resist. (A penalty around the target cannot do both: more state is always of some use, so no m stays below the
    target, and the mean meets it only where all do.)
    learn, with --weight: the paper's penalty around one target. guide: the same, with a target of their own for
    chosen symbols. entropy: the target follows the entropy of the prediction the step has to make, with the mean
    --target.
    """

    def __init__(self, config: TrainConfig, guided: Tensor | None = None, epoch: int = 1000) -> None:
        """guided: bool [vocab], the symbols with --guide-target; None where boundaries say (or no guide).

        epoch: steps between evaluations.
        """
        self.config = config
        self.guided = guided
        self.steering: Steering | None = None
        self.mean_entropy: float | None = None
        if config.weight is not None:
            self.weight = config.weight
        elif config.setting == "learn":
            self.steering = Steering(config.budget or config.target, epoch)
            self.weight = math.exp(self.steering.integral)
        else:
            self.weight = GUIDING_WEIGHT

    def __call__(self, logits: Tensor, m: Tensor, tokens: Tensor, boundaries: Tensor | None) -> Tensor:
        """The weighted penalty for one segment; logits [T, B, vocab], m [T, B, layers], tokens [T, B]."""
        targets = 0.0 if self.steering else self.targets(logits, tokens, boundaries)
        norm = self.config.norm if self.weight > 0 else "l1"  # to lift every m alike, the lowest too
        return self.weight * penalty(m, targets, norm, self.config.above_only)

    def targets(self, logits: Tensor, tokens: Tensor, boundaries: Tensor | None) -> Tensor | float:
        """What the penalty pulls m to: one number, or [T, B, 1]."""
        config = self.config
        if config.setting == "guide":
            chosen = self.guided.to(tokens.device)[tokens] if self.guided is not None else boundaries
            assert chosen is not None
            low = torch.full(tokens.shape, config.target, device=tokens.device)
            return torch.where(chosen.bool(), config.guide_target, low).unsqueeze(-1)
        if config.setting == "entropy":
            level = entropy(logits)
            mean = level.mean() if self.mean_entropy is None else self.mean_entropy
            return (config.target * level / mean).clamp(max=1).unsqueeze(-1)
        return config.target

    def observe(self, mean_m: float, mean_square: float, mean_entropy: float) -> None:
        """After a step, the means over all processes: of m, of a²/D², of the prediction's entropy."""
        if self.steering:
            self.weight = self.steering.weight(self._spent(mean_m, mean_square))
        if self.mean_entropy is not None:
            mean_entropy = self.mean_entropy + 0.01 * (mean_entropy - self.mean_entropy)
        self.mean_entropy = mean_entropy

    def calibrate(self, mean_m: float, mean_square: float) -> None:
        """After an evaluation, the means over held-out text: what is steered there is what counts."""
        if self.steering:
            self.steering.calibrate(self._spent(mean_m, mean_square))

    def _spent(self, mean_m: float, mean_square: float) -> float:
        return math.sqrt(mean_square) if self.config.budget else mean_m

    def state(self) -> dict[str, Any]:
        """What a resumed run needs to go on alike."""
        steering = vars(self.steering) if self.steering else None
        return {"weight": self.weight, "mean_entropy": self.mean_entropy, "steering": steering}

    def restore(self, state: dict[str, Any]) -> None:
        self.weight, self.mean_entropy = state["weight"], state["mean_entropy"]
        if self.steering:
            vars(self.steering).update(state["steering"])


GUIDING_WEIGHT = 1.0  # enough for m to follow targets of its own


class Steering:
    """Steers the penalty's weight until what is spent meets its goal.

    A proportional-integral controller on the logarithm of spent over goal; the weight is
    exp(integral + PROPORTIONAL * error). It settles within the first few hundred steps. It follows the text of
    training; text the model has not seen costs more, by a ratio that every evaluation measures anew.

    Early on a model may have no use for more state, and a scheduler that has sunk does not rise again by itself once
    there is one. So after 200 steps of spending too little, with next to nothing left of the weight, it turns negative:
    every m is lifted alike. That is a push, for 200 steps in all: a model that has no use for more sinks again.
    """

    SMOOTHING = 0.05  # of the running mean of what is spent
    SLOWLY = 0.005  # of the one that held-out text is compared with, since a stretch of text differs from the next;
    PARTS = 8  # or, where an epoch is short, over such a part of one
    PROPORTIONAL = 10.0
    INTEGRAL = 0.08  # the weight needed keeps growing as the model learns; the error that leaves is growth / INTEGRAL
    FAR = 0.1  # an error beyond it, as in the first steps, counts no more in the integral
    LOWEST, HIGHEST = math.log(1e-4), math.log(10.0)  # of the weight
    PATIENCE = 200  # steps of too little, less those of enough, before m is lifted; and of lifting, at the most
    SLACK = 0.02  # an error that is not too little
    NOTHING = 0.01  # a weight that pulls no more
    LIFT = 0.3  # the weight, over the rest of the error

    def __init__(self, goal: float, epoch: int) -> None:
        self.goal = goal
        self.slowly = min(1.0, max(self.SLOWLY, self.PARTS / epoch))
        self.surplus = 1.0  # what held-out text costs, over what the text of training does
        self.spent: float | None = None
        self.spent_lately: float | None = None
        self.integral = math.log(0.3)
        self.too_little = 0  # such steps, less those of enough; from 0 to twice PATIENCE
        self.lifts = self.PATIENCE  # those that are left

    def weight(self, spent: float) -> float:
        """The weight for the next step, after one that spent so much."""
        self.spent = _nearer(self.spent, spent, self.SMOOTHING)
        self.spent_lately = _nearer(self.spent_lately, spent, self.slowly)
        error = math.log(max(self.spent, 1e-9) * self.surplus / self.goal)
        sinking = error < -self.SLACK
        self.too_little = min(2 * self.PATIENCE, max(0, self.too_little + (1 if sinking else -1)))
        weight = math.exp(self._bounded(self.integral + self.PROPORTIONAL * error))
        if sinking and self.too_little > self.PATIENCE and weight < self.NOTHING and self.lifts:
            self.lifts -= 1
            return self.LIFT * (error + self.SLACK)
        self.integral = self._bounded(self.integral + self.INTEGRAL * min(self.FAR, max(-self.FAR, error)))
        return math.exp(self._bounded(self.integral + self.PROPORTIONAL * error))

    def calibrate(self, held_out: float) -> None:
        """Held-out text costs so much, by the model as it is."""
        if self.spent_lately:
            self.surplus = held_out / self.spent_lately

    def _bounded(self, exponent: float) -> float:
        return min(self.HIGHEST, max(self.LOWEST, exponent))


def _nearer(mean: float | None, value: float, rate: float) -> float:
    """A running mean after one more value."""
    return value if mean is None else mean + rate * (value - mean)
