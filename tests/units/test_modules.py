"""The units as modules: shapes, states, layers, baselines, the language model."""

import copy
from pathlib import Path

import pytest
import safetensors.torch
import torch
from small_models import scheduled, stack
from torch.nn.functional import linear

from vcdeploy.reference import cells
from vcdeploy.spec import UNITS
from vcdeploy.units import CRNN, GRU, LSTM, RNN, VCGRU, VCLSTM, VCRNN, GRUResetFirst, LanguageModel

VARIABLE = [VCRNN, VCGRU, VCLSTM]
ROWS = {"vclstm": 2, "lstm": 2, "crnn": 2}


@pytest.mark.parametrize("unit", VARIABLE)
@pytest.mark.parametrize("layers", [1, 3])
def test_state_carries_a_sequence_over(unit: type[VCGRU], layers: int) -> None:
    torch.manual_seed(0)
    module = stack(unit, 11, layers, sharpness=0.7).double()
    x = torch.randn(6, 2, 11, dtype=torch.float64)
    y, state, m = module(x)
    assert y.shape == (6, 2, 11)
    assert m.shape == (6, 2, layers)
    assert state.shape == (layers * module.spec.state_rows, 2, 11)
    first, between, _ = module(x[:4])
    second, after, _ = module(x[4:], between)
    assert torch.equal(torch.cat([first, second]), y)
    assert torch.equal(after, state)


def test_layers_feed_each_other_and_stack_h_then_c() -> None:
    torch.manual_seed(0)
    module = scheduled(stack(VCLSTM, 5, 2)).double()
    x = torch.randn(3, 2, 5, dtype=torch.float64)
    y, state, m = module(x)
    zeros = torch.zeros(2, 5, dtype=torch.float64)
    hidden, rows, fractions = x, [], []
    for layer in module.layers:
        U, V, u, v, b = layer.parameters()
        hidden, h, layer_m, c = cells.vclstm(hidden, zeros, U, V, u, v, b, zeros, module.sharpness, module.epsilon)
        rows += [h, c]
        fractions.append(layer_m)
    # Up to rounding: sums of ten products in another order, amplified by the slope of the mask, 5/4.
    for one, other in ((y, hidden), (state, torch.stack(rows)), (m, torch.stack(fractions, -1))):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-14)


@pytest.mark.parametrize("unit", [VCRNN, VCGRU, VCLSTM, RNN, GRUResetFirst, GRU, LSTM])
def test_gradcheck_of_every_module(unit: type[VCGRU | GRU]) -> None:
    torch.manual_seed(1)
    module = stack(unit, 4, 2).double()
    x = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    state = torch.randn(2 * module.spec.state_rows, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *given: module(*given), (x, state, *()))
    for name, parameter in module.named_parameters():
        assert torch.autograd.gradcheck(lambda _: module(x.detach())[0], parameter), name


def test_gradcheck_of_crnn() -> None:
    torch.manual_seed(1)
    module = CRNN(4).double()
    x = torch.randn(5, 2, 4, dtype=torch.float64, requires_grad=True)
    boundaries = torch.tensor([[1, 0], [0, 0], [1, 1], [0, 0], [0, 1]])
    assert torch.autograd.gradcheck(lambda given: module(given, None, boundaries)[:2], x)
    for parameter in module.parameters():
        assert torch.autograd.gradcheck(lambda _: module(x.detach(), None, boundaries)[:2], parameter)


