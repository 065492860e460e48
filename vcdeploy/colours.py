"""Colour scales of m and of changes in the state, shared by terminals, pictures and pages.

m goes from navy through teal and green to yellow in ten steps. Each step is lighter than the previous one by enough to
be distinguishable in grey print and with every kind of colour blindness; text on a step has a contrast of at least 4.5
(WCAG AA).
"""

from typing import NamedTuple

_LEVELS = (0, 95, 135, 175, 215, 255)  # channel values of the 6 x 6 x 6 colour cube of terminals
_STEPS = (
    (0, 0, 1), (0, 0, 3), (0, 0, 5), (0, 1, 4), (0, 2, 4),
    (0, 3, 3), (1, 4, 2), (4, 4, 0), (3, 5, 0), (5, 5, 0),
)  # fmt: skip
_LIGHT = 4  # from this step on, the text is black


class Colour(NamedTuple):
    """A background and its text colour, as terminal colours (0 to 255) and as #rrggbb."""

    ground: int
    letters: int
    ground_hex: str
    letters_hex: str


def _colour(place: int, step: tuple[int, int, int]) -> Colour:
    r, g, b = step
    light = place >= _LIGHT
    mixed = "#" + "".join(f"{_LEVELS[part]:02x}" for part in step)
    return Colour(16 + 36 * r + 6 * g + b, 16 if light else 231, mixed, "#000000" if light else "#ffffff")


RAMP = tuple(_colour(place, step) for place, step in enumerate(_STEPS))
# White: unchanged. The darker, the larger the change.
CHANGES = ("#ffffff", "#9fb6d6", "#4a6fa5", "#1d3f75", "#000a33")


def of(m: float) -> Colour:
    """The colour of m, which is between 0 and 1."""
    return RAMP[min(max(int(m * len(RAMP)), 0), len(RAMP) - 1)]


def cell(character: str) -> str:
    """A character that fills its cell: white space as a space, unprintable characters as a dot."""
    if character.isspace():
        return " "
    return character if character.isprintable() else "·"
