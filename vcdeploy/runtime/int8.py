"""int8 and w8a8 in PyTorch: the reference's steps in bit-reproducible arithmetic (docs/design.md, section 2)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vcdeploy.format.precision import (
    LEAST_RANGE,
    TANH_DENOMINATOR,
    TANH_END,
    TANH_NUMERATOR,
    activation_levels,
    row_scale,
)
from vcdeploy.reference import cells
from vcdeploy.units import LanguageModel

PRODUCTS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)


def tanh(x: Tensor) -> Tensor:
    """tanh as x P(x²) / Q(x²) in float32, each operation rounded separately (no fused operations); NaN stays NaN."""
    x = x.float().clamp(-TANH_END, TANH_END)
    y = x * x

    def polynomial(coefficients: Iterable[float]) -> Tensor:
        value: Tensor | float = 0.0
        for each in coefficients:
            value = value * y + each
        return torch.as_tensor(value)

    return x * polynomial(TANH_NUMERATOR) / polynomial(TANH_DENOMINATOR)


def sigmoid(x: Tensor) -> Tensor:
    return tanh(x.float() * 0.5) * 0.5 + 0.5


class Matrices:
    """Caches the quantized levels and scales of each weight matrix."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def of(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The integer levels of weight [R, C], in double, and the scale of each row [R]."""
        key = weight.data_ptr(), len(weight)
        if key not in self._made:
            scale = torch.from_numpy(row_scale(weight.detach().cpu().numpy())).to(weight.device)
            self._made[key] = torch.round(weight / scale).double(), scale.squeeze(-1)
        return self._made[key]


class Int8(TorchFunctionMode):
    """A context in which a step of the reference, or the output layer, computes with quantized activations.

    `linear` multiplies integer levels, the scheduler's sums are computed in double, and sigmoid and tanh are the ones
    in this file.

    levels: of an activation. x [B, D], V: the step's input and the matrix it is multiplied by. The levels of x are
    relative to its largest magnitude, those of other activations to the largest magnitude so far, at least 1.
    """

    def __init__(self, levels: int, matrices: Matrices, x: Tensor | None = None, V: Tensor | None = None) -> None:
        super().__init__()
        self.levels, self.matrices, self.x, self.V = levels, matrices, x, V
        self.reach: Tensor | float = 1.0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.linear:
            return self._linear(*args, **(kwargs or {}))
        if func in PRODUCTS:
            return func(*(each.double() for each in args))
        if func is torch.sigmoid:
            return sigmoid(*args)
        if func is torch.tanh:
            return tanh(*args)
        return func(*args, **(kwargs or {}))

    def _linear(self, value: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        reach = self._reach(value, weight)
        levels, scale = self.matrices.of(weight)
        # Sums of integers, exact in any order.
        sums = torch.nn.functional.linear(torch.round(value * (self.levels / reach)).double(), levels)
        product = sums.float() * (scale * (reach / self.levels))
        return product if bias is None else product + bias

    def _reach(self, value: Tensor, weight: Tensor) -> Tensor:
        """The magnitude of the highest level, [..., 1]."""
        if self.x is not None and weight is self.V:
            return self.x.abs().amax(-1, keepdim=True).clamp(min=LEAST_RANGE)
        # r ⊙ hbar comes after hbar and is nowhere larger, so it uses the same levels.
        largest = value.abs().amax(-1, keepdim=True)
        self.reach = torch.maximum(largest, torch.as_tensor(self.reach, dtype=value.dtype, device=value.device))
        return self.reach


def run(
    model: LanguageModel, precision: str, tokens: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a float32 model in int8 or w8a8: tokens [T, B], state [S, B, D] -> logits, state, m. Not a CRNN."""
    unit: Any = model.unit
    step, rows, D = cells.STEPS[model.unit_name], unit.spec.state_rows, unit.dim
    matrices, levels = Matrices(), activation_levels(precision, D)
    x = model.embedding(tokens)
    if state is None:
        state = x.new_zeros(rows * len(unit.layers), tokens.shape[1], D)
    states: list[Tensor] = []
    fractions: list[Tensor] = []
    for index, layer in enumerate(unit.layers):
        after = list(state[index * rows : (index + 1) * rows])
        weights = unit.weights_of(layer)
        made, m = [], []
        for x_t in x:
            with Int8(levels, matrices, x_t, weights[1]):
                outputs = step(x_t, *after, *weights)
            after = [outputs] if isinstance(outputs, Tensor) else list(outputs)
            m.append(after.pop() if unit.has_scheduler else x_t.new_ones(len(x_t)))
            made.append(after[0])
        x = torch.stack(made)
        states += after
        fractions.append(torch.stack(m))
    with Int8(levels, matrices):
        logits = model.output(x)
    return logits, torch.stack(states), torch.stack(fractions, -1)
