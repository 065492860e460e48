"""The colours of m: their order survives grey print and colour blindness, and letters on them can be read."""

import itertools

from vcdeploy import colours


def luminance(colour: str) -> float:
    """WCAG's relative luminance of #rrggbb."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def lightness(colour: str) -> float:
    """L* of CIE 1976, from 0 (black) to 100 (white): steps of as much look as far apart. 2 or 3 are told apart."""
    y = luminance(colour)
    return float(116 * y ** (1 / 3) - 16) if y > (6 / 29) ** 3 else float((29 / 3) ** 3 * y)


def test_lightness_rises_with_m_and_falls_with_change() -> None:
    rising = [lightness(colour.ground_hex) for colour in colours.RAMP]
    assert all(b - a > 5 for a, b in itertools.pairwise(rising))
    falling = [lightness(colour) for colour in colours.CHANGES]
    assert all(a - b > 5 for a, b in itertools.pairwise(falling))


def test_letters_contrast_with_their_background() -> None:
    for colour in colours.RAMP:
        dark, light = sorted((luminance(colour.ground_hex), luminance(colour.letters_hex)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_every_m_has_a_colour() -> None:
    assert colours.of(0.0) == colours.of(-0.1) == colours.RAMP[0]
    assert colours.of(1.0) == colours.of(float(len(colours.RAMP))) == colours.RAMP[-1]
    assert [colours.of(tenth / 10 + 0.05) for tenth in range(10)] == list(colours.RAMP)
