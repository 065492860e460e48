"""Traces: the numbers of model.run, probabilities and entropies by hand, and which dimensions changed."""

import numpy as np
import pytest
import small_models
import torch

from vcdeploy.analysis import Trace, blocks, trace
from vcdeploy.analysis.traces import PIECE, changes_of
from vcdeploy.errors import VcdeployError
from vcdeploy.reference import cells
from vcdeploy.spec import DENSE_UNITS
from vcdeploy.vocabulary import Vocabulary

SENTENCE = "the tin man\nran on."


@pytest.mark.parametrize(("unit", "layers"), [("vcrnn", 1), ("vcgru", 2), ("vclstm", 2)])
def test_a_trace_has_the_numbers_of_run(unit: str, layers: int) -> None:
    model = small_models.model(unit, layers)
    found = trace(model, SENTENCE)
    ids = model.vocab.encode(SENTENCE)
    logits, _, m = model.run(ids[:, None])
    assert (found.ids == ids).all() and (found.m == m[:, 0]).all()
    assert found.m.std() > 0.01
    config = model.config
    a = cells.active(torch.from_numpy(m[:, 0].astype(np.float64)), config["dim"], 2.0, 1e-3)
    assert (found.active == a.numpy()).all()
    p = torch.softmax(torch.from_numpy(logits[:, 0].astype(np.float64)), -1).numpy()
    assert np.allclose(found.probability[1:], p[np.arange(len(ids) - 1), ids[1:]], rtol=1e-12)
    assert np.allclose(found.entropy[1:], -(p * np.log2(p)).sum(-1)[:-1], rtol=1e-12)
    assert np.isnan([found.probability[0], found.entropy[0]]).all()
    assert found.changes is None
    assert found.mean_m == pytest.approx(found.m.mean(-1))


def test_probabilities_and_entropies_match_a_manual_calculation() -> None:
    vocab = Vocabulary("abc")
    with np.errstate(divide="ignore"):
        logits = np.log(np.array([[0.5, 0.25, 0.25], [1, 0, 0], [0.25, 0.75, 0], [1, 1, 1]]))
    found = trace(small_models.told(vocab, logits, np.array([0.5, 0.25, 1, 0])), "abab")
    assert found.probability[1:] == pytest.approx([0.25, 1, 0.75])
    assert found.entropy[1:] == pytest.approx([1.5, 0, 2 - 0.75 * np.log2(3)])
    assert found.bits[1:] == pytest.approx([2, 0, -np.log2(0.75)])
    assert found.active[:, 0].tolist() == [9, 6, 12, 3]  # 12 m + 6.9/2, rounded down, at most 12
    summary = found.summary()
    assert (summary["symbols"], summary["m"]) == (4, 0.4375)
    assert summary["macs"] == 6 * (81 + 36 + 144 + 9) / 4 + 24
    assert summary["bits"] == pytest.approx((2 - np.log2(0.75)) / 3)


def test_what_can_not_come_has_a_probability_of_0() -> None:
    with np.errstate(divide="ignore"):
        logits = np.log(np.array([[1.0, 0.0], [1.0, 0.0]]))
    found = trace(small_models.told(Vocabulary("ab"), logits, np.ones(2)), "ab")
    assert (found.probability[1], found.bits[1], found.entropy[1]) == (0, np.inf, 0)


