"""Boundaries and classes of positions, checked on short sequences."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vcdeploy.corpora import Corpus
from vcdeploy.errors import VcdeployError
from vcdeploy.vocabulary import Vocabulary


def corpus(text: str, vocab: Vocabulary) -> Corpus:
    ids = vocab.encode(text).astype(np.uint8)
    return Corpus("short", vocab.kind, vocab, {"train": ids}, {"train": 0})


def marks(mask: NDArray[np.bool_]) -> str:
    return "".join("x" if at else "." for at in mask)


def test_text_classes() -> None:
    text = "\tAn é-3 x\u200b €"
    short = corpus(text, Vocabulary(sorted(set(text))))
    found = {name: marks(mask) for name, mask in short.classes("train").items()}
    assert list(found.items()) == [
        ("white space", "x..x...x..x."),
        ("letter", ".xx.x...x..."),
        ("digit", "......x....."),
        ("punctuation", ".....x.....x"),
        ("other", ".........x.."),
        ("start of word", ".x..x...x..x"),
        ("inside word", ".....x......"),
        ("end of word", "..x...x..x.x"),
        ("character 2 of word", "..x..x...x.."),
        ("character 3 of word", "......x....."),
    ]
    assert marks(short.boundaries("train")) == found["white space"]


def test_places_are_described() -> None:
    found = corpus("a bcdefghi jk", Vocabulary(" abcdefghijk")).classes("train")
    places = {name: marks(mask) for name, mask in found.items() if name.startswith("character")}
    assert list(places.items()) == [
        ("character 2 of word", "...x........x"),
        ("character 3 of word", "....x........"),
        ("character 4 of word", ".....x......."),
        ("character 5 of word", "......x......"),
        ("character 6 and later", ".......xxx..."),
    ]


def test_a_class_that_never_occurs_is_left_out() -> None:
    assert list(corpus("a b", Vocabulary(" ab")).classes("train")) == [
        "white space",
        "letter",
        "start of word",
        "end of word",
    ]


@pytest.mark.parametrize("buffer", [0, 8, 24])
def test_bit_classes(buffer: int) -> None:
    short = corpus("ab", Vocabulary("01", "bits", buffer))
    found = {name: marks(mask) for name, mask in short.classes("train").items()}
    rest = "." * buffer
    assert found["bit 0 (most significant)"] == ("x......." + rest) * 2
    assert found["bit 7"] == (".......x" + rest) * 2
    assert found["characters"] == ("xxxxxxxx" + rest) * 2
    assert found.get("buffer", "") == (("........" + "x" * buffer) * 2 if buffer else "")
    last = "." * (7 + buffer) + "x"
    assert marks(short.boundaries("train")) == last * 2
    assert len(found) == (10 if buffer else 9)


def test_music_classes() -> None:
    text = "M:6/8 K:Gmaj |: G G2 z G | (3 A A/2 A <end> A | A :| [1 B"
    vocab = Vocabulary(sorted(set(text.split())), "music")
    short = corpus(text, vocab)
    found = {name: marks(mask) for name, mask in short.classes("train").items()}
    assert list(found.items()) == [
        ("bar", "..x....x......x.x.."),
        ("rest", ".....x............."),
        ("note", "...xx.x..xxx.x.x..x"),
        ("note length 1", "...x..x..x.x.x.x..x"),
        ("note length 1/2", "..........x........"),
        ("note length 2", "....x.............."),
        ("first of a repetition", "...x.....x...x....."),
        ("repeated note", "....x.x...xx...x..."),
        ("tuplet", "........x.........."),
        ("ending", ".................x."),
        ("key", ".x................."),
        ("meter", "x.................."),
        ("tune end", "............x......"),
    ]
    assert marks(short.boundaries("train")) == found["bar"]


def test_a_split_that_is_not_there() -> None:
    with pytest.raises(VcdeployError, match="no split 'dev'; short has train"):
        corpus("ab", Vocabulary("ab")).classes("dev")


def test_a_share_of_the_lines_is_read_in_lower_case() -> None:
    text = "Prime Minister Ä\n" * 400
    short = corpus(text, Vocabulary(sorted(set(text + "prime"))))  # without ä
    lower = short.lowercased(0.25, seed=3)
    found = short.vocab.decode(lower.splits["train"]).splitlines()
    assert set(found) == {"Prime Minister Ä", "prime minister Ä"}
    assert 60 < found.count("prime minister Ä") < 140
    again = short.lowercased(0.25, seed=3).splits["train"]
    assert again.dtype == np.uint8 and (again == lower.splits["train"]).all()
    assert (short.lowercased(0.25, seed=4).splits["train"] != again).any()
    assert short.vocab.decode(short.splits["train"]) == text


def test_only_text_has_lower_case() -> None:
    tune = Corpus("a tune", "music", Vocabulary(["A", "B"], "music"), {"train": np.zeros(3, np.uint8)}, {"train": 0})
    with pytest.raises(VcdeployError, match="leave out --lowercase"):
        tune.lowercased(0.5, seed=0)
