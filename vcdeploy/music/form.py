"""The form of a tune: the symbols that may come next, so that bars, parts and the ending come out right."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import VcdeployError
from vcdeploy.music import notation

BARS_PER_PART = 8
FEWEST_PARTS, MOST_PARTS = 2, 4
NOTHING = Fraction(0)


class Form:
    """Says which symbols may follow, so that a tune keeps to its form.

    The tune has two to four repeated parts of eight bars. Every bar has the length of the meter, except that a part may
    begin with a pickup of up to half a bar, which its last bar is then shorter by; all parts have the same pickup. The
    notes of a tuplet are of equal length, and from the second part on, a part ends on the tonic. Meter and key don't
    change. Without a meter, or with M:none, every symbol may follow.

    An instance follows one sequence: each call takes all ids so far, those of the prime included.
    """

    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = tuple(symbols)
        self._places = {symbol: at for at, symbol in enumerate(symbols)}
        places = range(len(self._symbols))
        # A symbol that is not in one of these is never allowed: a file's vocabulary may hold anything.
        self._length = {at: notation.length(symbols[at]) for at in places if notation.is_sounding(symbols[at])}
        self._tuplets = [at for at in places if notation.is_tuplet(symbols[at])]
        self._of_length = {
            each: np.array([self._length.get(at) == each for at in places]) for each in {*self._length.values()}
        }
        self._letter = np.array([_letter(symbols[at]) if at in self._length else "" for at in places])
        self._altered = np.array([symbols[at][0] in "^_=" for at in places])
        self._fits: dict[tuple[Fraction, bool], bool] = {}
        ends = [each for each in (":|", "::") if each in symbols]
        self._part_ends = ends or [each for each in ("||", "|]", "|") if each in symbols]
        self._seen = 0
        self._begin()

    def _begin(self) -> None:
        """Begin a tune."""
        self._measure: Fraction | None = None
        self._meter = self._tonic = ""
        self._parts = self._bars = 0  # complete parts; complete bars of the current one, its pickup not counted
        self._at = NOTHING  # eighths since the last bar
        self._pickup: Fraction | None = None  # None until the first bar of the tune
        self._in_pickup = False
        self._left, self._scale = 0, Fraction(1)  # notes left in a tuplet, and the factor of their lengths
        self._equal: Fraction | None = None  # length of the notes of a tuplet, once there is one
        self._last = notation.END

    def __call__(self, ids: Sequence[int]) -> NDArray[np.bool_]:
        """The symbols that may follow `ids`, as a mask [vocab]."""
        for id_ in ids[self._seen :]:
            self._follow(id_)
        self._seen = len(ids)
        allowed = self._allowed()
        if not allowed.any():
            raise VcdeployError(
                f"the symbols of this model can't complete a bar of {self._meter[2:]} after {self._last!r}: use --free"
            )
        return allowed

    # What was read so far

    def _follow(self, id_: int) -> None:
        symbol = self._symbols[id_]
        role = notation.role(symbol)
        if role == "tune end":
            self._begin()
        elif role == "meter":
            self._meter, self._measure = symbol, notation.measure(symbol)
        elif role == "key":
            self._tonic = symbol[2:3] if symbol != "K:none" else ""
            self._fits.clear()
        elif id_ in self._tuplets:
            self._scale, self._left = notation.tuplet(symbol, self._meter)
            self._equal = None
        elif id_ in self._length:
            length = self._length[id_]
            self._at += length * (self._scale if self._left else 1)
            self._left, self._equal = max(0, self._left - 1), length
        elif role == "bar":
            self._end_bar(symbol)
        self._last = symbol

    def _end_bar(self, symbol: str) -> None:
        if self._at and self._measure is not None:
            if self._pickup is None:
                self._pickup = self._at if self._at < self._measure else NOTHING
                self._bars = int(not self._pickup)
            elif self._in_pickup:
                self._in_pickup = False
            else:
                self._bars += 1
            if symbol not in ("|", "|:") or self._bars >= BARS_PER_PART:
                self._parts, self._bars = self._parts + 1, 0
                self._in_pickup = bool(self._pickup)
        self._at, self._left = NOTHING, 0

    # What may follow

    def _allowed(self) -> NDArray[np.bool_]:
        if self._measure is None or self._last == notation.END:
            return np.ones(len(self._symbols), bool)
        pickup = self._pickup or NOTHING
        last_bar = self._bars == BARS_PER_PART - 1
        length = pickup if self._in_pickup else self._measure - pickup if last_bar else self._measure
        left = length - self._at
        closing = last_bar and self._parts > 0 and bool(self._tonic)
        if self._left and self._equal is not None:
            return self._sounding([self._equal], closing)
        closing = closing and self._fit(left, closing)  # else the model has no tonic that fits
        if self._left:
            return self._sounding(self._lengths_of_tuplet(self._scale * self._left, left, closing), closing)
        if left <= 0:
            if not last_bar or self._in_pickup:
                return self._among(["|"])
            return self._among([":|"] if self._parts + 1 == MOST_PARTS and ":|" in self._part_ends else self._part_ends)
        between_parts = self._parts > 0 and not self._at and not self._bars and self._in_pickup == bool(pickup)
        if between_parts and self._parts == MOST_PARTS and notation.END in self._symbols:
            return self._among([notation.END])
        allowed = self._notes(left, closing)
        for place in self._tuplets:
            scale, count = notation.tuplet(self._symbols[place], self._meter)
            allowed[place] = bool(self._lengths_of_tuplet(scale * count, left, closing))
        if self._pickup is None and self._is_pickup():
            allowed |= self._among(["|"])
        if not self._parts and notation.role(self._last) in ("meter", "key"):
            allowed |= self._among(["|:"])
        if between_parts and self._parts >= FEWEST_PARTS and self._last != "::":
            allowed |= self._among([notation.END])
        return allowed

    def _is_pickup(self) -> bool:
        """Whether the notes so far can be a pickup: at most half a bar, and the rest of a bar can end a part."""
        assert self._measure is not None
        return (
            0 < self._at <= self._measure / 2
            and self._fit(self._at, False)
            and self._fit(self._measure - self._at, False)
        )

    def _among(self, symbols: Sequence[str]) -> NDArray[np.bool_]:
        found = np.zeros(len(self._symbols), bool)
        found[[self._places[each] for each in symbols if each in self._places]] = True
        return found

    def _sounding(self, lengths: Sequence[Fraction], closing: bool) -> NDArray[np.bool_]:
        """Notes and rests of these lengths; while closing, the tonic keeps its pitch."""
        found = np.zeros(len(self._symbols), bool)
        for each in lengths:
            found |= self._of_length[each]
        return found & ~(self._altered & (self._letter == self._tonic)) if closing else found

    def _tonics(self, length: Fraction) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self._of_length[length] & (self._letter == self._tonic) & ~self._altered
        return found

    def _notes(self, left: Fraction, closing: bool) -> NDArray[np.bool_]:
        """Notes and rests after which the rest of the bar can be filled; while closing, with the tonic at its end."""
        found = self._sounding(
            [each for each in self._of_length if each < left and self._fit(left - each, closing)], closing
        )
        if left in self._of_length:
            found |= self._tonics(left) if closing else self._of_length[left]
        return found

    def _fit(self, left: Fraction, closing: bool) -> bool:
        """Whether notes can fill the rest of a bar (more than nothing); while closing, with the tonic at its end."""
        if (left, closing) not in self._fits:
            whole = left in self._of_length and (not closing or bool(self._tonics(left).any()))
            self._fits[left, closing] = whole or any(
                self._fit(left - each, closing) for each in sorted(self._of_length, reverse=True) if each < left
            )
        return self._fits[left, closing]

    def _lengths_of_tuplet(self, time: Fraction, left: Fraction, closing: bool) -> list[Fraction]:
        """Lengths that the notes of a tuplet that takes `time` times their length may have."""
        fits = (each for each in self._of_length if time * each <= left)
        return [
            each for each in fits if (self._fit(left - time * each, closing) if time * each < left else not closing)
        ]


def _letter(note: str) -> str:
    return notation.pitch(note).strip("^_=,'").upper()
