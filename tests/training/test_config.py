"""Configurations validate themselves, with messages that name the option."""

import pytest

from vcdeploy.errors import VcdeployError
from vcdeploy.training.config import TrainConfig


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dim": 0}, "--dim must be from 1 to 16384, not 0"),
        ({"target": 1.5}, "--target must be between 0 and 1, not 1.5"),
        ({"budget": 1.0}, "--budget must be between 0 and 1, not 1.0"),
        ({"buffer": 4}, "--buffer must be 0, 8 or 24, not 4"),
        ({"epochs": 0.0}, "--epochs must be above 0"),
        ({"lowercase": 1.5}, "--lowercase must be from 0 to 1, not 1.5"),
        ({"lowercase": 0.5, "kind": "bits"}, "--lowercase must be 0 with --kind bits or music"),
        ({"sharpness_end": 0.01}, "--sharpness-end must be at least --sharpness-start"),
        ({"unit": "crnn", "layers": 2}, "--layers must be 1 with --unit crnn"),
        ({"setting": "guide"}, "--setting guide needs --guide"),
        ({"guide": " "}, "--guide has no effect in --setting learn"),
        ({"budget": 0.5, "weight": 0.1}, "--budget adjusts the weight itself"),
        ({"budget": 0.5, "setting": "entropy"}, "--budget adjusts the weight itself"),
        ({"above_only": True}, "--above-only has no effect without a fixed weight"),
        ({"lr": float("nan")}, "--lr must be a finite number, not nan"),
        ({"epochs": float("inf")}, "--epochs must be a finite number, not inf"),
        ({"sharpness_end": float("inf")}, "--sharpness-end must be a finite number, not inf"),
        ({"epochs": 1e300}, "--epochs must be above 0 and at most 1000000, not 1e\\+300"),
    ],
)
def test_wrong_settings_name_their_option(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(VcdeployError, match=message):
        TrainConfig(**wrong)  # type: ignore[arg-type]


def test_round_trip() -> None:
    config = TrainConfig(corpus="ptb", budget=0.4, epochs=3, sharpness_every=100)
    assert TrainConfig.from_json(config.to_json()) == config


def test_foreign_settings_are_refused() -> None:
    values = TrainConfig().to_json()
    with pytest.raises(VcdeployError, match=r"differ .* in: colour"):
        TrainConfig.from_json({**values, "colour": 1})
    with pytest.raises(VcdeployError, match="dim is 'big'"):
        TrainConfig.from_json({**values, "dim": "big"})
    del values["dim"]
    with pytest.raises(VcdeployError, match=r"differ .* in: dim"):
        TrainConfig.from_json(values)


def test_settings_without_those_added_since_have_their_defaults() -> None:
    values = TrainConfig(dim=8).to_json()
    del values["lowercase"]
    assert TrainConfig.from_json(values) == TrainConfig(dim=8)


def test_a_wide_state_has_a_lower_default_learning_rate() -> None:
    assert [TrainConfig(dim=dim).peak_lr for dim in (64, 256, 1024)] == [0.002, 0.002, 0.001]
    assert TrainConfig(dim=1024, lr=0.004).peak_lr == 0.004