def test_crnn_slow_layer_changes_only_at_boundaries() -> None:
    torch.manual_seed(0)
    module = CRNN(6).double()
    x = torch.randn(3, 2, 6, dtype=torch.float64)
    start = torch.randn(2, 2, 6, dtype=torch.float64)
    _, state, m = module(x, start, torch.tensor([[0, 0], [0, 1], [0, 0]]))
    assert torch.equal(state[1, 0], start[1, 0])
    assert not torch.equal(state[1, 1], start[1, 1])
    assert m[:, :, 1].tolist() == [[0, 0], [0, 1], [0, 0]]
    # the equations written out for the sequence with a boundary at its second step
    fast, slow = start[:, 1]
    for t in range(3):
        fast = torch.tanh(module.fast_U @ fast + module.fast_V @ x[t, 1] + module.fast_W @ slow)
        if t == 1:
            slow = torch.tanh(module.slow_U @ slow + module.slow_V @ fast)
    assert torch.allclose(state[0, 1], fast, atol=1e-14, rtol=0)
    assert torch.allclose(state[1, 1], slow, atol=1e-14, rtol=0)


def test_crnn_without_boundaries_says_so() -> None:
    with pytest.raises(ValueError, match="boundaries"):
        CRNN(4)(torch.zeros(2, 1, 4))


def test_gru_reset_first_is_the_reference() -> None:
    torch.manual_seed(0)
    module = GRUResetFirst(5, layers=2)
    x, state = torch.randn(4, 3, 5), torch.randn(2, 3, 5)
    y, after, m = module(x, state)
    below, rows = x, []
    for layer, h in zip(module.layers, state, strict=True):
        V, U = layer.parameters()
        below, row = cells.gru_reset_first(below, h, U, V)
        rows.append(row)
    torch.testing.assert_close(y, below)
    torch.testing.assert_close(after, torch.stack(rows))
    assert m.shape == (4, 3, 2) and (m == 1).all()


@pytest.mark.parametrize("unit", [RNN, GRU, LSTM])
def test_baselines_are_pytorchs_own_units(unit: type[RNN | GRU | LSTM]) -> None:
    torch.manual_seed(0)
    module = unit(5, layers=2)
    own = unit.layer(5, 5, num_layers=2, bias=False)
    for index, layer in enumerate(module.layers):
        for name in ("weight_ih", "weight_hh"):
            getattr(own, f"{name}_l{index}").data = getattr(layer, f"{name}_l0").data
    x = torch.randn(4, 3, 5)
    y, state, m = module(x)
    theirs, their_state = own(x)
    assert torch.allclose(y, theirs, atol=1e-6)
    if unit is LSTM:  # rows: h, c of layer 0, h, c of layer 1
        their_state = torch.stack(their_state, 1).flatten(0, 1)
    assert torch.allclose(state, their_state, atol=1e-6)
    assert (m == 1).all()


@pytest.mark.parametrize("unit", UNITS)
def test_language_model_of_every_unit(unit: str) -> None:
    torch.manual_seed(0)
    layers = 1 if unit == "crnn" else 2
    model = scheduled(LanguageModel(unit, 9, 8, layers=layers, dropout=0.3))
    tokens = torch.randint(0, 9, (5, 3))
    boundaries = tokens == 0
    logits, state, m = model.train()(tokens, None, boundaries)
    assert logits.shape == (5, 3, 9)
    assert state.shape == (layers * ROWS.get(unit, 1), 3, 8)
    assert m.shape == (5, 3, 2)
    logits.sum().backward()
    assert all(each.grad is not None for each in model.parameters())
    once, _, _ = model(tokens, None, boundaries)
    assert not torch.equal(once, logits)  # another dropout mask
    model.eval()
    assert torch.equal(model(tokens, None, boundaries)[0], model(tokens, None, boundaries)[0])


def test_language_model_is_embedding_unit_output() -> None:
    torch.manual_seed(0)
    model = scheduled(LanguageModel("vcgru", 9, 8, sharpness=0.4))
    tokens = torch.randint(0, 9, (5, 3))
    logits, _, _ = model(tokens)
    y, _ = model.unit(model.embedding.weight[tokens])
    assert torch.equal(logits, linear(y, model.output.weight, model.output.bias))


