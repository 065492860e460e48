"""The dense units of the paper's comparisons: Elman RNN, GRU, LSTM, and the Conditional RNN.

They have the interface of the variable units (vcdeploy.units.variable) and report m = 1: every dimension at every step.
Like the variable units they have no biases; the first layer's bias would be redundant with the embedding. With `bias`,
for models made elsewhere, they are PyTorch's own modules.

RNN, LSTM and GRUResetFirst train with the kernels of the variable units. Their weights have the names and shapes of
PyTorch's modules.
"""

from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from vcdeploy.format.dense import joined_bias
from vcdeploy.kernels import OPS
from vcdeploy.reference import cells
from vcdeploy.spec import UNITS, Unit


def refuse_positional(unit: str, dim: object, others: tuple[object, ...]) -> None:
    """Refuse positional arguments after dim: GRU(64, 128) looks like nn.GRU's sizes, and there is only one size."""
    if others:
        call = ", ".join(map(repr, (dim, *others)))
        raise TypeError(
            f"{unit}({call}): only dim may be positional. It is the size of inputs, state and outputs alike; name "
            f"everything else, such as {unit}({dim!r}, layers=2). For inputs of another size add an nn.Linear in front."
        )


def check_size(dim: int, layers: int) -> None:
    if dim < 1 or layers < 1:
        raise ValueError(f"dim and layers must be at least 1, not {dim} and {layers}")


def initial_state(unit: Any, x: Tensor, state: Tensor | None) -> Tensor:
    """The state [S, B, D] a unit starts from: zeros by default. Raises if x or the state has the wrong shape."""
    name = type(unit).__name__
    if x.dim() != 3 or x.shape[0] == 0 or x.shape[2] != unit.dim:
        raise ValueError(f"{name} takes x of shape [T, B, {unit.dim}] with T > 0, not {list(x.shape)}")
    shape = (len(unit.layers) * unit.spec.state_rows, x.shape[1], unit.dim)
    if state is None:
        return x.new_zeros(shape)
    if state.shape != shape:
        raise ValueError(f"{name} takes a state of shape {list(shape)}, not {list(state.shape)}")
    return state


class DenseUnit(nn.Module):
    """A stack of RNN, GRU or LSTM layers. S is `spec.state_rows` per layer: h; for the LSTM h, then c."""

    spec: ClassVar[Unit]
    layer: ClassVar[type[nn.Module]]
    has_scheduler: ClassVar[bool] = False

    def __init__(self, dim: int, *others: NoReturn, layers: int = 1, dropout: float = 0.0, bias: bool = False) -> None:
        super().__init__()
        refuse_positional(type(self).__name__, dim, others)
        check_size(dim, layers)
        if bias and not self.spec.biased:
            raise ValueError(f"{self.spec.name} has no biases")
        self.dim, self.bias = dim, bias
        self.layers = nn.ModuleList(self.layer(dim, dim, bias=bias) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        rows, state = self.spec.state_rows, initial_state(self, x, state)
        states: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            before = state[index * rows : (index + 1) * rows]
            x, *after = self.run_layer(layer, x if index == 0 else self.dropout(x), *before)
            states.extend(after)
        return x, torch.stack(states), x.new_ones(*x.shape[:2], len(self.layers))

    def run_layer(self, layer: Any, x: Tensor, h: Tensor, *c: Tensor) -> tuple[Tensor, ...]:
        """Run one layer over x [T, B, D] from h, and c of an LSTM, [B, D]. Returns y, h and c."""
        exporting = torch.onnx.is_in_onnx_export()
        # Without gradients the modules of PyTorch run: what is compared with PyTorch, and measured as it, is PyTorch.
        own = (
            self.spec.trains and not self.bias and x.device.type == "cpu" and not exporting and torch.is_grad_enabled()
        )
        if own or self.layer is Weights:
            run = cells.SEQUENCES[self.spec.name] if exporting else OPS[self.spec.name]
            made: tuple[Tensor, ...] = run(x, h, layer.weight_hh_l0, layer.weight_ih_l0, *c)
            return made
        before = [each.unsqueeze(0) for each in (h, *c)]
        y, after = layer(x, tuple(before) if c else before[0])
        return y, *(each[0] for each in (after if c else [after]))

    def weights_of(self, layer: Any) -> tuple[Tensor, ...]:
        """The weights of a layer as the reference takes them: U, V and, if there is one, the bias."""
        weights = (layer.weight_hh_l0, layer.weight_ih_l0)
        if not self.bias:
            return weights
        biases = (each.detach().cpu().numpy() for each in (layer.bias_ih_l0, layer.bias_hh_l0))
        return *weights, torch.from_numpy(joined_bias(self.spec.name, *biases)).to(layer.bias_ih_l0.device)


class Weights(nn.Module):
    """The weights of a GRU layer, named and initialized as in nn.GRU; gates stacked as in VCGRU."""

    def __init__(self, inputs: int, dim: int, *, bias: bool) -> None:
        super().__init__()
        assert not bias
        bound = dim**-0.5
        self.weight_ih_l0 = nn.Parameter(torch.empty(3 * dim, inputs).uniform_(-bound, bound))
        self.weight_hh_l0 = nn.Parameter(torch.empty(3 * dim, dim).uniform_(-bound, bound))


class RNN(DenseUnit):
    """The Elman unit."""

    spec, layer = UNITS["rnn"], nn.RNN


class GRUResetFirst(DenseUnit):
    """The gated recurrent unit in the paper's form: VCGRU without its scheduler.

    The reset gate is applied to the state, before the matrix product.
    """

    spec, layer = UNITS["gru-reset-first"], Weights


class GRU(DenseUnit):
    """The gated recurrent unit in PyTorch's form: the reset gate is applied after the matrix product."""

    spec, layer = UNITS["gru"], nn.GRU


class LSTM(DenseUnit):
    """The long short-term memory."""

    spec, layer = UNITS["lstm"], nn.LSTM


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