def test_long_texts_are_read_in_pieces() -> None:
    model = small_models.model()
    text = SENTENCE * (PIECE // len(SENTENCE) + 2)
    found = trace(model, text)
    logits, _, m = model.run(model.vocab.encode(text)[:, None])
    assert len(found) == len(text) > PIECE
    assert np.allclose(found.m, m[:, 0], atol=1e-6)
    assert np.isnan(found.probability).sum() == 1
    p = torch.softmax(torch.from_numpy(logits[PIECE - 1, 0].astype(np.float64)), -1)
    assert found.probability[PIECE] == pytest.approx(float(p[found.ids[PIECE]]), rel=1e-5)


@pytest.mark.parametrize(("unit", "layers"), [("vcrnn", 1), ("vcgru", 2), ("vclstm", 2), ("crnn", 1)])
def test_changes_are_those_of_the_hidden_state(unit: str, layers: int) -> None:
    model = small_models.model(unit, layers)
    found = trace(model, SENTENCE, changes=True)
    assert found.changes is not None
    ids = model.vocab.encode(SENTENCE)[:, None]
    rows = {"vclstm": slice(0, None, 2)}.get(unit, slice(None))  # an LSTM's h, without its c
    states = [model.run(ids[:stop])[1][rows, 0] for stop in range(1, len(ids) + 1)]
    moved = np.abs(np.diff([np.zeros_like(states[0]), *states], axis=0))
    assert np.allclose(found.changes, moved, atol=1e-6)
    assert np.allclose(found.m, trace(model, SENTENCE).m, atol=1e-6)
    for a, changes in zip(found.active.reshape(-1), found.changes.reshape(-1, small_models.D), strict=True):
        assert not changes[a:].any()
    assert (found.active < small_models.D).any()


def test_changes_by_block_are_means() -> None:
    changes = np.arange(24.0).reshape(2, 12)
    assert blocks(changes, 3).tolist() == [[1.5, 5.5, 9.5], [13.5, 17.5, 21.5]]
    assert (blocks(changes, 100) == changes).all()
    assert blocks(changes, 5).shape == (2, 5)


def test_dimensions_that_are_not_there() -> None:
    model = small_models.model()
    found = trace(model, "tin", changes=True)
    assert changes_of(found, (2, 4)).shape == (3, 1, 3)
    for wrong in ((0, 3), (5, 4), (1, 13)):
        with pytest.raises(VcdeployError, match="the model has 1 to 12"):
            changes_of(found, wrong)
    with pytest.raises(VcdeployError, match="changes=True"):
        changes_of(trace(model, "tin"), (1, 2))


@pytest.mark.parametrize("unit", DENSE_UNITS)
def test_a_dense_unit_has_no_schedule(unit: str) -> None:
    with pytest.raises(VcdeployError, match=f"small is a {unit}, .* no schedule to trace"):
        trace(small_models.model(unit), "tin")


def test_texts_that_can_not_be_read() -> None:
    model = small_models.model()
    with pytest.raises(VcdeployError, match=r"'Z' \(U\+005A\) at line 2, column 3, is not among the"):
        trace(model, "tin\nanZ")
    with pytest.raises(VcdeployError, match="no symbol in the text"):
        trace(model, "")
    with pytest.raises(VcdeployError, match="no symbol 99"):
        trace(model, np.array([1, 99]))
    with pytest.raises(VcdeployError, match="'A5', symbol 2 of tune 1"):
        trace(small_models.model(vocab=small_models.MUSIC), "G2 A5")


def groups(found: Trace) -> list[str]:
    return ["".join(found.symbols[each.start : each.stop]) + "/" * each.ends_line for each in found.groups()]


def test_groups_are_words_bytes_and_bars() -> None:
    assert groups(trace(small_models.model(), "the tin\n man")) == ["the ", "tin\n/", " ", "man"]
    tune = trace(small_models.model(vocab=small_models.MUSIC), "M:6/8 |: G2 A | d :| <end> G2")
    assert groups(tune) == ["M:6/8|:", "G2A|", "d:|", "<end>/", "G2"]
    spelt = trace(small_models.model(vocab=small_models.BITS), "é!").groups()
    assert [each.character for each in spelt] == ["", "é", "!"]
    assert [(each.start, each.stop) for each in spelt] == [(0, 16), (16, 32), (32, 48)]
    cut = trace(small_models.model(vocab=small_models.BITS), small_models.BITS.encode("a!")[:20]).groups()
    assert [(each.character, each.stop) for each in cut] == [("a", 16), ("", 20)]
