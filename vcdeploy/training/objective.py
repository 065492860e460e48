"""The training objective besides the loss: a penalty on m, and the controller that meets a budget."""

import math
from typing import Any

import torch
from torch import Tensor

from vcdeploy.training.config import TrainConfig


def penalty(m: Tensor, target: Tensor | float, norm: str, above_only: bool) -> Tensor:
    """Mean of |m - target| or (m - target)² over m [T, B, layers], symmetric or only above the target."""
    gap = m - target
    if above_only:
        gap = gap.clamp_min(0)
    return (gap.abs() if norm == "l1" else gap**2).mean()


def entropy(logits: Tensor) -> Tensor:
    """Entropy of the prediction in nats, [T, B] for logits [T, B, vocab]; detached from the graph."""
    log_p = torch.log_softmax(logits.detach(), -1)
    return -(log_p.exp() * log_p).sum(-1)


class Objective:
    """The penalty of a run: targets for m and the weight of the penalty.

    learn without --weight: the penalty pulls every m down equally. A controller adjusts its weight until the mean of m
    meets --target, or the cost meets --budget; if m falls too low, every m is lifted equally. Which steps keep a high m
    is learnt from the text. (A penalty around the target cannot do this: more state always helps a little, so no m
    stays below the target, and the mean meets it only if every m does.)
    learn with --weight: the paper's penalty around one target.
    guide: the same, with a separate target for chosen symbols.
    entropy: the target follows the entropy of the step's prediction, with the mean --target.
    """

    def __init__(self, config: TrainConfig, guided: Tensor | None = None, epoch: int = 1000) -> None:
        """guided: bool [vocab], the symbols with --guide-target; None with boundaries or without a guide.

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
        norm = self.config.norm if self.weight > 0 else "l1"  # l1 lifts every m equally, including the lowest
        return self.weight * penalty(m, targets, norm, self.config.above_only)

    def targets(self, logits: Tensor, tokens: Tensor, boundaries: Tensor | None) -> Tensor | float:
        """The target of m: one number, or [T, B, 1]."""
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
        """Update after a step, with means over all processes: of m, of a²/D² and of the prediction's entropy."""
        if self.steering:
            self.weight = self.steering.weight(self._spent(mean_m, mean_square))
        if self.mean_entropy is not None:
            mean_entropy = self.mean_entropy + 0.01 * (mean_entropy - self.mean_entropy)
        self.mean_entropy = mean_entropy

    def calibrate(self, mean_m: float, mean_square: float) -> None:
        """Update after an evaluation, with means over held-out text, where the goal has to be met."""
        if self.steering:
            self.steering.calibrate(self._spent(mean_m, mean_square))

    def _spent(self, mean_m: float, mean_square: float) -> float:
        return math.sqrt(mean_square) if self.config.budget else mean_m

    def state(self) -> dict[str, Any]:
        """The state to save for resuming."""
        steering = vars(self.steering) if self.steering else None
        return {"weight": self.weight, "mean_entropy": self.mean_entropy, "steering": steering}

    def restore(self, state: dict[str, Any]) -> None:
        self.weight, self.mean_entropy = state["weight"], state["mean_entropy"]
        if self.steering:
            vars(self.steering).update(state["steering"])


GUIDING_WEIGHT = 1.0  # enough for m to follow the targets of guide and entropy


class Steering:
    """Adjusts the weight of the penalty until the cost meets its goal.

    A proportional-integral controller on the error log(cost / goal); the weight is
    exp(integral + PROPORTIONAL * error). It settles within the first few hundred steps. It observes training text;
    held-out text costs more, by a ratio that is measured again at every evaluation.

    Early in training a model may not benefit from more state, and a scheduler with a low m does not recover by itself
    once it would. So after 200 steps below the goal with almost no weight left, the weight turns negative and every m
    is lifted equally, for at most 200 steps in total: without a benefit from more state m falls again.
    """

    SMOOTHING = 0.05  # rate of the running mean of the cost
    SLOWLY = 0.005  # rate of the slower mean that held-out text is compared with, since passages of text differ;
    PARTS = 8  # in a short epoch, PARTS / epoch if that is larger
    PROPORTIONAL = 10.0
    INTEGRAL = 0.08  # the required weight grows as the model learns; the remaining error is growth / INTEGRAL
    FAR = 0.1  # errors are clipped to ± FAR in the integral, against wind-up in the first steps
    LOWEST, HIGHEST = math.log(1e-4), math.log(10.0)  # bounds of the weight's logarithm
    PATIENCE = 200  # steps below the goal (minus steps at it) before m is lifted; also the maximum number of lifts
    SLACK = 0.02  # errors above -SLACK are not below the goal
    NOTHING = 0.01  # weights below this have no effect
    LIFT = 0.3  # negative weight per error beyond SLACK

    def __init__(self, goal: float, epoch: int) -> None:
        self.goal = goal
        self.slowly = min(1.0, max(self.SLOWLY, self.PARTS / epoch))
        self.surplus = 1.0  # cost on held-out text / cost on training text
        self.spent: float | None = None
        self.spent_lately: float | None = None
        self.integral = math.log(0.3)
        self.too_little = 0  # steps below the goal minus steps at it; from 0 to twice PATIENCE
        self.lifts = self.PATIENCE  # lifts left

    def weight(self, spent: float) -> float:
        """The weight for the next step, given the cost of the last one."""
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
        """Set the ratio of held-out to training cost, given the current cost on held-out text."""
        if self.spent_lately:
            self.surplus = held_out / self.spent_lately

    def _bounded(self, exponent: float) -> float:
        return min(self.HIGHEST, max(self.LOWEST, exponent))


def _nearer(mean: float | None, value: float, rate: float) -> float:
    """The running mean, updated with one value."""
    return value if mean is None else mean + rate * (value - mean)
