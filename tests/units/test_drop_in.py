"""The units in place of nn.RNN, nn.GRU and nn.LSTM; what they have besides: m, cost, the ops by name."""

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import conveniences
import pytest
import torch
from conveniences import CONVENIENCES, REFUSED, B, Convenience, T
from small_models import scheduled
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence

from vcdeploy.kernels import gradients
from vcdeploy.reference import cells
from vcdeploy.units import VCGRU, VCLSTM, VCRNN

PAGE = Path(__file__).parents[2] / "docs/results/drop-in.md"
UNITS = [VCRNN, VCGRU, VCLSTM]


@pytest.fixture
def kernels_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test of the kernels can pass with the PyTorch path."""
    monkeypatch.setattr(gradients, "BACKWARD", {})
    monkeypatch.setattr(cells, "SEQUENCES", {})


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("each", CONVENIENCES, ids=lambda each: str(each.name))
def test_convenience(each: Convenience, unit: Any) -> None:
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {each.name} |"))
    assert row.split(" | ")[1 + UNITS.index(unit)].strip(" |") == conveniences.compare(each, unit)


@pytest.mark.parametrize("name", REFUSED)
def test_both_refuse(name: str) -> None:
    columns = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {name} |")).split(" | ")[1:]
    sides: list[list[Any]] = [[nn.GRU, nn.LSTM], [VCGRU, VCLSTM]]
    for listed, side in zip(columns, sides, strict=True):
        for each in side:
            assert conveniences.refuses(name, each) in listed


def test_the_page_has_no_other_rows() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == len(CONVENIENCES) + len(REFUSED) + 2


@pytest.mark.parametrize("unit", UNITS)
def test_a_comparison_can_fail(unit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = unit._run_op
    monkeypatch.setattr(unit, "_run_op", lambda self, layer, x, rows, backward: forward(self, layer, x, rows, False))
    named = {each.name: each for each in CONVENIENCES}
    with pytest.raises(AssertionError, match="not close"):
        conveniences.compare(named["`bidirectional=True`"], unit)


def sequences() -> list[Tensor]:
    return [conveniences.normal(n, 4, seed=n) for n in (3, 7, 1, 7)]


def trained(unit: Any, **settings: Any) -> Any:
    """A unit whose m differs from step to step."""
    torch.manual_seed(2)
    made = scheduled(unit(4, 24, sharpness=0.8, dtype=torch.float64, **settings))
    with torch.no_grad():
        for layer in made.layers:
            layer.v.mul_(20)
    return made


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_packed_sequence_gets_what_it_gets_alone(unit: Any, bidirectional: bool) -> None:
    module = trained(unit, num_layers=2, bidirectional=bidirectional)
    hx: Any = tuple(conveniences.normal(2 * module.directions, 4, 24, seed=n) for n in range(module.spec.state_rows))
    hx = hx if unit is VCLSTM else hx[0]
    y, h, m = module(pack_sequence(sequences(), enforce_sorted=False), hx, return_m=True)
    assert isinstance(m, PackedSequence)
    rows = h if unit is VCLSTM else (h,)
    for n, (x, its_y, its_m) in enumerate(zip(sequences(), unpack_sequence(y), unpack_sequence(m), strict=True)):
        start = tuple(each[:, n] for each in hx) if unit is VCLSTM else hx[:, n]
        alone, end, fractions = module(x, start, return_m=True)
        assert fractions.std() > 0.05
        torch.testing.assert_close(its_y, alone, rtol=0, atol=1e-12)
        torch.testing.assert_close(its_m, fractions, rtol=0, atol=1e-12)
        for row, its in zip(rows, end if unit is VCLSTM else (end,), strict=True):
            torch.testing.assert_close(row[:, n], its, rtol=0, atol=1e-12)


def test_m_has_the_form_of_the_output() -> None:
    x = conveniences.x()
    module = trained(VCGRU, num_layers=2, bidirectional=True)
    y, _, m = module(x, return_m=True)
    assert m.shape == (T, B, 4)
    assert len(module(x)) == 2
    other = trained(VCGRU, num_layers=2, bidirectional=True, batch_first=True)
    flipped, _, m_flipped = other(x.transpose(0, 1), return_m=True)
    torch.testing.assert_close(flipped.transpose(0, 1), y)
    torch.testing.assert_close(m_flipped.transpose(0, 1), m)
    assert module(x[:, 0], return_m=True)[2].shape == (T, 4)
    # Column 1 is the first layer's backward direction, in the order of time.
    layer, project = module.layers[1], module.inputs[0]
    backward = cells.vcgru(
        project(x).flip(0), x.new_zeros(B, 24), layer.U, layer.V, layer.u, layer.v, layer.b, 0.8, 1e-3
    )[2]
    torch.testing.assert_close(m[..., 1], backward.flip(0))


def test_macs_count_the_projection() -> None:
    module = trained(VCGRU)
    m = module(conveniences.x(), return_m=True)[2]
    a = cells.active(m, 24, 0.8, 1e-3).double()
    assert module.macs(m) == pytest.approx(6 * a.square().mean().item() + 2 * 24 + 4 * 24)
    packed = module(pack_sequence(sequences(), enforce_sorted=False), return_m=True)[2]
    assert module.macs(packed) == pytest.approx(
        6 * cells.active(packed.data, 24, 0.8, 1e-3).double().square().mean().item() + 2 * 24 + 4 * 24
    )
    same = VCLSTM(24, num_layers=2)
    assert same.macs(torch.ones(5, 2, 2)) == 2 * (8 * 24**2 + 2 * 24)
    both = VCRNN(24, num_layers=2, bidirectional=True)  # the second layer reads both directions
    assert both.macs(torch.ones(5, 2, 4)) == 4 * (2 * 24**2 + 2 * 24) + 48 * 24


def test_equal_sizes_have_the_parameters_of_earlier_versions() -> None:
    names = [f"layers.{layer}.{name}" for layer in range(2) for name in ("U", "V", "u", "v", "b")]
    module = VCGRU(8, num_layers=2)
    assert [name for name, _ in module.named_parameters()] == names
    VCGRU(8, 8, 2).load_state_dict({**module.state_dict()})
    torch.manual_seed(0)
    first = next(VCGRU(8).parameters())
    torch.manual_seed(0)
    assert torch.equal(first, torch.empty(24, 8).uniform_(-(8**-0.5), 8**-0.5))


def test_reset_parameters() -> None:
    module = VCLSTM(4, 24, initial_m=0.3, bias=True)
    for each in module.parameters():
        nn.init.constant_(each, 7.0)
    module.reset_parameters()
    layer: Any = module.layers[0]
    project: Any = module.inputs[0]
    assert layer.U.abs().max() <= 24**-0.5 and layer.V.std() > 0.05
    assert not layer.u.any() and not layer.v.any() and not project.bias.any()
    assert torch.sigmoid(layer.b).item() == pytest.approx(0.3)
    x = torch.randn(500, 4)
    assert 0.5 < project(x).var() / x.var() < 1.5  # of 24 random rows


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.usefixtures("kernels_only")
def test_half_precision_runs_the_kernels(unit: Any, dtype: torch.dtype) -> None:
    """Inputs and weights are rounded, then outputs; between them everything is float32."""
    narrow = trained(unit, num_layers=1).to(dtype)
    x = conveniences.x().to(dtype)
    y, _, m = narrow(x, return_m=True)
    assert y.dtype is m.dtype is dtype
    projected = narrow.inputs[0](x)
    wide = unit(24, sharpness=0.8)
    wide.layers.load_state_dict({name: each.float() for name, each in narrow.layers.state_dict().items()})
    wanted, _, wanted_m = wide(projected.float(), return_m=True)
    assert torch.equal(y, wanted.to(dtype)) and torch.equal(m, wanted_m.to(dtype))
    (gradient,) = torch.autograd.grad(y.float().sum() + m.float().sum(), narrow.layers[0].U)
    (exact,) = torch.autograd.grad(wanted.sum() + wanted_m.sum(), wide.layers[0].U)
    assert gradient.dtype is dtype and torch.equal(gradient, exact.to(dtype))


@pytest.mark.parametrize(
    ("settings", "call", "fix"),
    [
        ({"layers": 2}, None, "num_layers"),
        ({"proj_size": 3}, None, "nn.Linear"),
        ({"bias": 2}, None, "order of nn.GRU's"),
        ({"dropout": 0.5, "num_layers": 0}, None, "num_layers"),
        ({}, lambda unit: unit(torch.zeros(5, 2, 7)), "input_size of your data"),
        ({"batch_first": True}, lambda unit: unit(torch.zeros(5, 2, 7)), r"\[B, T, 4\]"),
        ({}, lambda unit: unit(torch.zeros(5, 2, 4).double()), r"\.to\(torch.float32\)"),
        ({}, lambda unit: unit(torch.zeros(5, 2, 4, device="meta")), r"\.to\('cpu'\)"),
        ({}, lambda unit: unit(torch.zeros(5, 2, 4), torch.zeros(1, 2, 6).double()), r"\.to\(torch.float32\)"),
        ({}, lambda unit: unit(torch.zeros(5, 2, 4), torch.zeros(1, 3, 6)), r"h of shape \[1, 2, 6\]"),
    ],
)
def test_errors_name_the_fix(settings: dict[str, Any], call: Any, fix: str) -> None:
    with pytest.raises((TypeError, ValueError), match=fix):
        (call or (lambda unit: None))(VCGRU(4, 6, **settings))


def test_dropout_without_a_second_layer_warns() -> None:
    for module in (nn.GRU, VCGRU):
        with pytest.warns(UserWarning, match="dropout"):
            module(4, 6, dropout=0.5)


@pytest.mark.parametrize("first", ["import vcdeploy; import torch", "import torch; import vcdeploy"])
def test_importing_the_package_registers_the_ops(first: str, tmp_path: Path) -> None:
    """A traced and an exported program load and run after nothing but the import."""
    module, x = VCGRU(4, 6, bidirectional=True).eval(), torch.randn(5, 2, 4)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*deprecated")
        torch.jit.save(torch.jit.trace(module, (x,)), tmp_path / "traced.pt")
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "exported.pt2")
    torch.save(x, tmp_path / "x.pt")
    script = f"""
{first}
x = torch.load("x.pt")
for program in (torch.jit.load("traced.pt"), torch.export.load("exported.pt2").module()):
    torch.save(program(x)[0], "y.pt")
    assert torch.equal(torch.load("y.pt"), program(x)[0])
assert type(torch.__spec__.loader).__module__ != "vcdeploy._lazy_ops"
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=tmp_path, check=True)
    with torch.no_grad():
        assert torch.equal(torch.load(tmp_path / "y.pt"), module(x)[0])


def test_importing_the_package_does_not_import_pytorch() -> None:
    script = (
        "import sys, importlib.util, vcdeploy; assert 'torch' not in sys.modules\n"
        "assert importlib.util.find_spec('torch') and 'torch' not in sys.modules\n"
        "import torch; assert torch.ops.vcdeploy.vcgru"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
