"""VCRNN, VCGRU and VCLSTM as modules for any network, with the interface of nn.RNN, nn.GRU and nn.LSTM."""

import math
import numbers
import warnings
from typing import Any, ClassVar, Literal, overload

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear
from torch.nn.utils.rnn import PackedSequence

from vcdeploy import cost
from vcdeploy.format.steps import op_attributes
from vcdeploy.kernels import OPS
from vcdeploy.spec import UNITS, Unit


class VariableLayer(nn.Module):
    """The parameters of one layer, in one direction: U, V [G·D, D], the scheduler's u, v [D] and b [1]."""

    def __init__(self, dim: int, gates: int, **kind: Any) -> None:
        super().__init__()
        self.U, self.V = (nn.Parameter(torch.empty(gates * dim, dim, **kind)) for _ in range(2))
        self.u, self.v = (nn.Parameter(torch.empty(dim, **kind)) for _ in range(2))
        self.b = nn.Parameter(torch.empty(1, **kind))

    def reset(self, initial_m: float) -> None:
        """Initialize U and V like nn.GRU's weights.

        u and v start at zero, so that m is the same at every step: the distinctions random u and v would make are
        meaningless and would have to be unlearnt first (docs/design.md, section 4).
        """
        bound = len(self.u) ** -0.5
        nn.init.uniform_(self.U, -bound, bound)
        nn.init.uniform_(self.V, -bound, bound)
        nn.init.zeros_(self.u)
        nn.init.zeros_(self.v)
        nn.init.constant_(self.b, math.log(initial_m / (1 - initial_m)))


class Projection(nn.Module):
    """What brings the input of a layer to D dimensions: a weight [D, size] if the sizes differ, a bias [D] if wanted.

    Both directions of a layer share it.
    """

    def __init__(self, size: int, dim: int, bias: bool, **kind: Any) -> None:
        super().__init__()
        self.size = size
        self.weight = nn.Parameter(torch.empty(dim, size, **kind)) if size != dim else None
        self.bias = nn.Parameter(torch.empty(dim, **kind)) if bias else None

    def reset(self) -> None:
        """Keep the variance of the input; the bias starts at zero."""
        if self.weight is not None:
            bound = (3 / self.size) ** 0.5
            nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.weight is not None:
            return linear(x, self.weight, self.bias)
        return x if self.bias is None else x + self.bias


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


# Arguments that the units do not have, of their own earlier interface and of PyTorch's modules, and what to do instead.
_OTHER_ARGUMENTS = {
    "layers": "it is called num_layers now",
    "proj_size": "put an nn.Linear behind the unit",
    "nonlinearity": "the unit has tanh",
}


def _refuse(unit: str, others: dict[str, Any]) -> None:
    for name in others:
        fix = _OTHER_ARGUMENTS.get(name)
        raise TypeError(f"{unit} has no argument {name!r}" + (f": {fix}" if fix else ""))


def _check_mask(sharpness: float, epsilon: float) -> None:
    if not 0 < sharpness < math.inf or not 0 < epsilon < 0.5:
        raise ValueError(f"sharpness must be above 0 ({sharpness}), epsilon between 0 and 0.5 ({epsilon})")


