"""int8 in PyTorch: the reference's steps over activations that are rounded to levels (docs/design.md, section 2)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vcdeploy.export.precision import activation_levels
from vcdeploy.units import LanguageModel, cells

STEPS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "vcrnn": cells.vcrnn_step,
    "vcgru": cells.vcgru_step,
    "vclstm": cells.vclstm_step,
}


class Rounded(TorchFunctionMode):
    """While it is entered, `linear` multiplies whole levels. Enter it for one step, or for the output layer.

    x [B, D], V: the step's input and the matrix that reads it, whose levels are a share of the largest in x; those of
    anything else are a share of the largest there was so far, and at least of 1.
    push: is added before rounding, in levels.
    """

    def __init__(self, dim: int, x: Tensor | None = None, V: Tensor | None = None, push: float = 0.0) -> None:
        super().__init__()
        self.levels, self.x, self.V, self.pushed = activation_levels(dim), x, V, push
        self.reach: Tensor | float = 1.0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.linear:
            value, weight, *rest = args
            args = (self._round(value, self._reach(value, weight)), weight, *rest)
        return func(*args, **(kwargs or {}))

    def _reach(self, value: Tensor, weight: Tensor) -> Tensor:
        """The magnitude that takes all levels, [..., 1]."""
        if self.x is not None and weight is self.V:
            return self.x.abs().amax(-1, keepdim=True).clamp(min=2.0**-64)
        # r ⊙ hbar comes after hbar, and takes its levels: it is nowhere larger.
        largest = value.abs().amax(-1, keepdim=True)
        self.reach = torch.maximum(largest, torch.as_tensor(self.reach, dtype=value.dtype, device=value.device))
        return self.reach

    def _round(self, value: Tensor, reach: Tensor) -> Tensor:
        levels = value * (self.levels / reach)
        if self.pushed:
            levels = torch.where(value == 0, levels, levels + self.pushed)
        return torch.round(levels) * (reach / self.levels)


def run(model: LanguageModel, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """What a variable unit's model does in int8: tokens [T, B], state [S, B, D] -> logits, state, m."""
    unit: Any = model.unit
    step, rows, D = STEPS[model.unit_name], unit.state_rows, unit.dim
    x = model.embedding(tokens)
    if state is None:
        state = x.new_zeros(rows * len(unit.layers), tokens.shape[1], D)
    states: list[Tensor] = []
    shares: list[Tensor] = []
    for index, layer in enumerate(unit.layers):
        after = list(state[index * rows : (index + 1) * rows])
        made, m = [], []
        for x_t in x:
            with Rounded(D, x_t, layer.V):
                *after, share = step(
                    x_t, *after, layer.U, layer.V, layer.u, layer.v, layer.b, unit.sharpness, unit.epsilon
                )
            made.append(after[0])
            m.append(share)
        x = torch.stack(made)
        states += after
        shares.append(torch.stack(m))
    with Rounded(D):
        logits = model.output(x)
    return logits, torch.stack(states), torch.stack(shares, -1)
