"""Calls that end early: timeout, cancel and Ctrl-C; and the attacks on the native engine, with few tries."""

import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import TEXT, config, network
from small_models import model as torch_model

from vcdeploy import _native
from vcdeploy.errors import Cancelled, TimedOut, VcdeployError
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.native import NativeModel
from vcdeploy.spec import QUANTIZED_PRECISIONS

ATTACKS = Path(__file__).parents[1] / "attack"


class Countdown:
    """An event that is set from the n-th look on."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def is_set(self) -> bool:
        self.looks -= 1
        return self.looks < 0


@pytest.fixture(params=["native", "torch"])
def model(request: pytest.FixtureRequest) -> Model:
    if request.param == "torch":
        return torch_model()
    runner = NativeModel(network("vcgru", 1, TEXT).state_dict(), TEXT, unit="vcgru", sharpness=2.0)
    return Model("native", config("vcgru", 1, TEXT), TEXT, "f32", "a native model", runner)


def test_a_timeout_ends_run_and_generate(model: Model) -> None:
    tokens = np.ones((500_000, 1), np.int64)  # a second or more
    for call in (
        lambda: model.run(tokens, timeout=0.05),
        lambda: list(model.generate([1], 10**9, timeout=0.05)),
        lambda: list(model.stream([1], 10**9, timeout=0.05)),
        lambda: list(model.pieces([1], 10**9, timeout=0.05)),
    ):
        with pytest.raises(TimedOut, match=r"longer than its timeout of 0\.05 s"):
            call()
    wrong: Any
    for wrong in (0, -1, math.nan, "1"):
        with pytest.raises(VcdeployError, match="timeout must be above 0"):
            model.run(tokens, timeout=wrong)
    wrong = "an event"
    with pytest.raises(VcdeployError, match=r"cancel must be a threading\.Event"):
        model.run(tokens, cancel=wrong)
    with pytest.raises(VcdeployError, match="allowed must be a function"):
        model.generate([1], 1, allowed=wrong)


def test_an_event_cancels_run_and_generate(model: Model) -> None:
    tokens = np.ones((500_000, 1), np.int64)
    with pytest.raises(Cancelled, match="cancelled"):
        model.run(tokens, cancel=Countdown(2))
    with pytest.raises(Cancelled):
        list(model.generate([1], 10**9, cancel=Countdown(2)))
    event = threading.Event()
    threading.Timer(0.05, event.set).start()
    with pytest.raises(Cancelled):
        model.run(tokens, cancel=event)
    made = model.generate([1], 10**9, cancel=event)
    with pytest.raises(Cancelled):
        next(made)


def test_limits_that_are_not_reached_change_nothing(model: Model) -> None:
    tokens = np.arange(60).reshape(30, 2) % len(TEXT)
    limits: dict[str, Any] = {"timeout": 1000.0, "cancel": threading.Event()}
    # Batched over other steps, PyTorch may sum in another order: a sum of 2 D + 2 products, and the mask's slope.
    bound = 0 if model.backend == "native" else 2.0**-24 * 26**0.5 * (1 + 2.0 * 12 / 4) * 8
    state = model.run(tokens[:3])[1]
    for got, want in zip(model.run(tokens, state, **limits), model.run(tokens, state), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape and np.abs(got - want).max() <= bound
    settings: dict[str, Any] = {"length": 50, "seed": 3, "temperature": 1.0}
    # A prime of one symbol is one step with or without limits, and so is every step after it.
    assert list(model.stream([1], **settings, **limits)) == list(model.stream([1], **settings))


def test_generate_takes_one_sequence(model: Model) -> None:
    for prime in ([[1, 2], [3, 4]], np.ones((3, 1), np.int64)):
        with pytest.raises(VcdeployError, match=r"one sequence of ids, not an array of shape \["):
            model.generate(prime)


@pytest.mark.parametrize("isa", _native.instruction_sets())
@pytest.mark.parametrize("precision", QUANTIZED_PRECISIONS)
def test_a_state_that_is_not_finite_gives_no_logits_if_quantized(precision: str, isa: str) -> None:
    """By definition (docs/design.md, section 2) the range, and so every product with the state, is NaN."""
    weights = network("vcgru", 1, TEXT).state_dict()
    model = NativeModel(weights, TEXT, unit="vcgru", precision=precision, isa=isa)
    for wrong in (math.nan, math.inf, -math.inf):
        state = np.zeros((1, 1, 12), np.float32)
        state[0, 0, 5] = wrong
        assert np.isnan(model.run(np.array([[1]]), state)[0]).all(), wrong


def test_sums_of_levels_may_wrap_around_on_the_way() -> None:
    """At D = 1032, 128 times the sum of levels that are all at their highest is beyond int32, though no result is."""
    D = 1032
    ones, zeros, eye = np.ones((1, 1, D), np.float32), np.zeros(D, np.float32), np.eye(D, dtype=np.float32)
    always = np.full(1, 50, np.float32)
    settings: dict[str, Any] = {"sharpness": 1.0, "epsilon": 1e-3, "precision": "int8"}
    results = [
        _native.op("vcrnn", ones, ones[0], eye, eye, zeros, zeros, always, isa=isa, **settings)[0]
        for isa in _native.instruction_sets()
    ]
    assert all(np.array_equal(each, results[0]) for each in results)
    assert np.abs(results[0][0, 0, :-8] - np.tanh(2.0)).max() < 3e-6 + 2.0**-20  # of tanh, and of the scale's 17 bits


@pytest.mark.parametrize("attack", [("engine.py", "--count", "2"), ("soak.py", "--count", "28000")])
def test_attacks_fail(attack: tuple[str, ...]) -> None:
    ended = subprocess.run([sys.executable, ATTACKS / attack[0], *attack[1:]], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count(" 0 failures") == len(ended.stdout.splitlines()) > 0
