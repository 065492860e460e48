"""Learning rate and sharpness as functions of the step."""

from itertools import pairwise

import pytest

from vcdeploy.training.schedule import growth_interval, learning_rate, sharpness


def test_sharpness_is_the_papers_at_the_start_of_epochs() -> None:
    by_epoch = [sharpness(epoch * 70, 70, 0.1, 0.1, 1.0) for epoch in range(12)]
    assert by_epoch == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0]


def test_sharpness_grows_without_jumps() -> None:
    by_step = [sharpness(step, 70, 0.1, 0.1, 1.0) for step in range(631)]
    assert [later - earlier for earlier, later in pairwise(by_step)] == pytest.approx([0.1 / 70] * 630)


def test_sharpness_by_step_and_fixed() -> None:
    assert sharpness(10, 4, 0.5, 0.25, 2.0) == 1.125
    assert sharpness(10**6, 3, 0.5, 0.0, 2.0) == 0.5


@pytest.mark.parametrize(("epochs", "interval"), [(10, 70), (40, 70), (5, 35), (1, 7), (0.01, 1)])
def test_short_runs_reach_full_sharpness_too(epochs: float, interval: int) -> None:
    how = (0.1, 0.1, 1.0)
    assert growth_interval(70, round(70 * epochs), *how) == interval
    if epochs >= 1:
        assert sharpness(round(0.95 * 70 * epochs), interval, *how) == 1.0


def test_a_sharpness_that_does_not_grow_has_an_interval_too() -> None:
    assert growth_interval(70, 700, 0.5, 0.0, 1.0) == 70
    assert growth_interval(70, 700, 0.5, 0.1, 0.5) == 70
    assert growth_interval(70, 700, 0.5, 1e-10, 1e308) == 1  # more growths than steps


@pytest.mark.parametrize("decay", ["cosine", "linear"])
def test_learning_rate_warms_up_and_falls_to_a_tenth(decay: str) -> None:
    rates = [learning_rate(step, 1000, 0.01, 100, decay) for step in range(1001)]
    assert rates[0] == pytest.approx(0.0001)
    assert rates[99] == max(rates) == 0.01
    assert rates[1000] == pytest.approx(0.001)
    assert all(later <= earlier for earlier, later in pairwise(rates[100:]))


def test_no_warmup_no_decay() -> None:
    assert {learning_rate(step, 10, 0.01, 0, "none") for step in range(10)} == {0.01}
