"""Encodes a user's prime as ids, and suggests the nearest known text if the model lacks a symbol."""

from __future__ import annotations

import shlex
import unicodedata
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.vocabulary.symbols import Vocabulary, describe_unknown

TYPED = 160  # longest prime suggested as an option to type, in characters
# Typographic characters with a plain spelling but no Unicode decomposition.
PLAIN = {"‘": "'", "’": "'", "‚": ",", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "–": "-", "—": "-",
         "−": "-", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ß": "ss", "ł": "l", "Ł": "L",
         "\t": " ", "\r": "", "\n": " "}  # fmt: skip


def encode_prime(text: str, vocab: Vocabulary, from_file: bool) -> NDArray[np.int64]:
    """The ids of a prime; a symbol the model doesn't know is an error that suggests the nearest known text."""
    if vocab.kind == "text" and ((ids := vocab.lookup(text)) < 0).any():
        nearest = {each: _nearest_characters(each, vocab) for each in dict.fromkeys(text) if vocab.lookup(each)[0] < 0}
        raise BadValue(
            f"{describe_unknown(text, ids)}, is not among the {len(vocab)} symbols of the model; "
            + _offer("".join(nearest.get(each, each) for each in text), nearest, from_file)
        )
    if vocab.kind == "music":
        symbols = _music_symbols(text, vocab)
        ids = vocab.lookup(symbols)
        if (ids < 0).any():
            nearest = {each: _nearest_symbol(each, vocab) for each, id_ in zip(symbols, ids, strict=True) if id_ < 0}
            suggestion = " ".join(near for each in symbols if (near := nearest.get(each, each)))
            raise BadValue(
                f"{describe_unknown(symbols, ids)}, is not among the {len(vocab)} symbols of the model; "
                + _offer(suggestion, nearest, from_file)
            )
        return ids.astype(np.int64)
    return vocab.encode(text)


def _music_symbols(text: str, vocab: Vocabulary) -> list[str]:
    """Read music as Vocabulary.encode does, but accept a line that has one unknown symbol and is not valid ABC."""
    from vcdeploy.music import notation

    line = text.split()
    strange = sum(symbol not in vocab.symbols for symbol in line)
    several_lines = "\n" in text.removesuffix("\n")
    if not strange and not several_lines:
        return line
    try:
        return notation.symbols_of(text)
    except VcdeployError:
        if several_lines or strange > 1 or len(line) < 2:
            raise
        return line


def _nearest_characters(character: str, vocab: Vocabulary) -> str:
    """The nearest text the model knows: other case, no accent, plain punctuation, or "" if there is none."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", character) if not unicodedata.combining(c))
    plain = PLAIN.get(character, bare)
    for candidate in (character.lower(), character.upper(), bare, plain, plain.lower(), plain.upper()):
        if candidate and (vocab.lookup(candidate) >= 0).all():
            return candidate
    return ""


def _nearest_symbol(symbol: str, vocab: Vocabulary) -> str:
    from vcdeploy.music import notation

    same_role = [each for each in vocab.symbols if notation.role(each) == notation.role(symbol)]
    return next(iter(get_close_matches(symbol, same_role, n=1, cutoff=0.3)), "")


def _offer(suggestion: str, nearest: dict[str, str], from_file: bool) -> str:
    if not suggestion.strip():
        return "the model knows nothing similar: use other symbols"
    if len(suggestion) <= TYPED and not from_file:
        return f"the closest it knows: --prime {shlex.quote(suggestion)}"
    ways = [f"{each!r} as {near!r}" if near else f"{each!r} left out" for each, near in nearest.items()]
    more = f" and {len(ways) - 8} more" if len(ways) > 8 else ""
    return f"it knows the rest, with {', '.join(ways[:8])}{more}"
