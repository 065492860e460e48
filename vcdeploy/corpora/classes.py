"""Classes of positions in a sequence of ids, such as ends of words, note lengths or the third bit of a byte."""

import unicodedata
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy.music import notation
from vcdeploy.vocabulary import Vocabulary

Mask = NDArray[np.bool_]
COUNTED = 6  # characters of a word with a class of their own; the last class includes all later ones
NOTE_LENGTH = "note length "  # prefix of a class name; the length in eighths follows


def classes(vocab: Vocabulary, ids: NDArray[Any]) -> dict[str, Mask]:
    """Masks of ids [T] by class, in display order; classes may overlap, empty ones are left out.

    Words are runs of anything but white space; a one-character word is both start and end.
    Note lengths count eighths ("note length 1/2" is a sixteenth); a length is listed if at least
    1 % of the notes have it. A repeated note has the written pitch of the previous note in the same
    tune; the first of a repetition is the note before it, unless that is itself a repeated note.
    """
    found = {"text": _text, "bits": _bits, "music": _music}[vocab.kind](vocab, ids)
    return {name: mask for name, mask in found.items() if mask.any()}


def _where(vocab: Vocabulary, ids: NDArray[Any], holds: Callable[[str], bool]) -> Mask:
    """Mask of the positions whose symbol satisfies `holds`, looked up by id."""
    return np.array([holds(symbol) for symbol in vocab.symbols], bool).take(ids)


def _text(vocab: Vocabulary, ids: NDArray[Any]) -> dict[str, Mask]:
    # First letter of the Unicode category: L letters, M marks, N numbers, P punctuation, S symbols.
    def of(categories: str) -> Mask:
        return ~space & _where(vocab, ids, lambda s: unicodedata.category(s[0])[0] in categories)

    space = _where(vocab, ids, str.isspace)
    edge = np.ones(1, bool)
    start = ~space & np.concatenate([edge, space])[:-1]
    end = ~space & np.concatenate([space, edge])[1:]
    at = np.arange(len(ids))
    place = np.where(space, 0, at - np.maximum.accumulate(np.where(start, at, 0)) + 1)  # position in its word, from 1
    return {
        "white space": space,
        "letter": of("LM"),
        "digit": of("N"),
        "punctuation": of("PS"),
        "other": of("CZ"),
        "start of word": start,
        "inside word": ~(space | start | end),
        "end of word": end,
        **{f"character {each} of word": place == each for each in range(2, COUNTED)},
        f"character {COUNTED} and later": place >= COUNTED,
    }


def _bits(vocab: Vocabulary, ids: NDArray[Any]) -> dict[str, Mask]:
    place = np.arange(len(ids)) % vocab.period
    names = ["bit 0 (most significant)", *(f"bit {i}" for i in range(1, 8))]
    return {
        **{name: place == i for i, name in enumerate(names)},
        "characters": place < 8,
        "buffer": place >= 8,
    }


def _music(vocab: Vocabulary, ids: NDArray[Any]) -> dict[str, Mask]:
    def of(role: str) -> Mask:
        return _where(vocab, ids, lambda s: notation.role(s) == role)

    roles = {role: of(role) for role in notation.ROLES}
    notes = {i: s for i, s in enumerate(vocab.symbols) if notation.role(s) == "note"}
    counts = np.bincount(ids, minlength=len(vocab))
    common: Counter[Fraction] = Counter()
    for i, symbol in notes.items():
        common[notation.length(symbol)] += int(counts[i])
    lengths = {
        f"{NOTE_LENGTH}{length}": np.isin(ids, [i for i, s in notes.items() if notation.length(s) == length])
        for length, count in common.most_common()
        if count * 100 >= common.total()
    }
    # Compare consecutive notes, tune ends included: an end has pitch number 0, notes count from 1.
    pitches = sorted({notation.pitch(symbol) for symbol in notes.values()})
    number = np.zeros(len(vocab), np.int64)  # [vocab]
    number[list(notes)] = [pitches.index(notation.pitch(symbol)) + 1 for symbol in notes.values()]
    followed = np.flatnonzero(roles["note"] | roles["tune end"])
    steps = number[ids[followed]]
    repeated = np.zeros(len(ids), bool)
    same = (steps[1:] == steps[:-1]) & (steps[1:] > 0)
    repeated[followed[1:]] = same
    begins = np.zeros(len(ids), bool)
    begins[followed[:-1]] = same
    first = {role: roles.pop(role) for role in ("bar", "rest", "note")}
    return {**first, **lengths, "first of a repetition": begins & ~repeated, "repeated note": repeated, **roles}
