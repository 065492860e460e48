"""Vocabularies: encoding and decoding of text, bits and music, and invalid input."""

import numpy as np
import pytest

from vcdeploy.errors import VcdeployError
from vcdeploy.vocabulary import Vocabulary


def test_text_goes_to_ids_and_back() -> None:
    vocab = Vocabulary("\n abcé€🎵")
    text = "a bé\n€c🎵"
    ids = vocab.encode(text)
    assert ids.dtype == np.int64
    assert ids.tolist() == [2, 1, 3, 5, 0, 6, 4, 7]
    assert vocab.decode(ids) == text
    assert vocab.decode(ids.astype(np.uint8)) == text
    assert vocab.encode("").tolist() == []
    assert vocab.decode([]) == ""


def test_ascii_text_meets_a_vocabulary_beyond_ascii() -> None:
    vocab = Vocabulary("ab\u2027")
    assert vocab.encode("abba").tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("character", ["x", "é", "€", "🎵", "\ud800"])
def test_unknown_character_is_named_with_its_place(character: str) -> None:
    with pytest.raises(VcdeployError) as error:
        Vocabulary("\nab").encode(f"ab\nba{character}a{character}")
    assert f"{character!r} (U+{ord(character):04X}) at line 2, column 3, is not among" in str(error.value)
    assert str(error.value).endswith("nor are 1 after it; remove them")
    with pytest.raises(VcdeployError, match=r"of this vocabulary; remove it$"):
        Vocabulary("\nab").encode(f"a{character}b")


def test_equality_is_of_symbols_kind_and_buffer() -> None:
    assert Vocabulary("ab") == Vocabulary(["a", "b"])
    assert hash(Vocabulary("ab")) == hash(Vocabulary(["a", "b"]))
    assert Vocabulary("ab") != Vocabulary("ba")
    assert Vocabulary("01", "bits") != Vocabulary("01")
    assert Vocabulary("01", "bits", 8) != Vocabulary("01", "bits")
    assert len(Vocabulary("abc")) == 3


def test_more_symbols_than_sixteen_bits_hold() -> None:
    vocab = Vocabulary(map(chr, range(0x10000, 0x1A000)))
    assert vocab.encode(chr(0x19FFF)).tolist() == [0x9FFF]


@pytest.mark.parametrize("buffer", [0, 8, 24])
def test_bits_are_most_significant_first_with_their_buffer(buffer: int) -> None:
    vocab = Vocabulary("01", "bits", buffer)
    ids = vocab.encode("Aé")  # 0x41, 0xC3 0xA9
    rows = ids.reshape(3, 8 + buffer)
    assert ["".join(map(str, row)) for row in rows[:, :8]] == ["01000001", "11000011", "10101001"]
    assert not rows[:, 8:].any()
    assert vocab.decode(ids) == "Aé"


def test_bits_drop_a_partial_byte_and_replace_what_is_not_utf8() -> None:
    vocab = Vocabulary("01", "bits", 8)
    ids = vocab.encode("AB")
    assert vocab.decode(ids[:-8]) == "AB"  # the buffer of the last byte may be missing
    assert vocab.decode(ids[:-9]) == "A"
    assert vocab.decode(ids[:7]) == ""
    assert Vocabulary("01", "bits").decode([1] * 8 + [0, 1, 0, 0, 0, 0, 0, 1]) == "\ufffdA"


def test_music_is_symbols_or_abc() -> None:
    vocab = Vocabulary(["M:6/8", "K:Gmaj", "|:", "|", "G", "A2", "G2", "<end>"], "music")
    assert vocab.encode("M:6/8 K:Gmaj |: G A2 |").tolist() == [0, 1, 2, 4, 5, 3]
    assert vocab.encode("GA2|").tolist() == [4, 5, 3]
    tune = "X:1\nT:One\nM:6/8\nL:1/16\nK:G\n|:G2A4|"
    assert vocab.encode(tune).tolist() == [0, 1, 2, 4, 5, 3]
    assert vocab.encode(tune + "\n\n" + tune).tolist() == [0, 1, 2, 4, 5, 3, 7, 0, 1, 2, 4, 5, 3]
    for ids in ([0, 1, 2, 4, 5, 3, 7], [0, 1, 4, 3, 7, 0, 1, 5], [4, 5, 3], [4, 7], []):
        assert vocab.encode(vocab.decode(ids)).tolist() == ids


def test_music_names_what_it_does_not_know() -> None:
    vocab = Vocabulary(["G", "|", "<end>"], "music")
    with pytest.raises(VcdeployError, match=r"'c', symbol 2 of tune 1, is not among the 3"):
        vocab.encode("G c |")
    with pytest.raises(VcdeployError, match=r"'B2', symbol 3 of tune 2"):
        vocab.encode("G\n\nG|B2")
    with pytest.raises(VcdeployError, match="this ABC cannot be read: '='"):
        vocab.encode("G =20")


@pytest.mark.parametrize("words", ["hello", "the prime minister", "a cabbage in bed", "e\nh"])
def test_words_are_not_read_as_the_notes_among_their_letters(words: str) -> None:
    vocab = Vocabulary([*"ABCDEFGabcdefg", "<end>"], "music")
    with pytest.raises(VcdeployError, match=r"this ABC cannot be read: '[htin]'"):
        vocab.encode(words)


def test_vocabularies_that_make_no_sense() -> None:
    for symbols, kind, buffer, message in [
        ("ab", "speech", 0, "unknown vocabulary kind 'speech'; it is one of text, bits, music"),
        ("", "text", 0, "none of them empty"),
        (["a", ""], "text", 0, "none of them empty"),
        ("aba", "text", 0, "'a' is in the vocabulary twice"),
        ("10", "bits", 0, "bits is"),
        ("01", "bits", 7, "buffer is 7"),
        ("ab", "text", 8, "only bits have one"),
    ]:
        with pytest.raises(VcdeployError, match=message):
            Vocabulary(symbols, kind, buffer)


@pytest.mark.parametrize("ids", [[0, 2], [-1]])
def test_ids_outside_are_refused(ids: list[int]) -> None:
    with pytest.raises(VcdeployError, match=rf"no symbol {ids[-1]}; the ids here are 0 to 1"):
        Vocabulary("ab").decode(ids)
