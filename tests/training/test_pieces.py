"""The pieces of training for loops of one's own."""

import pytest
import torch
from small_models import scheduled
from torch import nn

from vcdeploy.reference.cells import active
from vcdeploy.training.pieces import Budget, Sharpness, clip_gradients, parameter_groups
from vcdeploy.units import VCGRU, VCLSTM


def network() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"one": VCGRU(5, 16), "other": scheduled(VCLSTM(16, num_layers=2)), "out": nn.Linear(16, 3)})


def test_schedulers_have_a_group_and_a_rate_of_their_own() -> None:
    made = network()
    others, schedulers = parameter_groups(made, lr=0.01, scheduler_rate=0.1)
    assert (others["lr"], schedulers["lr"]) == (0.01, pytest.approx(0.001))
    assert len(schedulers["params"]) == 3 * 3
    both = [id(each) for group in (others, schedulers) for each in group["params"]]
    assert sorted(both) == sorted(id(each) for each in made.parameters())
    assert len(parameter_groups(nn.Linear(2, 2), lr=0.01)) == 1


def test_each_group_is_clipped_on_its_own() -> None:
    groups = parameter_groups(network(), lr=0.01)
    for group, size in zip(groups, (1e-3, 1e3), strict=True):
        for each in group["params"]:
            each.grad = torch.full_like(each, size)
    clip_gradients(groups, 1.0)
    small = groups[0]["params"][0].grad
    assert torch.equal(small, torch.full_like(small, 1e-3))  # not scaled with the schedulers'
    norm = torch.cat([each.grad.flatten() for each in groups[1]["params"]]).norm()
    assert norm.item() == pytest.approx(1.0, rel=1e-4)


def test_sharpness_grows_evenly_in_every_unit() -> None:
    made = network()
    sharpness, seen = Sharpness(made, steps=100, start=0.2, end=0.8), []
    for _ in range(100):
        seen.append(made["one"].sharpness)
        assert made["other"].sharpness == seen[-1]
        sharpness.step()
    assert seen[0] == 0.2 and seen[45] == pytest.approx(0.5) and set(seen[90:]) == {0.8}


def test_the_budget_steers_the_cost() -> None:
    """Loss pulls m up, the penalty down; the controller finds the weight that balances them at the budget."""
    torch.manual_seed(0)
    unit = VCGRU(64, initial_m=0.9)
    budget, x = Budget(unit, 0.4), torch.randn(4, 8, 64)
    optimizer = torch.optim.SGD([unit.get_parameter("layers.0.b")], lr=1.0)
    for _ in range(600):
        m = unit(x, return_m=True)[2]
        (budget(m) - 0.3 * m.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    m = unit(x, return_m=True)[2]
    cost = active(m, 64, 1.0, 1e-3).double().square().mean().sqrt().item() / 64
    assert budget.cost(m) == pytest.approx(cost)
    assert cost == pytest.approx(0.4, abs=0.03)
    with pytest.raises(ValueError, match="fraction of the dense unit's cost"):
        Budget(unit, 40)