def test_sharpness_of_the_model_is_the_units() -> None:
    model = scheduled(LanguageModel("vcrnn", 9, 64, sharpness=1.0))
    tokens = torch.randint(0, 9, (5, 3))
    sharp, _, _ = model(tokens)
    model.sharpness = 0.1
    assert model.unit.sharpness == 0.1
    assert not torch.equal(model(tokens)[0], sharp)


@pytest.mark.parametrize("initial_m", [0.1, 0.9])
def test_a_new_scheduler_gives_every_step_the_initial_m(initial_m: float) -> None:
    unit = VCGRU(64, num_layers=2, initial_m=initial_m)
    y, _, m = unit(torch.randn(10, 20, 64), return_m=True)
    torch.testing.assert_close(m, torch.full_like(m, initial_m))  # sigmoid and logit in float32
    y.square().mean().backward()
    for each in unit.scheduler_parameters():  # they get gradients from the first step on
        assert each.grad is not None
        assert each.grad.any()


@pytest.mark.parametrize(
    ("shape", "state"),
    [((3, 2, 7), None), ((0, 2, 8), None), ((2, 8), None), ((3, 2, 8), (1, 3, 8)), ((3, 2, 8), (2, 2, 8))],
)
@pytest.mark.parametrize("unit", [VCGRU, GRU])
def test_wrong_shapes_are_named(unit: type[VCGRU | GRU], shape: tuple[int, ...], state: tuple[int, ...] | None) -> None:
    given = None if state is None else torch.zeros(state)
    with pytest.raises(ValueError, match=r"takes (x|a state) of shape \[.*8\]"):
        stack(unit, 8)(torch.zeros(shape), given)


