"""What users of nn.RNN, nn.GRU and nn.LSTM take for granted, tried on them and on VCRNN, VCGRU and VCLSTM.

python tests/conveniences.py > docs/results/drop-in.md      writes the table; tests/units/test_drop_in.py checks it

Each convenience is one function, called with a class of PyTorch and with ours. With a mask of ones and equal weights
VCRNN is nn.RNN and VCLSTM is nn.LSTM, so the values must also be equal. VCGRU is nn.GRU except that the reset gate
multiplies the state before U_h does: with U_h = 0 the values must be equal.
"""

import contextlib
import copy
import io
import pickle
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.jit._trace import TracerWarning
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from vcdeploy.kernels import gradients, native
from vcdeploy.reference import cells
from vcdeploy.units import VCGRU, VCLSTM, VCRNN

T, B, IN, D = 5, 3, 4, 6
PAIRS: dict[Any, Any] = {VCRNN: nn.RNN, VCGRU: nn.GRU, VCLSTM: nn.LSTM}
# Rounding of float64: sums of up to 12 products in another order, over 5 steps of up to 3 layers.
CLOSE = 1e-13


@dataclass(frozen=True)
class Convenience:
    """settings: of the constructor, next to IN and D. call: takes the module and returns what it observes.

    values: whether equal weights must give equal values; types and shapes must always be equal.
    """

    name: str
    call: Callable[[Any], Any]
    settings: dict[str, Any] = field(default_factory=dict)
    values: bool = True


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def x(*shape: int) -> Tensor:
    return normal(*(shape or (T, B)), IN)


def state(unit: Any, *batch: int) -> Any:
    """A random state hx: h, or (h, c)."""
    rows = [
        normal(unit.num_layers * (2 if unit.bidirectional else 1), *batch, D, seed=9 + n) for n in range(1 + lstm(unit))
    ]
    return tuple(rows) if lstm(unit) else rows[0]


def lstm(unit: Any) -> bool:
    return isinstance(unit, nn.LSTM | VCLSTM)


def packed(*, enforce_sorted: bool) -> PackedSequence:
    lengths = [5, 4, 4, 1] if enforce_sorted else [4, 1, 5, 4]
    return pack_sequence([normal(n, IN, seed=k) for k, n in enumerate(lengths)], enforce_sorted=enforce_sorted)


def padded(unit: Any) -> Any:
    batch = pack_padded_sequence(
        x(B, T) if unit.batch_first else x(), [2, 5, 3], unit.batch_first, enforce_sorted=False
    )
    y, h = unit(batch)
    return pad_packed_sequence(y, batch_first=unit.batch_first), h


def training(unit: Any) -> Any:
    torch.manual_seed(3)
    return unit.train()(x())


def of_loss(unit: Any) -> Any:
    given, hx = x().requires_grad_(), state(unit, B)
    rows = [each.requires_grad_() for each in (hx if lstm(unit) else [hx])]
    y, h = unit(given, hx)
    loss = (y * normal(*y.shape, seed=4)).sum() + (h[0] if lstm(unit) else h).sum()
    return torch.autograd.grad(loss, [given, *rows])


def carried(unit: Any) -> Any:
    first, h = unit(x()[:2])
    second, h = unit(x()[2:], h)
    return torch.cat([first, second]), h


def half_from_linear(dtype: torch.dtype) -> Callable[[Any], Any]:
    def call(unit: Any) -> Any:
        below = nn.Linear(IN, IN)
        with torch.autocast("cpu", dtype):
            return unit.float()(below(x().float()))

    return call


def converted(dtype: torch.dtype) -> Callable[[Any], Any]:
    return lambda unit: unit.to(dtype)(x().to(dtype), state(unit.double(), B) if dtype is torch.float64 else None)


