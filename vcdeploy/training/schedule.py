"""Schedules of the learning rate and of the mask's sharpness, as pure functions of the step."""

import math


def learning_rate(step: int, total: int, peak: float, warmup: int, decay: str) -> float:
    """Linear warm-up to the peak, then decay to a tenth of it at the last step (or no decay)."""
    if step < warmup:
        return peak * (step + 1) / warmup
    done = min(1.0, (step - warmup) / max(1, total - warmup))
    if decay == "cosine":
        return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))
    if decay == "linear":
        return peak * (1 - 0.9 * done)
    return peak


def sharpness(step: int, every: int, start: float, growth: float, end: float) -> float:
    """Sharpness from start to end, growing linearly by `growth` per `every` steps: a jump would disturb training."""
    return min(end, round(start + growth * step / every, 10))


def growth_interval(epoch: int, total: int, start: float, growth: float, end: float) -> int:
    """Steps per growth: one epoch; fewer in short runs, so that at least a tenth of the run has the final sharpness."""
    times = math.ceil(round(min((end - start) / growth, total), 6)) if growth else 0
    return max(1, min(epoch, int(0.9 * total / times))) if times else epoch
