"""Evaluation: every symbol of a split predicted once, with m at every position."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vcdeploy.training.metrics import Tally
from vcdeploy.training.streams import Streams
from vcdeploy.units import LanguageModel


@torch.no_grad()
def evaluate(model: LanguageModel, streams: Streams) -> tuple[Tally, np.ndarray]:
    """The tally of this process's streams, and m [positions, layers] in the order of the text.

    Each stream starts from a zero state. The last symbol is only a target, so it has no m.
    """
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    state: Tensor | None = None
    tally: Tally | None = None
    shares: list[Tensor] = []
    for k in range(streams.segments):
        tokens, targets, boundaries = (None if each is None else each.to(device) for each in streams.segment(k))
        assert tokens is not None and targets is not None
        logits, state, m = model(tokens, state, boundaries)
        real = targets >= 0
        nats = cross_entropy(logits[real], targets[real], reduction="sum").item()
        tally = tally or Tally(m.shape[-1])
        tally.add(model, nats, m[real])
        shares.append(m.cpu())
    model.train(was_training)
    assert tally is not None
    in_order = torch.cat(shares).transpose(0, 1).flatten(0, 1)  # [streams × steps, layers]
    return tally, in_order[: streams.pairs].numpy()