class VariableUnit(nn.Module):
    """Base class of the three units, which take the place of nn.RNN, nn.GRU and nn.LSTM.

    docs/custom-networks.md compares them point by point. The state_dict has sharpness and epsilon (`_extra_state`,
    float64 [2]), since weights compute something else with other values. Loading one sets both, with a warning if they
    change. A state_dict without them leaves them as they are.

    Args:
        input_size: Size of the inputs. If it is not hidden_size, a matrix [hidden_size, input_size] projects them; with
            `bidirectional`, the outputs of both directions are projected before every further layer.
        hidden_size: D, the dimensions of the state; input_size by default.
        num_layers: Number of layers.
        bias: Add a learned vector to the (projected) inputs of every layer. The gates have no biases.
        batch_first: Inputs and outputs are [B, T, …] instead of [T, B, …]. States are not affected.
        dropout: Between layers, in training only.
        bidirectional: A second unit per layer reads the sequence from its end; outputs are concatenated.
        device, dtype: Of the parameters.
        sharpness: Slope of the mask. The following are keyword-only.
        epsilon: Mask values below epsilon become 0, those above 1 - epsilon become 1.
        initial_m: m of an untrained unit.
    """

    spec: ClassVar[Unit]
    has_scheduler: ClassVar[bool] = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int | None = None,
        num_layers: int = 1,
        bias: bool = False,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        sharpness: float = 1.0,
        epsilon: float = 1e-3,
        initial_m: float = 0.5,
        **others: Any,
    ) -> None:
        super().__init__()
        hidden_size = input_size if hidden_size is None else hidden_size
        _refuse(type(self).__name__, others)
        for name, value in {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}.items():
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be an int, not {value!r}")
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        for name, flag in {"bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}.items():
            if not isinstance(flag, bool):
                raise TypeError(
                    f"{name} must be True or False, not {flag!r}; the arguments have the order of nn.GRU's: "
                    "input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional"
                )
        if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(f"dropout must be a number from 0 to 1, the probability of a zero, not {dropout!r}")
        if dropout > 0 and num_layers == 1:
            warnings.warn("dropout acts between layers, so it does nothing with num_layers=1", stacklevel=2)
        _check_mask(sharpness, epsilon)
        if not 0 < initial_m < 1:
            raise ValueError(f"initial_m must be between 0 and 1, not {initial_m}")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.sharpness, self.epsilon, self.initial_m = sharpness, epsilon, initial_m
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        self.directions = 2 if bidirectional else 1
        # In the order of nn.GRU's states: layer 0 forward, layer 0 backward, layer 1 forward, …
        self.layers = nn.ModuleList(
            VariableLayer(hidden_size, len(self.spec.gates), **kind) for _ in range(num_layers * self.directions)
        )
        sizes = [input_size, *[hidden_size * self.directions] * (num_layers - 1)]
        self.inputs = nn.ModuleList(Projection(size, hidden_size, bias, **kind) for size in sizes)
        self.reset_parameters()

    @property
    def dim(self) -> int:
        """D, the dimensions of the state."""
        return self.hidden_size

    def reset_parameters(self) -> None:
        """Initialize all parameters again."""
        each: Any
        for each in self.layers:
            each.reset(self.initial_m)
        for each in self.inputs:
            each.reset()

    def flatten_parameters(self) -> None:
        """Do nothing: the weights need no particular place in memory. Networks written for nn.GRU call it."""

    @overload
    def forward(self, input: Any, hx: Any = None, *, return_m: Literal[False] = False) -> tuple[Any, Any]: ...

    @overload
    def forward(self, input: Any, hx: Any = None, *, return_m: Literal[True]) -> tuple[Any, Any, Any]: ...

    @overload
    def forward(self, input: Any, hx: Any = None, *, return_m: bool) -> tuple[Any, ...]: ...

    def forward(self, input: Any, hx: Any = None, *, return_m: bool = False) -> tuple[Any, ...]:  # noqa: A002
        """Run the unit over a sequence, with the shapes of nn.GRU.

        Args:
            input: [T, B, input_size]; [B, T, input_size] with batch_first; [T, input_size] without a batch; or a
                PackedSequence, of which each sequence ends where it ends.
            hx: The state to start from, [layers·directions, B, D]; for VCLSTM a tuple (h, c) of two. Zeros by default.
            return_m: Return m as well.

        Returns:
            y, of the form of the input with D·directions dimensions; the state after the last step, of the form of hx;
            with return_m also m, of the form of the input with layers·directions dimensions.
        """
        packed = isinstance(input, PackedSequence)
        x: Tensor
        y: Any
        m: Any
        x, sizes, order, back = input if packed else (input, None, None, None)
        single = not packed and x.dim() == 2
        if not torch.jit.is_tracing():  # type: ignore[attr-defined]  # a trace would take sizes for tensors, and warn
            self._check_input(x, packed)
        batch = int(sizes[0]) if sizes is not None else 1 if single else x.shape[0 if self.batch_first else 1]
        rows = self._rows(hx, x, batch, single)
        if order is not None:
            rows = [each.index_select(1, order) for each in rows]
        if single:
            x = x.unsqueeze(1)
        elif self.batch_first and not packed:
            x = x.transpose(0, 1)
        given = x.dtype  # under autocast, half precision from a layer below; computed in float32
        y, rows, m = self._run(x, rows, None if sizes is None else sizes.tolist())
        y, m, rows = y.to(given), m.to(given), [each.to(given) for each in rows]
        if packed:
            y, m = (PackedSequence(each, sizes, order, back) for each in (y, m))
        elif single:
            y, rows, m = y.squeeze(1), [each.squeeze(1) for each in rows], m.squeeze(1)
        elif self.batch_first:
            y, m = y.transpose(0, 1), m.transpose(0, 1)
        if back is not None:
            rows = [each.index_select(1, back) for each in rows]
        state = rows[0] if self.spec.state_rows == 1 else tuple(rows)
        return (y, state, m) if return_m else (y, state)

    def stacked(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Run the unit with all its state in one tensor [S, B, D], as in files: for VCLSTM, h and c of layer 0, then of
        layer 1, …

        Returns y [T, B, D], state [S, B, D] and m [T, B, layers] for x [T, B, D].
        """
        count = self.spec.state_rows
        y, rows, m = self._run(x, [state[k::count] for k in range(count)], None)
        return y, torch.stack(rows, 1).flatten(0, 1), m

    def macs(self, m: Tensor | PackedSequence) -> float:
        """Multiply-accumulates per step, the mean over all steps of m as `return_m` returned it.

        Counts units, schedulers and projections (docs/design.md, section 1).
        """
        values = (m.data if isinstance(m, PackedSequence) else m).detach().float().cpu().numpy()
        mask = {"dim": self.dim, "sharpness": self.sharpness, "epsilon": self.epsilon}
        squares = cost.active(values.reshape(-1, len(self.layers)), mask) ** 2
        inputs: Any = self.inputs
        projected = [each.size for each in inputs if each.weight is not None]
        return cost.macs(self.spec.name, self.dim, squares.mean(0).tolist(), projected)

    def _check_input(self, x: Tensor, packed: bool) -> None:
        name = type(self).__name__
        dims, shape = ((2,), "[steps, {}]") if packed else ((2, 3), "[B, T, {}]" if self.batch_first else "[T, B, {}]")
        if x.dim() not in dims or x.shape[-1] != self.input_size:
            raise ValueError(
                f"{name} takes input of shape {shape.format(self.input_size)}"
                f"{'' if packed else f', or [T, {self.input_size}] for one sequence'}, not {list(x.shape)}: "
                f"construct it with the input_size of your data"
            )
        if x.shape[1 if self.batch_first and x.dim() == 3 else 0] == 0:
            raise ValueError(f"{name} needs T > 0: the input of shape {list(x.shape)} has no steps")
        weight = self.layers[0].U
        if x.device != weight.device:
            raise ValueError(
                f"the input is on {x.device}, the {name} on {weight.device}: move one with .to({str(weight.device)!r})"
            )
        if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(
                f"the input is {x.dtype}, the {name} {weight.dtype}: convert the input with .to({weight.dtype}), the "
                f"unit with .to({x.dtype}), or use torch.autocast"
            )

    def _rows(self, hx: Any, x: Tensor, batch: int, single: bool) -> list[Tensor]:
        """The state to start from: [layers·directions, B, D] for h, and for c."""
        name, count = type(self).__name__, self.spec.state_rows
        shape = (len(self.layers), batch, self.dim)
        if hx is None:
            return [x.new_zeros(shape)] * count
        if count == 1 and not isinstance(hx, Tensor):
            raise ValueError(f"{name} takes its state hx as one tensor h, not as a {type(hx).__name__}")
        if count == 2 and not (isinstance(hx, tuple | list) and len(hx) == 2):
            raise ValueError(
                f"{name} takes its state as a tuple (h, c), as it returns it, not as a {type(hx).__name__}"
            )
        rows, taken = [hx] if count == 1 else list(hx), (shape[0], shape[2]) if single else shape
        for row, each in zip(self.spec.state, rows, strict=True):
            if each.shape != taken:
                raise ValueError(
                    f"{name} takes {row} of shape {list(taken)} (layers·directions{'' if single else ', B'}, D) with "
                    f"this input, not {list(each.shape)}"
                )
            if each.device != x.device:
                raise ValueError(
                    f"{row} of the state is on {each.device}, the input on {x.device}: use .to({str(x.device)!r})"
                )
            if each.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
                raise ValueError(f"{row} of the state is {each.dtype}, the input {x.dtype}: use .to({x.dtype})")
        return [each.unsqueeze(1) for each in rows] if single else rows

    def _run(self, x: Tensor, rows: list[Tensor], sizes: list[int] | None) -> tuple[Tensor, list[Tensor], Tensor]:
        """Run all layers over x [T, B, …], or over the data [steps, …] of a PackedSequence with these batch sizes.

        rows: [layers·directions, B, D] for h, and for c. Returns y, rows and m.
        """
        states: list[list[Tensor]] = []
        fractions: list[Tensor] = []
        for level, project in enumerate(self.inputs):
            x = project(x if level == 0 else dropout(x, self.dropout, self.training))
            outputs = []
            for direction in range(self.directions):
                index = level * self.directions + direction
                before = [each[index] for each in rows]
                y, after, m = self._run_layer(self.layers[index], x, before, direction == 1, sizes)
                outputs.append(y)
                states.append(after)
                fractions.append(m)
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
        return x, [torch.stack(each) for each in zip(*states, strict=True)], torch.stack(fractions, -1)

    def _run_layer(
        self, layer: Any, x: Tensor, rows: list[Tensor], backward: bool, sizes: list[int] | None
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """Run one layer in one direction. Returns y, its state rows [B, D], m.

        Packed sequences run in pieces of constant batch size, one op each: no step is computed past an end. Forward,
        the states of sequences that have ended stay in `rows`; backward, those of sequences that have not begun.
        """
        if sizes is None:
            y, after, m = self._run_op(layer, x, rows, backward)
            return y, after, m
        runs = [(batch, sizes.count(batch)) for batch in sorted(set(sizes), reverse=True)]
        pieces = [
            each.unflatten(0, (steps, batch))
            for each, (batch, steps) in zip(x.split([b * t for b, t in runs]), runs, strict=True)
        ]
        made = []
        for piece in reversed(pieces) if backward else pieces:
            batch = piece.shape[1]
            y, after, m = self._run_op(layer, piece, [each[:batch] for each in rows], backward)
            rows = [torch.cat([new, each[batch:]]) for new, each in zip(after, rows, strict=True)]
            made.append((y.flatten(0, 1), m.flatten(0, 1)))
        if backward:
            made.reverse()
        ys, ms = zip(*made, strict=True)
        return torch.cat(ys), rows, torch.cat(ms)

    def _run_op(self, layer: Any, x: Tensor, rows: list[Tensor], backward: bool) -> tuple[Tensor, list[Tensor], Tensor]:
        """Run the op of one layer over x [T, B, D], from its end if backward. Returns y, state rows [B, D] and m."""
        h, *more = rows
        inputs = (x.flip(0) if backward else x, h, layer.U, layer.V, layer.u, layer.v, layer.b, *more)
        y, h, m, *more = run_op(self.spec, inputs, self.sharpness, self.epsilon)
        return y.flip(0) if backward else y, [h, *more], m.flip(0) if backward else m

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
        defaults = {"num_layers": 1, "bias": False, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        named = {name: getattr(self, name) for name in defaults if getattr(self, name) != defaults[name]}
        named |= {"sharpness": self.sharpness, "epsilon": self.epsilon}
        return f"{self.input_size}, {self.hidden_size}, " + ", ".join(f"{name}={each}" for name, each in named.items())


class VCRNN(VariableUnit):
    """The Elman unit with variable computation."""

    spec = UNITS["vcrnn"]


class VCGRU(VariableUnit):
    """The gated recurrent unit with variable computation."""

    spec = UNITS["vcgru"]


class VCLSTM(VariableUnit):
    """The long short-term memory with variable computation."""

    spec = UNITS["vclstm"]
