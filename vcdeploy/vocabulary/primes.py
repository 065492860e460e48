"""Suggests the nearest text a model knows for a prime that has other symbols."""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Sequence
from difflib import get_close_matches

from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.vocabulary.symbols import Vocabulary, describe_unknown

TYPED = 160  # longest prime suggested as an option to type, in characters
# Typographic characters with a plain spelling but no Unicode decomposition.
PLAIN = {"‘": "'", "’": "'", "‚": ",", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "–": "-", "—": "-",
         "−": "-", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ß": "ss", "ł": "l", "Ł": "L",
         "\t": " ", "\r": "", "\n": " "}  # fmt: skip


def with_suggestion(error: VcdeployError, text: str, vocab: Vocabulary, from_file: bool) -> VcdeployError:
    """The error for a prime that the model lacks symbols of, with the nearest text it knows.

    error: what Vocabulary.encode raised. from_file: whether the prime was read from a file rather than typed.
    """
    if vocab.kind == "bits":
        return error
    of_text = vocab.kind == "text"
    symbols: Sequence[str] = text if of_text else _music_symbols(text, vocab)
    ids = vocab.lookup(symbols)
    unknown = dict.fromkeys(each for each, id_ in zip(symbols, ids.tolist(), strict=True) if id_ < 0)
    nearest = {each: (_nearest_characters if of_text else _nearest_symbol)(each, vocab) for each in unknown}
    known = (near for each in symbols if (near := nearest.get(each, each)))
    return BadValue(
        f"{describe_unknown(symbols, ids)}, is not among the {len(vocab)} symbols of the model; "
        + _offer(("" if of_text else " ").join(known), nearest, from_file)
    )


def _music_symbols(text: str, vocab: Vocabulary) -> list[str]:
    """The symbols of music, as Vocabulary.encode reads it, or of a line that has one unknown symbol and is no ABC."""
    from vcdeploy.music import notation

    try:
        return notation.symbols_of(text)
    except VcdeployError:
        line = text.split()
        unknown = sum(symbol not in vocab.symbols for symbol in line)
        if "\n" in text.removesuffix("\n") or unknown != 1 or len(line) < 2:
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
