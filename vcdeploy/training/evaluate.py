"""Evaluation: every symbol of a split predicted once, with m at every position; in PyTorch, or on any backend."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vcdeploy.runtime.loading import VARIABLE_UNITS, Model
from vcdeploy.training.metrics import Tally, active_squares, squares_of
from vcdeploy.training.streams import Streams
from vcdeploy.units import LanguageModel

# tokens and boundaries [T, B], the state before and the number of steps before -> logits, the state after, m
Read = Callable[[Tensor, Tensor | None, Any, int], tuple[Tensor, Any, Tensor]]


@torch.no_grad()
def evaluate(model: LanguageModel, streams: Streams) -> tuple[Tally, np.ndarray]:
    """The tally of this process's streams, and m [positions, layers] in the order of the text.

    Each stream starts from a zero state. The last symbol is only a target, so it has no m.
    """
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device

    def read(tokens: Tensor, boundaries: Tensor | None, state: Any, position: int) -> tuple[Tensor, Any, Tensor]:
        return model(tokens.to(device), state, None if boundaries is None else boundaries.to(device))

    measured = _measure(read, lambda m: active_squares(model, m), streams)
    model.train(was_training)
    return measured


def evaluate_loaded(model: Model, streams: Streams) -> tuple[Tally, np.ndarray]:
    """The same of a model of vcdeploy.load, on its backend; a CRNN finds the boundaries itself."""
    config = model.config
    softness = (config["sharpness"], config["epsilon"]) if config["unit"] in VARIABLE_UNITS else None

    def read(tokens: Tensor, boundaries: Tensor | None, state: Any, position: int) -> tuple[Tensor, Any, Tensor]:
        logits, after, m = model.run(tokens.numpy(), state, position)
        return torch.from_numpy(logits), after, torch.from_numpy(m)

    return _measure(read, lambda m: squares_of(m, config["dim"], softness), streams)


def by_class(m: np.ndarray, classes: Mapping[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """How many symbols each class has, and their mean m, from m [positions, layers]; the last symbol has none."""
    shares = m.mean(-1)
    return {
        name: {"symbols": int(chosen[:-1].sum()), "m": float(shares[chosen[:-1]].mean())}
        for name, chosen in classes.items()
        if chosen[:-1].any()
    }


def _measure(read: Read, squares: Callable[[Tensor], Tensor], streams: Streams) -> tuple[Tally, np.ndarray]:
    """squares: from m to a²."""
    state: Any = None
    tally: Tally | None = None
    shares: list[Tensor] = []
    for k in range(streams.segments):
        tokens, targets, boundaries = streams.segment(k)
        logits, state, m = read(tokens, boundaries, state, k * streams.length)
        targets = targets.to(logits.device)
        real = targets >= 0
        nats = cross_entropy(logits[real].double(), targets[real], reduction="sum").item()
        tally = tally or Tally(m.shape[-1])
        tally.add(nats, m[real], squares(m[real]))
        shares.append(m.cpu())
    assert tally is not None
    in_order = torch.cat(shares).transpose(0, 1).flatten(0, 1)  # [streams × steps, layers]
    return tally, in_order[: streams.pairs].numpy()
