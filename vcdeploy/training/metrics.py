"""The metrics of training and evaluation: loss, bits or perplexity, mean m and its spread, rnn_d, macs."""

import math
from typing import Any

import torch
from torch import Tensor

from vcdeploy import cost
from vcdeploy.units import LanguageModel
from vcdeploy.units.variable import VariableUnit
from vcdeploy.vocabulary import Vocabulary


def squares_of(m: Tensor, dim: int, softness: tuple[float, float] | None) -> Tensor:
    """a² for every m; softness is the mask's sharpness and epsilon, None for a unit without a mask."""
    if softness is None:
        return (m.detach().double() * dim) ** 2
    # Closed form, as in cost.active: a mask of D entries for every symbol of a long text would not fit into memory.
    return (m.detach().double() * dim + cost.reach(*softness)).floor().clamp(0, dim) ** 2


def active_squares(model: LanguageModel, m: Tensor, sharpness: float | None = None) -> Tensor:
    """a² for every m [..., layers], at the given sharpness (default: the model's)."""
    unit = model.unit
    softness = (sharpness or unit.sharpness, unit.epsilon) if isinstance(unit, VariableUnit) else None
    return squares_of(m, unit.dim, softness)


class Tally:
    """Sums over symbols, in one float64 tensor so that they can be reduced over processes.

    Layout: nats, symbols, then for every layer the sums of m, m² and a².
    """

    def __init__(self, layers: int) -> None:
        self.sums = torch.zeros(2 + 3 * layers, dtype=torch.float64)

    def add(self, nats: float, m: Tensor, squares: Tensor) -> None:
        """Add symbols with the total loss nats, and their m and a² [symbols, layers]."""
        fractions = m.detach().double()
        per_layer = torch.stack([fractions, fractions**2, squares], 1).sum(0)  # [3, layers]
        head = torch.tensor([nats, len(m)], dtype=torch.float64)
        self.sums += torch.cat([head, per_layer.flatten().cpu()])

    def summary(self, unit: str, dim: int, vocab: Vocabulary) -> dict[str, Any]:
        nats, symbols = self.sums[:2].tolist()
        m, m2, a2 = (self.sums[2:].view(3, -1) / symbols).tolist()
        mean = sum(m) / len(m)
        result: dict[str, Any] = {
            "loss": nats / symbols,
            "bits": nats / symbols / math.log(2),
            "m": mean,
            "m_spread": math.sqrt(max(0.0, sum(m2) / len(m2) - mean**2)),
            "rnn_d": cost.rnn_d(unit, dim, a2),
            "macs": cost.macs(unit, dim, a2),
            "compute": sum(a2) / len(a2) / dim**2,
        }
        if vocab.kind == "music":
            result["perplexity"] = math.exp(nats / symbols)
        if vocab.kind == "bits":
            result["bits_per_character"] = result["bits"] * vocab.period
        return result
