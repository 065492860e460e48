"""The mean of m by class of symbol, and peaks inside words, by hand."""

import numpy as np
import pytest
import small_models

from vcdeploy.analysis import Spent, Trace, parts, peaks, spent, trace, words
from vcdeploy.analysis.spending import by_class
from vcdeploy.errors import VcdeployError
from vcdeploy.vocabulary import Vocabulary


def told(text: str, m: list[float]) -> Trace:
    vocab = Vocabulary(sorted(set(text)))
    return trace(small_models.told(vocab, np.zeros((len(text), len(vocab))), np.array(m)), text)


def test_means_by_class() -> None:
    masks = {"even": np.array([True, False, True, False]), "last": np.array([False, False, False, True])}
    m = np.array([[0.0, 0.5], [1.0, 1.0], [0.75, 0.75]])
    assert by_class(m, masks) == {"even": Spent(symbols=2, m=0.5)}


def test_several_traces_count_together() -> None:
    found = spent([told("ab a", [0.5, 0.25, 0.125, 0.75]), told("a", [1.0])])
    assert found["white space"] == Spent(symbols=1, m=0.125)
    assert found["start of word"] == Spent(symbols=3, m=0.75)
    assert found["end of word"]["m"] == pytest.approx(2 / 3)
    tune = trace(small_models.model(vocab=small_models.MUSIC), "G2 A")
    with pytest.raises(VcdeployError, match="one kind, and these are music and text"):
        spent([told("a", [1.0]), tune])


@pytest.mark.parametrize(
    ("m", "expected"),
    [
        ([0.5, 0.2, 0.3, 0.2, 0.6], (2,)),
        ([0.5, 0.2, 0.24, 0.2, 0.6], ()),  # below the rise
        ([0.5, 0.4, 0.3], ()),
        ([0.1, 0.9], ()),
        ([0.9], ()),
        ([0.1, 0.5, 0.1, 0.5, 0.1], (1, 3)),
    ],
)
def test_peaks_are_above_both_neighbours(m: list[float], expected: tuple[int, ...]) -> None:
    assert peaks(np.array(m)) == expected


def test_words_with_their_peaks() -> None:
    once = [0.5, 0.1, 0.2, 0.5, 0.1, 0.1, 0.1, 0.4, 0.1, 0.1]  # "on-longer "
    found = told("on-longer onto onto", [*once, 0.5, 0.2, 0.5, 0.1, 0.1, 0.5, 0.2, 0.3, 0.1])
    assert [(word.marked(), word.count) for word in words([found])] == [("on", 1), ("long-er", 1), ("on-to", 2)]
    assert words([found])[2].m == pytest.approx([0.5, 0.2, 0.4, 0.1])
    assert parts(found, words([found])) == [7, 12, 17] and parts(found, []) == []
    assert [word.marked("·") for word in words([found], rise=0.25)] == ["on", "long·er", "onto"]
    with pytest.raises(VcdeployError, match="this model reads bits"):
        words([trace(small_models.model(vocab=small_models.BITS), "a")])