def traced(unit: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*deprecated")
        warnings.filterwarnings("ignore", category=TracerWarning, module=r"torch\.nn\.modules\.rnn")
        program = torch.jit.trace(unit, (x(),), check_trace=False)
        written = io.BytesIO()
        torch.jit.save(program, written)
        written.seek(0)
        return torch.jit.load(written)(x(T + 2, B + 1))


def exported(unit: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The tensor attributes self._flat_weights")  # of nn.GRU
        return torch.export.export(unit.eval(), (x(),)).module()(x())


def saved(unit: Any) -> Any:
    other = copy.deepcopy(unit)
    other.reset_parameters()
    other.load_state_dict(unit.state_dict())
    again = pickle.loads(pickle.dumps(other))
    return again(x())


def reset(unit: Any) -> Any:
    before = unit(x())[0]
    unit.reset_parameters()
    after = unit(x())[0]
    return bool(torch.equal(before, after)), after


def meta(unit: Any) -> Any:
    y, h = unit.to("meta")(x().to("meta"))
    return y, h, y.device.type


def no_grad(unit: Any) -> Any:
    with torch.no_grad():
        y, h = unit(x())
    return y, h, y.requires_grad


def attributes(unit: Any) -> Any:
    return unit.input_size, unit.hidden_size, unit.num_layers, unit.batch_first, unit.dropout, unit.bidirectional


CONVENIENCES = [
    Convenience("`y, h = unit(x)`; an LSTM's h is a tuple (h, c)", lambda unit: unit(x())),
    Convenience("`unit(input=x, hx=h)`", lambda unit: unit(input=x(), hx=state(unit, B))),
    Convenience("state carried to the next call", carried),
    Convenience("`num_layers=3`", lambda unit: unit(x(), state(unit, B)), {"num_layers": 3}),
    Convenience("`bidirectional=True`", lambda unit: unit(x(), state(unit, B)), {"bidirectional": True}),
    Convenience(
        "`bidirectional=True`, two layers",
        lambda unit: unit(x(), state(unit, B)),
        {"num_layers": 2, "bidirectional": True},
    ),
    Convenience("`batch_first=True`", lambda unit: unit(x(B, T), state(unit, B)), {"batch_first": True}),
    Convenience("`bias=True`", lambda unit: unit(x(), state(unit, B)), {"bias": True, "num_layers": 2}),
    Convenience("one sequence without a batch", lambda unit: unit(x(T), state(unit))),
    Convenience("the same with `batch_first=True`", lambda unit: unit(x(T)), {"batch_first": True}),
    Convenience("empty batch", lambda unit: unit(x(T, 0)), {"num_layers": 2}),
    Convenience("input that is not contiguous", lambda unit: unit(x(B, T).transpose(0, 1), state(unit, B))),
    Convenience("`PackedSequence`", lambda unit: unit(packed(enforce_sorted=True)), {"num_layers": 2}),
    Convenience(
        "`PackedSequence`, unsorted, with a state",
        lambda unit: unit(packed(enforce_sorted=False), state(unit, 4)),
        {"num_layers": 2},
    ),
    Convenience(
        "`PackedSequence`, unsorted, bidirectional",
        lambda unit: unit(packed(enforce_sorted=False), state(unit, 4)),
        {"num_layers": 2, "bidirectional": True},
    ),
    Convenience("packed, run and padded again", padded, {"batch_first": True}),
    Convenience("dropout between layers, in training", training, {"num_layers": 3, "dropout": 0.5}),
    Convenience("no dropout in `eval()`", lambda unit: unit.eval()(x()), {"num_layers": 2, "dropout": 0.5}),
    Convenience("gradients of input and state", of_loss, {"num_layers": 2}),
    Convenience("`torch.no_grad()`", no_grad),
    Convenience("`state_dict`, `copy.deepcopy`, `pickle`", saved, {"num_layers": 2, "bias": True}),
    Convenience("`torch.jit.trace`, saved and loaded", traced, {"num_layers": 2, "bidirectional": True}),
    Convenience("`torch.export`", exported, {"num_layers": 2, "bidirectional": True}),
    Convenience("`unit.to(torch.float64)`", converted(torch.float64)),
    Convenience("`unit.to(torch.float16)` on a CPU", converted(torch.float16), values=False),
    Convenience("`unit.to(torch.bfloat16)` on a CPU", converted(torch.bfloat16), values=False),
    Convenience("autocast: float16 from a Linear", half_from_linear(torch.float16), values=False),
    Convenience("autocast: bfloat16 from a Linear", half_from_linear(torch.bfloat16), values=False),
    Convenience("the device `meta`", meta, {"num_layers": 2, "bidirectional": True}, values=False),
    Convenience("`reset_parameters()`", reset, {"bias": True}, values=False),
    Convenience("`flatten_parameters()`", lambda unit: unit.flatten_parameters()),
    Convenience("attributes `input_size`, `hidden_size`, …", attributes, {"num_layers": 2, "dropout": 0.25}),
]

# Calls that both refuse: settings, then what is called with the module.
REFUSED: dict[str, tuple[dict[str, Any], Callable[[Any], Any]]] = {
    "input of another size": ({}, lambda unit: unit(normal(T, B, IN + 1))),
    "input of four dimensions": ({}, lambda unit: unit(normal(T, B, 1, IN))),
    "no steps": ({}, lambda unit: unit(x(0, B))),
    "input of another dtype": ({}, lambda unit: unit(x().float())),
    "a state of another dtype": ({}, lambda unit: unit(x(), cast(state(unit, B), torch.float32))),
    "a state of another batch": ({}, lambda unit: unit(x(), state(unit, B + 1))),
    "a state with a batch for a sequence without": ({}, lambda unit: unit(x(T), state(unit, 1))),
    "a state without a batch for a batch": ({}, lambda unit: unit(x(), state(unit))),
    "a tuple for a GRU, a tensor for an LSTM": (
        {},
        lambda unit: unit(x(), state(unit, B)[0] if lstm(unit) else (state(unit, B),)),
    ),
    "`hidden_size=0`": ({"hidden_size": 0}, lambda unit: None),
    "`hidden_size=2.5`": ({"hidden_size": 2.5}, lambda unit: None),
    "`num_layers=0`": ({"num_layers": 0}, lambda unit: None),
    "`dropout=1.5`": ({"dropout": 1.5}, lambda unit: None),
    "an unknown argument": ({"hidden": 3}, lambda unit: None),
}


def cast(given: Any, dtype: torch.dtype) -> Any:
    return tuple(each.to(dtype) for each in given) if isinstance(given, tuple) else given.to(dtype)


def make(module: Any, settings: dict[str, Any]) -> Any:
    torch.manual_seed(1)
    return module(**{"input_size": IN, "hidden_size": D, "bias": False, "dtype": torch.float64, **settings})


def twins(module: Any, settings: dict[str, Any]) -> tuple[Any, Any]:
    """Our module, and PyTorch's with the weights that ours computes with where the mask is 1."""
    ours, theirs = make(module, settings), make(PAIRS[module], settings)
    with torch.no_grad():
        for index, layer in enumerate(ours.layers):
            level, backward = divmod(index, ours.directions)
            end, project = f"_l{level}{'_reverse' if backward else ''}", ours.inputs[level]
            sign = torch.ones(len(layer.U), 1, dtype=torch.float64)
            if module is VCGRU:
                layer.U[2 * D :] = 0
                sign[D : 2 * D] = -1  # z is the share of the new state, in PyTorch that of the old one
            V = sign * layer.V
            getattr(theirs, f"weight_hh{end}").copy_(sign * layer.U)
            getattr(theirs, f"weight_ih{end}").copy_(V if project.weight is None else V @ project.weight)
            if project.bias is not None:
                project.bias.copy_(normal(D, seed=level))
                getattr(theirs, f"bias_ih{end}").copy_(V @ project.bias)
                getattr(theirs, f"bias_hh{end}").zero_()
    return ours, theirs


@contextlib.contextmanager
def mask_of_ones() -> Iterator[None]:
    """Every mask is 1, computed by the reference: the kernels have no such mask."""

    def ones(m: Tensor, dim: int, *_: float) -> Tensor:
        return m.new_ones(*m.shape, dim)

    with (
        mock.patch.object(cells, "mask", ones),
        mock.patch.object(gradients, "mask", ones),
        mock.patch.object(native, "FAULT", "switched off"),
    ):
        yield


def outline(observed: Any) -> Any:
    """Types, shapes and dtypes of what a call returned."""
    if isinstance(observed, Tensor):
        return "tensor", tuple(observed.shape), observed.dtype
    if isinstance(observed, tuple | list):
        return type(observed).__name__, [outline(each) for each in observed]
    return observed


def tensors(observed: Any) -> list[Tensor]:
    if isinstance(observed, Tensor):
        return [observed]
    return [found for each in observed for found in tensors(each)] if isinstance(observed, tuple | list) else []


def compare(each: Convenience, ours: Any) -> str:
    """What is the same: "values" or "types, shapes". Raises AssertionError if something is not."""
    with mask_of_ones() if each.values else contextlib.nullcontext():
        one, other = (each.call(unit) for unit in twins(ours, each.settings))
    assert outline(one) == outline(other), f"{each.name}: {outline(one)} instead of {outline(other)}"
    if each.values:
        for a, b in zip(tensors(one), tensors(other), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=CLOSE, msg=lambda said: f"{each.name}: {said}")
    return "values" if each.values and tensors(one) else "types, shapes"


def refuses(name: str, module: Any) -> str:
    """The name of the error of a call in REFUSED. Raises AssertionError if there is none."""
    settings, call = REFUSED[name]
    try:
        call(make(module, settings))
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError) as error:
        return type(error).__name__
    raise AssertionError(f"{module.__name__} accepts {name}")


def table() -> str:
    lines = [
        "# The units and PyTorch's",
        "",
        "`python tests/conveniences.py` tried each row on both sides and wrote this page. The tests do the same.",
        "",
        '- "values": with a mask of ones and equal weights, VCRNN returns the values of nn.RNN, VCGRU those of nn.GRU,',
        "  VCLSTM those of nn.LSTM (float64, up to 1e-13), and so the same types and shapes. For VCGRU the weights U_h",
        "  are 0: its reset gate multiplies the state before U_h does, PyTorch's after.",
        '- "types, shapes": these are the same.',
        "",
        "| convenience | VCRNN | VCGRU | VCLSTM |",
        "|---|---|---|---|",
    ]
    for each in CONVENIENCES:
        lines.append(f"| {each.name} | {' | '.join(compare(each, ours) for ours in PAIRS)} |")
    lines += [
        "",
        "Both sides refuse these with an error:",
        "",
        "| call | nn.GRU, nn.LSTM | VCGRU, VCLSTM |",
        "|---|---|---|",
    ]
    for name in REFUSED:
        both = [
            ", ".join(dict.fromkeys(refuses(name, each) for each in side))
            for side in ([nn.GRU, nn.LSTM], [VCGRU, VCLSTM])
        ]
        lines.append(f"| {name} | {' | '.join(both)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
