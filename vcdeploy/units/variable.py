"""VCRNN, VCGRU and VCLSTM as modules for any network: stacks of layers, each with its own scheduler."""

import math
import warnings
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from vcdeploy.format.steps import op_attributes
from vcdeploy.kernels import OPS
from vcdeploy.spec import UNITS, Unit


class VariableLayer(nn.Module):
    """The parameters of one layer: U, V [G·D, D], the scheduler's u, v [D] and b [1].

    u and v start at zero, so that m is the same at every step: the distinctions random u and v would make are
    meaningless and would have to be unlearnt first (docs/design.md, section 4).
    """

    def __init__(self, dim: int, gates: int, initial_m: float) -> None:
        super().__init__()
        self.U = nn.Parameter(torch.empty(gates * dim, dim))
        self.V = nn.Parameter(torch.empty(gates * dim, dim))
        self.u = nn.Parameter(torch.zeros(dim))
        self.v = nn.Parameter(torch.zeros(dim))
        self.b = nn.Parameter(torch.logit(torch.tensor([initial_m])))
        bound = dim**-0.5
        for weight in (self.U, self.V):
            nn.init.uniform_(weight, -bound, bound)


def run_op(unit: Unit, inputs: tuple[Any, ...], sharpness: float, epsilon: float) -> tuple[Tensor, ...]:
    """Run the op of a unit over a sequence; inputs as in docs/design.md, section 2, in that order.

    During torch.onnx.export this emits the ONNX op of that name; `vcdeploy.export.attach_functions` adds its body.
    """
    if not torch.onnx.is_in_onnx_export():
        outputs: tuple[Tensor, ...] = OPS[unit.name](*inputs, sharpness, epsilon)
        return outputs
    X, H0, *_ = inputs
    shapes = [X.shape, H0.shape, X.shape[:2], *(each.shape for each in inputs[7:])]  # Y, H, M and, if there is a C0, C
    return tuple(
        torch.onnx.ops.symbolic_multi_out(
            f"vcdeploy::{unit.op}",
            inputs,
            op_attributes(sharpness, epsilon),
            dtypes=[X.dtype] * len(shapes),
            shapes=shapes,
            version=1,
        )
    )


def refuse_positional(unit: str, dim: object, others: tuple[object, ...]) -> None:
    """Refuse positional arguments after dim: VCGRU(64, 128) looks like nn.GRU's sizes, and there is only one size."""
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


def _check_mask(sharpness: float, epsilon: float) -> None:
    if not 0 < sharpness < math.inf or not 0 < epsilon < 0.5:
        raise ValueError(f"sharpness must be above 0 ({sharpness}), epsilon between 0 and 0.5 ({epsilon})")


class VariableUnit(nn.Module):
    """Base class of the three units: layers, states in one tensor, the sharpness of the mask.

    The state_dict has sharpness and epsilon (`_extra_state`, float64 [2]), since weights compute something else with
    other values. Loading one sets both, with a warning if they change. A state_dict without them leaves them as they
    are.

    Args:
        dim: D, the dimensions of inputs and state. The other arguments are keyword-only.
        layers: Number of layers.
        dropout: Between layers, in training only.
        sharpness: Slope of the mask.
        epsilon: Mask values below epsilon become 0, those above 1 - epsilon become 1.
        initial_m: m of an untrained unit.
    """

    spec: ClassVar[Unit]
    has_scheduler: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        *others: NoReturn,
        layers: int = 1,
        dropout: float = 0.0,
        sharpness: float = 1.0,
        epsilon: float = 1e-3,
        initial_m: float = 0.5,
    ) -> None:
        super().__init__()
        refuse_positional(type(self).__name__, dim, others)
        check_size(dim, layers)
        _check_mask(sharpness, epsilon)
        if not 0 < initial_m < 1:
            raise ValueError(f"initial_m must be between 0 and 1, not {initial_m}")
        self.dim, self.sharpness, self.epsilon = dim, sharpness, epsilon
        self.layers = nn.ModuleList(VariableLayer(dim, len(self.spec.gates), initial_m) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Run the unit over a sequence.

        Args:
            x: Inputs [T, B, D].
            state: [S, B, D], as returned by an earlier call; zeros by default. One row per layer; for VCLSTM two, h
                and c.

        Returns:
            Outputs [T, B, D], state [S, B, D] and m [T, B, layers].
        """
        state = initial_state(self, x, state)
        states: list[Tensor] = []
        fractions: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            before = state[index * self.spec.state_rows : (index + 1) * self.spec.state_rows]
            x, after, m = self._run_layer(layer, x if index == 0 else self.dropout(x), before)
            states.extend(after)
            fractions.append(m)
        return x, torch.stack(states), torch.stack(fractions, -1)

    def scheduler_parameters(self) -> list[nn.Parameter]:
        """u, v and b of all layers.

        For stable training give them a lower learning rate and clip their gradient separately (docs/design.md,
        section 4).
        """
        return [each for layer in self.layers for name, each in layer.named_parameters() if name in ("u", "v", "b")]

    def weights_of(self, layer: Any) -> tuple[Any, ...]:
        """The weights of a layer as the reference takes them, with sharpness and epsilon in files' float32."""
        mask = (float(np.float32(each)) for each in (self.sharpness, self.epsilon))
        return layer.U, layer.V, layer.u, layer.v, layer.b, *mask

    def _run_layer(self, layer: nn.Module, x: Tensor, state: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        """Run one layer over the sequence. Returns y, its state rows, m [T, B]."""
        h, *more = state
        inputs = (x, h, layer.U, layer.V, layer.u, layer.v, layer.b, *more)
        y, h, m, *more = run_op(self.spec, inputs, self.sharpness, self.epsilon)
        return y, [h, *more], m

    def get_extra_state(self) -> Tensor:
        """Sharpness and epsilon. A tensor of its own rather than a buffer: `half()` must not round it, and neither
        exported programs nor DistributedDataParallel need it."""
        return torch.tensor([self.sharpness, self.epsilon], dtype=torch.float64, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        if state.shape != (2,):
            raise ValueError(f"the state_dict's sharpness and epsilon must have the shape [2], not {list(state.shape)}")
        if torch.equal(self.get_extra_state().to(state.dtype), state.cpu()):  # also if a narrower type has rounded them
            return
        sharpness, epsilon = state.tolist()
        _check_mask(sharpness, epsilon)
        warnings.warn(
            f"this {type(self).__name__} has sharpness {self.sharpness:g} and epsilon {self.epsilon:g}, but the "
            f"state_dict has {sharpness:g} and {epsilon:g}. Using the state_dict's, which its weights belong to. "
            "To avoid this warning construct the unit with them; to override them set them after loading.",
            stacklevel=2,
        )
        self.sharpness, self.epsilon = sharpness, epsilon

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: list[str], *more: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *more)
        if f"{prefix}_extra_state" in missing:  # an older state_dict, or one converted from a file
            missing.remove(f"{prefix}_extra_state")

    def extra_repr(self) -> str:
        return f"{self.dim}, sharpness={self.sharpness}, epsilon={self.epsilon}"


class VCRNN(VariableUnit):
    """The Elman unit with variable computation."""

    spec = UNITS["vcrnn"]


class VCGRU(VariableUnit):
    """The gated recurrent unit with variable computation."""

    spec = UNITS["vcgru"]


class VCLSTM(VariableUnit):
    """The long short-term memory with variable computation."""

    spec = UNITS["vclstm"]
