"""The dense units of the paper's comparisons: Elman RNN, GRU, LSTM, and the Conditional RNN.

They have the interface of the variable units (vcdeploy.units.variable) and report m = 1: every dimension at every step.
Like the variable units they have no biases; the first layer's bias would be redundant with the embedding.
"""

from typing import ClassVar, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from vcdeploy.spec import UNITS, Unit
from vcdeploy.units.variable import refuse_positional


class DenseUnit(nn.Module):
    """A stack of PyTorch's fused RNN, GRU or LSTM. S is `spec.state_rows` per layer: h; for the LSTM h, then c."""

    spec: ClassVar[Unit]
    cell: ClassVar[type[nn.RNN | nn.GRU | nn.LSTM]]
    has_scheduler: ClassVar[bool] = False

    def __init__(self, dim: int, *others: NoReturn, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        refuse_positional(type(self).__name__, dim, others)
        self.dim = dim
        self.layers = nn.ModuleList(self.cell(dim, dim, bias=False) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        rows = self.spec.state_rows
        if state is None:
            state = x.new_zeros(len(self.layers) * rows, x.shape[1], self.dim)
        states: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            before = state[index * rows : (index + 1) * rows].split(1)
            x, after = layer(x if index == 0 else self.dropout(x), before[0] if rows == 1 else before)
            states.extend([after] if rows == 1 else after)
        return x, torch.cat(states), x.new_ones(*x.shape[:2], len(self.layers))


class RNN(DenseUnit):
    """The Elman unit."""

    spec, cell = UNITS["rnn"], nn.RNN


class GRU(DenseUnit):
    """The gated recurrent unit (PyTorch's variant: the reset gate is applied after the matrix product)."""

    spec, cell = UNITS["gru"], nn.GRU


class LSTM(DenseUnit):
    """The long short-term memory."""

    spec, cell = UNITS["lstm"], nn.LSTM


class CRNN(nn.Module):
    """The Conditional RNN: a fast layer at every step, and a slow layer that updates only at boundaries.

    fast_t = tanh(U fast_{t-1} + V x_t + W slow_{t-1})
    slow_t = tanh(U' slow_{t-1} + V' fast_t) at a boundary, slow_{t-1} elsewhere

    Boundaries [T, B] are an input: word ends for characters, character ends for bits. State rows: fast, slow.
    m [T, B, 2] is 1 for the fast layer; for the slow layer it is 1 at boundaries and 0 elsewhere. W slow changes only
    at boundaries and is cached in between; the cost (vcdeploy.cost) counts it that way.
    """

    spec: ClassVar[Unit] = UNITS["crnn"]
    has_scheduler: ClassVar[bool] = False

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        bound = dim**-0.5
        self.fast_U, self.fast_V, self.fast_W, self.slow_U, self.slow_V = (
            nn.Parameter(torch.empty(dim, dim).uniform_(-bound, bound)) for _ in range(5)
        )

    def forward(
        self, x: Tensor, state: Tensor | None = None, boundaries: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if boundaries is None or boundaries.shape != x.shape[:2]:
            raise ValueError(f"CRNN needs boundaries of shape [T, B] = {list(x.shape[:2])} for every x [T, B, D]")
        if state is None:
            state = x.new_zeros(2, x.shape[1], self.dim)
        fast, slow = state
        from_x = linear(x, self.fast_V)
        ends = boundaries.to(torch.bool).unsqueeze(-1)  # [T, B, 1]
        outputs = []
        from_slow = linear(slow, self.fast_W)
        for from_x_t, end in zip(from_x, ends, strict=True):
            fast = torch.tanh(linear(fast, self.fast_U) + from_x_t + from_slow)
            outputs.append(fast)
            if end.any():
                new = torch.tanh(linear(slow, self.slow_U) + linear(fast, self.slow_V))
                slow = torch.where(end, new, slow)
                from_slow = linear(slow, self.fast_W)
        y = torch.stack(outputs)
        m = torch.stack([y.new_ones(x.shape[:2]), boundaries.to(y.dtype)], -1)
        return y, torch.stack([fast, slow]), m
