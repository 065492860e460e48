"""Sampling from logits, on the PyTorch backend."""

from typing import Any

import numpy as np
import pytest
import torch
from small_models import model as small_model
from small_models import scheduled

from vcdeploy.errors import VcdeployError
from vcdeploy.runtime.sampling import Sampling, Token, choose, without_stop
from vcdeploy.runtime.session import generate
from vcdeploy.runtime.torch import TorchModel
from vcdeploy.spec import UNITS
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

LOGITS = np.log(np.array([0.1, 0.5, 0.05, 0.35]))


def frequencies(temperature: float, top_k: int, top_p: float) -> list[float]:
    grid = (np.arange(2000) + 0.5) / 2000
    drawn = [choose(LOGITS, uniform, Sampling(temperature, top_k, top_p)) for uniform in grid]
    return (np.bincount(drawn, minlength=4) / len(grid)).tolist()


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "wanted"),
    [
        (1.0, 0, 1.0, [0.1, 0.5, 0.05, 0.35]),
        (0.0, 0, 1.0, [0, 1, 0, 0]),
        (1.0, 2, 1.0, [0, 0.5 / 0.85, 0, 0.35 / 0.85]),
        (1.0, 0, 0.8, [0, 0.5 / 0.85, 0, 0.35 / 0.85]),
        (1.0, 0, 0.45, [0, 1, 0, 0]),
        (1.0, 1, 1.0, [0, 1, 0, 0]),
        (0.5, 0, 1.0, [0.01 / 0.385, 0.25 / 0.385, 0.0025 / 0.385, 0.1225 / 0.385]),
    ],
)
def test_choose_follows_the_distribution(temperature: float, top_k: int, top_p: float, wanted: list[float]) -> None:
    assert frequencies(temperature, top_k, top_p) == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize(
    ("options", "recent", "wanted"),
    [
        ({"min_p": 0.5}, [], [0, 0.5 / 0.85, 0, 0.35 / 0.85]),
        ({"min_p": 0.71}, [], [0, 1, 0, 0]),
        ({"min_p": 0.15, "top_k": 2}, [], [0, 0.5 / 0.85, 0, 0.35 / 0.85]),
        # The logits are negative and the penalty doubles them: it squares the probability.
        ({"repetition_penalty": 2.0}, [1, 1], [0.1 / 0.75, 0.25 / 0.75, 0.05 / 0.75, 0.35 / 0.75]),
        (
            {"repetition_penalty": 2.0, "repetition_window": 1},
            [2, 1],
            [0.1 / 0.75, 0.25 / 0.75, 0.05 / 0.75, 0.35 / 0.75],
        ),
        ({"repetition_penalty": 2.0, "min_p": 0.5}, [1], [0, 0.25 / 0.6, 0, 0.35 / 0.6]),
    ],
)
def test_more_options_follow_their_definition(options: dict[str, Any], recent: list[int], wanted: list[float]) -> None:
    sampling = Sampling(1.0, **{"top_p": 1.0, **options})
    drawn = [choose(LOGITS, (n + 0.5) / 2000, sampling, recent) for n in range(2000)]
    assert (np.bincount(drawn, minlength=4) / 2000).tolist() == pytest.approx(wanted, abs=1e-3)


def test_a_positive_logit_is_divided_by_the_penalty() -> None:
    sampling = Sampling(temperature=0, repetition_penalty=2.0)
    assert choose(np.array([3.0, 1.6]), 0.5, sampling, [0]) == 1
    assert choose(np.array([3.0, 1.4]), 0.5, sampling, [0]) == 0
    assert choose(np.array([-1.0, -1.9]), 0.5, sampling, [0]) == 1


def test_a_stop_sequence_is_held_back_until_it_is_certain() -> None:
    def shown(pieces: list[list[int]], *stop: tuple[int, ...]) -> list[list[int]]:
        tokens = ([Token(id_, 0.0, 0.0) for id_ in piece] for piece in pieces)
        return [[token.id for token in piece] for piece in without_stop(tokens, Sampling(stop=stop))]

    assert shown([[1, 2], [3], [4]], (3, 4)) == [[1, 2]]
    assert shown([[1, 2], [3], [5]], (3, 4)) == [[1, 2], [3, 5]]
    assert shown([[1, 3], [3], [4]], (3, 4)) == [[1], [3]]
    assert shown([[1, 3]], (3, 4)) == [[1], [3]]  # the end comes first
    assert shown([[1, 2, 3]], (3,), (2, 3)) == [[1]]  # the longest of those that end here
    assert shown([[3, 4]], (3, 4)) == []


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("vocab", [Vocabulary("\n abcde"), Vocabulary("01", "bits", 8)], ids=lambda vocab: vocab.kind)
def test_generate_is_the_same_step_by_step_and_at_once(unit: str, vocab: Vocabulary) -> None:
    """At temperature 0 every symbol is the most likely one in a single run over the whole sequence."""
    torch.manual_seed(0)
    model = TorchModel(scheduled(LanguageModel(unit, len(vocab), 12)).double(), vocab)
    prime = np.array([1, 0, 1, 1, 0])
    made = list(generate(model, prime, 30, Sampling(temperature=0)))
    ids = [token.id for token in made]
    whole = np.array([*prime, *ids])
    logits, state, m = model.run(whole[:, None])
    assert logits[len(prime) - 1 : -1, 0].argmax(-1).tolist() == ids
    assert state.shape[1:] == (1, 12)
    assert m.shape[:2] == (35, 1)


def test_the_seed_decides() -> None:
    torch.manual_seed(0)
    model = TorchModel(scheduled(LanguageModel("vcgru", 7, 12)), Vocabulary("\n abcde"))
    prime = np.array([1])
    one, same, other = (list(generate(model, prime, 40, Sampling(seed=seed))) for seed in (3, 3, 4))
    assert one == same
    assert one != other


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1.0}, {"temperature": "1"}, {"temperature": float("nan")}, {"top_k": -1}, {"top_k": 10**30},
     {"top_k": 1.5}, {"top_p": 0.0}, {"top_p": 1.5}, {"top_p": None}, {"seed": "x"}, {"seed": -1}],
)  # fmt: skip
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    model = small_model()
    with pytest.raises(VcdeployError, match=next(iter(wrong))):
        model.generate(np.array([1]), 2, **wrong)


def test_a_prime_and_a_length_are_checked() -> None:
    model = small_model()
    with pytest.raises(VcdeployError, match="a prime of at least one symbol"):
        model.generate(np.array([], np.int64), 2)
    with pytest.raises(VcdeployError, match="length must be 0 or more, not -1"):
        model.generate(np.array([1]), -1)
    with pytest.raises(VcdeployError, match="warmth"):
        model.generate(np.array([1]), 2, warmth=0.5)
