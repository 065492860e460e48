"""The opening of a generated tune: its meter, its key and the user's prime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import BadValue
from vcdeploy.music import notation

if TYPE_CHECKING:
    from vcdeploy.vocabulary import Vocabulary


def field_symbol(value: str | None, role: str, vocab: Vocabulary) -> str:
    """The symbol of --meter or --key, which the model must know; "" if the option was not given."""
    if value is None or vocab.kind != "music":
        return ""
    known = [symbol for symbol in vocab.symbols if notation.role(symbol) == role]
    try:
        symbol = notation.meter_symbol(value) if role == "meter" else notation.key_symbol(value)
    except notation.UnreadableTune:
        symbol = f"{role[0].upper()}:{value}"
    if symbol in known:
        return symbol
    if not known:
        raise BadValue(f"the model knows no {role}: leave out --{role}")
    near = get_close_matches(symbol, known, n=3, cutoff=0.5)
    listed = ", ".join(each[2:] for each in near or known[:12])
    raise BadValue(
        f"the model knows no {role} {value!r}; " + (f"the closest are {listed}" if near else f"it knows {listed}")
    )


def open_tune(
    vocab: Vocabulary,
    prime: Sequence[int],
    meter: str,
    key: str,
    pick: Callable[[Sequence[int], NDArray[np.intp]], int],
) -> tuple[NDArray[np.int64], int]:
    """The ids to continue a tune from, and the index where the tune begins.

    A tune begins after the end of another one, with its meter and key (symbols of field_symbol, "" for any).
    pick: chooses among candidate ids to follow the ids so far, where meter or key is not given.
    """
    symbols = [vocab.symbols[id_] for id_ in prime]
    begins = len(symbols) - symbols[::-1].index(notation.END) if notation.END in symbols else 0
    before, tune = list(prime[:begins]), list(prime[begins:])
    if not before and notation.END in vocab.symbols:
        before = vocab.lookup([notation.END]).tolist()
    head: list[int] = []
    if tune and notation.role(vocab.symbols[tune[0]]) in ("meter", "key"):
        for option, value in (("--meter", meter), ("--key", key)):
            if value:
                raise BadValue(f"the prime has its own meter and key: leave out {option}, or remove them")
    else:
        for role, wanted in (("meter", meter), ("key", key)):
            known = np.array([notation.role(symbol) == role for symbol in vocab.symbols])
            if wanted:
                head += vocab.lookup([wanted]).tolist()
            elif known.any():
                head.append(pick([*before, *head], np.flatnonzero(known)))
    return np.array([*before, *head, *tune], np.int64), len(before)
