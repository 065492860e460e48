"""The penalty in all its settings, and the controller that meets a budget."""

import json
import math

import pytest
import torch

from vcdeploy.training.config import TrainConfig
from vcdeploy.training.objective import Objective, entropy, penalty

M = torch.tensor([[[0.2], [0.5]], [[0.6], [0.9]]])  # [T, B, layers]
TOKENS = torch.tensor([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("norm", "above_only", "wanted"),
    [
        ("l1", False, (0.3 + 0.0 + 0.1 + 0.4) / 4),
        ("l1", True, (0.0 + 0.0 + 0.1 + 0.4) / 4),
        ("l2", False, (0.09 + 0.0 + 0.01 + 0.16) / 4),
        ("l2", True, (0.0 + 0.0 + 0.01 + 0.16) / 4),
    ],
)
def test_penalty(norm: str, above_only: bool, wanted: float) -> None:
    assert penalty(M, 0.5, norm, above_only).item() == pytest.approx(wanted)


def test_learn_weighs_one_target() -> None:
    objective = Objective(TrainConfig(target=0.5, weight=0.3))
    assert objective(torch.zeros(2, 2, 3), M, TOKENS, None).item() == pytest.approx(0.3 * 0.2)


def test_guide_gives_chosen_symbols_their_own_target() -> None:
    config = TrainConfig(setting="guide", guide="x", target=0.5, guide_target=0.9, weight=1.0)
    by_symbol = Objective(config, torch.tensor([False, False, True]))
    assert by_symbol(torch.zeros(2, 2, 3), M, TOKENS, None).item() == pytest.approx((0.3 + 0.0 + 0.1 + 0.0) / 4)
    by_boundary = Objective(config)
    boundaries = torch.tensor([[1, 0], [0, 0]])
    assert by_boundary(torch.zeros(2, 2, 3), M, TOKENS, boundaries).item() == pytest.approx((0.7 + 0.0 + 0.1 + 0.4) / 4)


def test_entropy_of_predictions() -> None:
    logits = torch.tensor([[[0.0, 0.0, 0.0, 0.0], [100.0, 0.0, 0.0, 0.0]]], requires_grad=True)
    level = entropy(logits)
    assert level.tolist() == [[pytest.approx(math.log(4)), pytest.approx(0.0, abs=1e-6)]]
    assert not level.requires_grad


def test_entropy_setting_pulls_uncertain_steps_up_and_certain_ones_down() -> None:
    objective = Objective(TrainConfig(setting="entropy", target=0.4))
    logits = torch.zeros(1, 2, 4)
    logits[0, 1, 0] = 100.0
    targets = objective.targets(logits, TOKENS[:1], None)
    assert isinstance(targets, torch.Tensor)
    assert targets.flatten().tolist() == [pytest.approx(0.8), pytest.approx(0.0, abs=1e-6)]  # mean 0.4
    objective.observe(mean_m=0.5, mean_square=0.5, mean_entropy=math.log(4))
    targets = objective.targets(logits, TOKENS[:1], None)
    assert isinstance(targets, torch.Tensor)
    assert targets.flatten().tolist() == [pytest.approx(0.4), pytest.approx(0.0, abs=1e-6)]


@pytest.mark.parametrize("settings", [{"target": 0.3}, {"budget": 0.3}], ids=["target", "budget"])
def test_steering_meets_its_goal_on_a_moving_plant(settings: dict[str, float]) -> None:
    """A simulation of training: m follows the weight with a delay, and demand grows as the model learns."""
    objective = Objective(TrainConfig(**settings))  # type: ignore[arg-type]
    m, hunger, spent = 0.6, 0.3, []
    for _ in range(3000):
        m += 0.02 * (hunger / (hunger + objective.weight) - m)  # towards the balance of hunger and weight
        hunger *= 1.00012  # growth as observed for a VCRNN on ptb
        objective.observe(m, m**2, 0.0)
        spent.append(m)
    assert spent[-1] == pytest.approx(0.3, rel=0.01)
    assert all(each == pytest.approx(0.3, rel=0.05) for each in spent[1000:])


def test_an_m_that_has_sunk_is_lifted() -> None:
    """A simulated scheduler with a vanished gradient: only the penalty moves m."""
    objective = Objective(TrainConfig(target=0.3))
    m, weights, fractions = 0.1, [], []
    for _ in range(600):
        m -= 0.02 * objective.weight
        objective.observe(m, m**2, 0.0)
        weights.append(objective.weight)
        fractions.append(m)
    first = next(step for step, weight in enumerate(weights) if weight < 0)
    assert first == 200, "m must not be lifted early in training"
    assert weights[first] == pytest.approx(0.3 * (math.log(fractions[first] / 0.3) + 0.02), rel=0.01)
    # The gap closes at 0.02 * 0.3 / m per step, to e^-4 of itself during the lift; 2 % of the goal are slack.
    assert max(fractions) == pytest.approx(0.3, rel=0.05)
    for _ in range(20):  # a high m is pulled down again immediately
        objective.observe(0.6, 0.36, 0.0)
    assert objective.weight > 0.3


def test_a_lift_is_a_push_that_ends() -> None:
    """A model that does not benefit from more state is not lifted again."""
    objective = Objective(TrainConfig(target=0.3))
    weights = []
    for _ in range(2000):
        objective.observe(0.1, 0.01, 0.0)
        weights.append(objective.weight)
    assert [weight < 0 for weight in weights] == [200 <= step < 400 for step in range(2000)]


@pytest.mark.parametrize(
    ("m", "begin", "end"), [(0.1, 50, 180), (0.1, 2000, 2130), (0.29, 2000, 2600)], ids=["start", "later", "a little"]
)
def test_a_dip_lifts_nothing(m: float, begin: int, end: int) -> None:
    """A short dip far below the goal, as around step 100 of most runs, or a longer one slightly below it."""
    objective = Objective(TrainConfig(target=0.3))
    for step in range(3000):
        objective.observe(m if begin < step < end else 0.3, 0.0, 0.0)
        assert objective.weight > 0


def test_a_lift_is_the_same_for_every_m_whatever_the_norm() -> None:
    objective = Objective(TrainConfig(target=0.5, norm="l2"))
    objective.weight = -0.2
    fractions = M.clone().requires_grad_()
    objective(torch.zeros(2, 2, 3), fractions, TOKENS, None).backward()
    assert fractions.grad is not None and fractions.grad.unique().tolist() == [pytest.approx(-0.05)]


def test_steering_allows_for_what_held_out_text_costs_more() -> None:
    objective = Objective(TrainConfig(target=0.3))
    m, hunger = 0.6, 0.3
    for step in range(2000):
        m += 0.02 * (hunger / (hunger + objective.weight) - m)
        objective.observe(m, m**2, 0.0)
        if step % 500 == 499:
            objective.calibrate(1.1 * m, 1.1**2 * m**2)
    assert 1.1 * m == pytest.approx(0.3, rel=0.01)


def test_the_steered_penalty_pulls_every_step_equally() -> None:
    objective = Objective(TrainConfig(target=0.5))
    fractions = M.clone().requires_grad_()
    objective(torch.zeros(2, 2, 3), fractions, TOKENS, None).backward()
    assert fractions.grad is not None
    assert fractions.grad.unique().tolist() == [pytest.approx(objective.weight / 4)]


def test_a_steered_objective_continues_where_it_was() -> None:
    config = TrainConfig(budget=0.3)
    one, other = Objective(config), Objective(config)
    for step in range(50):
        one.observe(0.5, 0.25 + step / 1000, 0.0)
    one.calibrate(0.6, 0.3)
    other.restore(json.loads(json.dumps(one.state())))
    one.observe(0.5, 0.2, 0.0)
    other.observe(0.5, 0.2, 0.0)
    assert one.weight == other.weight
    assert one.state() == other.state()
