"""The penalty in all its settings, and the steering of a budget."""

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
    objective.observe(compute=0.5, mean_entropy=math.log(4))
    targets = objective.targets(logits, TOKENS[:1], None)
    assert isinstance(targets, torch.Tensor)
    assert targets.flatten().tolist() == [pytest.approx(0.4), pytest.approx(0.0, abs=1e-6)]