@pytest.mark.parametrize(
    "wrong",
    [{"input_size": 0}, {"num_layers": 0}, {"sharpness": 0.0}, {"epsilon": 0.5}, {"initial_m": 1.0}],
)
def test_wrong_settings_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        VCRNN(**{"input_size": 4, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"dim": 0}, {"layers": 0}])
def test_wrong_sizes_of_a_baseline_are_named(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RNN(**{"dim": 4, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", [VCRNN, VCGRU, VCLSTM, RNN, GRUResetFirst, LSTM])
def test_autocast_computes_in_full_precision(unit: type[VCGRU | GRU]) -> None:
    """Half precision from a layer below is widened, also in the backward pass."""
    torch.manual_seed(0)
    below, module = torch.nn.Linear(8, 8), stack(unit, 8, 2)
    x = torch.randn(5, 3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = below(x)
        y, state, _ = module(narrow)
    assert narrow.dtype is torch.bfloat16 and y.dtype is state.dtype is torch.float32
    gradients = torch.autograd.grad(y.sum(), [below.weight, *module.parameters()])
    expected, _, _ = module(narrow.detach().float())
    assert torch.equal(y, expected)
    for made, wanted in zip(gradients[1:], torch.autograd.grad(expected.sum(), [*module.parameters()]), strict=True):
        assert torch.equal(made, wanted)
    assert gradients[0].any()


def test_unknown_unit_lists_the_known() -> None:
    with pytest.raises(ValueError, match="vcgru"):
        LanguageModel("vcgrou", 5, 4)


def different_outputs(one: VCGRU, other: VCGRU, x: torch.Tensor) -> float:
    return (one(x)[0] - other(x)[0]).abs().max().item()


@pytest.mark.parametrize("unit", VARIABLE)
def test_state_dict_has_sharpness_and_epsilon(unit: type[VCGRU]) -> None:
    """Weights compute something else with another sharpness: loading them takes theirs, and says so."""
    torch.manual_seed(0)
    trained = scheduled(unit(64, num_layers=2, sharpness=0.1, epsilon=2e-3))
    x = torch.randn(5, 3, 64)
    fresh = unit(64, num_layers=2)
    with pytest.warns(UserWarning, match=r"sharpness 1 and epsilon 0.001, but the state_dict has 0.1 and 0.002"):
        fresh.load_state_dict(trained.state_dict())
    assert (fresh.sharpness, fresh.epsilon) == (0.1, 2e-3)
    assert different_outputs(fresh, trained, x) == 0
    fresh.sharpness = 1.0
    assert different_outputs(fresh, trained, x) > 0.01  # what it would compute without


def test_equal_sharpness_loads_without_a_warning() -> None:
    """Warnings are errors in the tests."""
    trained = scheduled(VCGRU(8, sharpness=0.3))
    VCGRU(8, sharpness=0.3).load_state_dict(trained.state_dict())
    trained.sharpness = 0.7  # as training changes it
    VCGRU(8, sharpness=0.7).load_state_dict(trained.state_dict(), assign=True)
    for narrow in (torch.float32, torch.bfloat16):  # a state_dict that was converted has rounded values
        unit = VCGRU(8, sharpness=0.7)
        unit.load_state_dict({name: each.to(narrow) for name, each in trained.state_dict().items()})
        assert (unit.sharpness, unit.epsilon) == (0.7, 1e-3)


def test_state_dict_without_sharpness_loads() -> None:
    """Those of earlier versions; strict loading still finds missing weights."""
    model = scheduled(LanguageModel("vcgru", 9, 8, sharpness=0.4))
    weights = dict(model.named_parameters())
    fresh = LanguageModel("vcgru", 9, 8, sharpness=0.5)
    assert fresh.load_state_dict(weights) == ([], [])
    assert fresh.sharpness == 0.5
    del weights["unit.layers.0.u"]
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"unit.layers.0.u\"\."):
        fresh.load_state_dict(weights)


@pytest.mark.parametrize("wrong", [[0.0, 1e-3], [torch.nan, 1e-3], [torch.inf, 1e-3], [1.0, 0.5], [1.0, -1.0], [1.0]])
def test_invalid_sharpness_in_a_state_dict_is_refused(wrong: list[float]) -> None:
    unit = VCGRU(8)
    with pytest.raises(ValueError, match="sharpness"):
        unit.load_state_dict({**unit.state_dict(), "_extra_state": torch.tensor(wrong)})
    assert (unit.sharpness, unit.epsilon) == (1.0, 1e-3)


def test_sharpness_survives_copies_files_and_conversions(tmp_path: Path) -> None:
    model = scheduled(LanguageModel("vclstm", 9, 8, layers=2, sharpness=0.1))
    assert copy.deepcopy(model).sharpness == 0.1
    assert model.bfloat16().state_dict()["unit._extra_state"].tolist() == [0.1, 1e-3]
    model.float()
    safetensors.torch.save_file(model.state_dict(), tmp_path / "model.safetensors")
    torch.save(model.state_dict(), tmp_path / "model.pt")
    for state in (safetensors.torch.load_file(tmp_path / "model.safetensors"), torch.load(tmp_path / "model.pt")):
        fresh = LanguageModel("vclstm", 9, 8, layers=2)
        with pytest.warns(UserWarning, match="sharpness"):
            fresh.load_state_dict(state)
        assert fresh.sharpness == 0.1
    assert {name for name, _ in model.named_buffers()} == set()  # nothing to broadcast, cast or export


@pytest.mark.parametrize("unit", [RNN, GRUResetFirst, GRU, LSTM])
def test_only_dim_of_a_baseline_is_positional(unit: type[GRU]) -> None:
    """nn.GRU(64, 128) has two sizes; here the second number used to be the layers."""
    name = unit.__name__
    with pytest.raises(TypeError, match=rf"{name}\(64, 128\): only dim may be positional.*{name}\(64, layers=2\)"):
        unit(64, 128)  # type: ignore[arg-type]
    assert len(unit(dim=4, layers=2).layers) == 2


def test_layers_of_a_language_model_are_not_positional() -> None:
    with pytest.raises(TypeError, match="positional"):
        LanguageModel("vcgru", 50, 64, 128)  # type: ignore[call-arg]
