"""Evaluation: predict every symbol of a split once and record m at every position, in PyTorch or on any backend."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vcdeploy.spec import VARIABLE_UNITS
from vcdeploy.training.metrics import Tally, active_squares, squares_of
from vcdeploy.training.streams import Streams
from vcdeploy.units import LanguageModel

# tokens [T, B], boundaries [T, B], state, number of steps so far -> logits, new state, m
Read = Callable[[Tensor, Tensor | None, Any, int], tuple[Tensor, Any, Tensor]]


@torch.no_grad()
def evaluate(model: LanguageModel, streams: Streams) -> tuple[Tally, np.ndarray]:
    """The tally of this process's streams, and m [positions, layers] in text order.

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


class Runnable(Protocol):
    """A model loaded with vcdeploy.load."""

    config: dict[str, Any]

    def run(self, tokens: Any, state: Any = None, position: int = 0) -> tuple[Any, Any, Any]: ...


def evaluate_loaded(model: Runnable, streams: Streams) -> tuple[Tally, np.ndarray]:
    """Like evaluate, for a model loaded with vcdeploy.load, on its backend; a CRNN finds the boundaries itself."""
    config = model.config
    softness = (config["sharpness"], config["epsilon"]) if config["unit"] in VARIABLE_UNITS else None

    def read(tokens: Tensor, boundaries: Tensor | None, state: Any, position: int) -> tuple[Tensor, Any, Tensor]:
        logits, after, m = model.run(tokens.numpy(), state, position)
        return torch.from_numpy(logits), after, torch.from_numpy(m)

    return _measure(read, lambda m: squares_of(m, config["dim"], softness), streams)


def _measure(read: Read, squares: Callable[[Tensor], Tensor], streams: Streams) -> tuple[Tally, np.ndarray]:
    """Run a model over all segments; squares computes a² from m."""
    state: Any = None
    tally: Tally | None = None
    fractions: list[Tensor] = []
    for k in range(streams.segments):
        tokens, targets, boundaries = streams.segment(k)
        logits, state, m = read(tokens, boundaries, state, k * streams.length)
        targets = targets.to(logits.device)
        real = targets >= 0
        nats = cross_entropy(logits[real].double(), targets[real], reduction="sum").item()
        tally = tally or Tally(m.shape[-1])
        tally.add(nats, m[real], squares(m[real]))
        fractions.append(m.cpu())
    assert tally is not None
    in_order = torch.cat(fractions).transpose(0, 1).flatten(0, 1)  # [streams × steps, layers]
    return tally, in_order[: streams.pairs].numpy()
