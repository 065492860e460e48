"""The ops on transposed, sliced, expanded and empty inputs: opcheck, torch.compile, torch.export and AOTInductor."""

from pathlib import Path

import pytest
import torch
from cases import REFERENCE, mask_of, small
from layouts import DTYPES, LAYOUTS, Several, exported, inputs_of, with_gradients

from vcdeploy.kernels import OPS, native
from vcdeploy.spec import TRAINED_UNITS, UNITS

# PyTorch's compilers use PyTorch's own deprecated functions.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]


@pytest.mark.parametrize("layout", [*LAYOUTS, "empty"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_opcheck(unit: str, dtype: torch.dtype, layout: str) -> None:
    inputs = [each.detach().requires_grad_() for each in inputs_of(unit, dtype, layout)]
    torch.library.opcheck(OPS[unit].default, (*inputs, *mask_of(unit)))


@pytest.mark.parametrize("path", ["kernels", "pytorch"])
@pytest.mark.parametrize("layout", ["transposed", "empty"])
@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_opcheck_of_the_inner_ops(unit: str, layout: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "pytorch":
        monkeypatch.setattr(native, "FAULT", "switched off")
    inputs = inputs_of(unit, torch.float64, layout)
    names = (f"{UNITS[unit].function}_{each}" for each in ("forward", "backward"))
    forward, backward = (getattr(torch.ops.vcdeploy, name).default for name in names)
    torch.library.opcheck(forward, (*inputs, *mask_of(unit), False))
    # Kept gates are written only where they are active: the rest is unspecified, and cannot be compared. The unit's op,
    # which keeps them, compares everything else.
    all_but_values = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(forward, (*inputs, *mask_of(unit), True), test_utils=all_but_values)
    *outputs, gates = forward(*inputs, *mask_of(unit), True)
    made = dict(zip(UNITS[unit].outputs, outputs, strict=True))
    saved = [made[name] for name in UNITS[unit].saved_outputs]
    d = [LAYOUTS.get(layout, torch.clone)(torch.randn_like(each)) for each in outputs]
    torch.library.opcheck(backward, (*d, *inputs, *saved, gates, *mask_of(unit)))


@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_outputs_are_contiguous_on_the_path_of_pytorch(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "FAULT", "switched off")
    inputs = [each.detach().requires_grad_() for each in inputs_of(unit, torch.float64, "transposed")]
    torch.library.opcheck(OPS[unit].default, (*inputs, *mask_of(unit)))
    outputs = OPS[unit](*inputs, *mask_of(unit))
    assert all(each.is_contiguous() for each in outputs)


# What is compiled here; tests/attack/layouts.py compiles every unit with every type and layout.
COMPILED = [
    ("vcrnn", torch.float32, "expanded"),
    ("vcgru", torch.float32, "transposed"),
    ("vcgru", torch.float64, "sliced"),
    ("vclstm", torch.float64, "transposed"),
    ("lstm", torch.float32, "sliced"),
]


def test_export_and_aotinductor(tmp_path: Path) -> None:
    network, cases = Several([unit for unit, *_ in COMPILED]), [inputs_of(*each) for each in COMPILED]
    for outputs in exported(network, cases, tmp_path):
        assert all(map(torch.equal, outputs, network(cases)))


def test_compile() -> None:
    """With its default backend, forward and backward."""
    network, cases = Several([unit for unit, *_ in COMPILED]), [inputs_of(*each) for each in COMPILED]
    compiled = torch.compile(network, fullgraph=True)
    assert all(map(torch.equal, with_gradients(compiled, cases), with_gradients(network, cases)))
    torch._dynamo.reset()


@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_other_shapes_are_refused_eagerly_and_while_tracing(unit: str) -> None:
    """Some of them the reference would broadcast, into outputs of a shape that the compilers do not expect."""
    inputs = dict(zip(UNITS[unit].inputs, small(unit).inputs(), strict=True))
    for name, right in inputs.items():
        tensor = right[:0] if name == "X" else right[0] if name == "b" else right[1:]
        given = [tensor if each == name else old for each, old in inputs.items()]
        for kind in (given, [each.to("meta") for each in given]):
            with pytest.raises(RuntimeError, match=f"{unit} takes {name} of shape"):
                OPS[unit](*kind, *mask_of(unit))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("unit", TRAINED_UNITS)
def test_values_are_the_references(unit: str, layout: str) -> None:
    inputs = inputs_of(unit, torch.float64, layout)
    for one, other in zip(OPS[unit](*inputs, *mask_of(unit)), REFERENCE[unit](*inputs, *mask_of(unit)), strict=True):
        # Sums of 2D = 14 products in another order over T = 3 steps, amplified by the slope of the mask, D/4.
        assert (one - other).abs().max() <= torch.finfo(torch.float64).eps * 3 * 14 * (1 + 7 / 4)
