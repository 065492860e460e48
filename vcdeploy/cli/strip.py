"""Symbols on the terminal, with the m of each as a colour, or without colours as a digit under it."""

from __future__ import annotations

import click

from vcdeploy import colours


class Stream:
    """Characters, each shown at once."""

    colour: bool | None = None  # by the terminal

    def __init__(self) -> None:
        self._last = ""

    def write(self, text: str, m: float | None = None) -> None:
        if text:
            click.echo(text, nl=False, color=self.colour)  # which flushes
            self._last = text[-1]

    def end(self) -> None:
        """The next thing begins on a line of its own."""
        if self._last != "\n":
            self.write("\n")

    def explain(self) -> None:
        """What colours or digits mean, where there are any."""


class Collected(Stream):
    """Characters kept for a file."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def write(self, text: str, m: float | None = None) -> None:
        self.text += text
        self._last = text[-1:] or self._last


class Coloured(Stream):
    """Characters, each on a ground that says what m was."""

    colour = True  # asked for, also where it is no terminal (FORCE_COLOR)

    def write(self, text: str, m: float | None = None) -> None:
        for each in text:
            if m is None:
                super().write(each)
                continue
            colour = colours.of(m)
            coloured = f"\x1b[38;5;{colour.letters};48;5;{colour.ground}m{visible(each)}\x1b[0m"
            super().write(coloured + ("\n" if each == "\n" else ""))

    def explain(self) -> None:
        """The ramp, from m = 0 to m = 1."""
        super().write("m  0 " + "".join(f"\x1b[48;5;{colour.ground}m  \x1b[0m" for colour in colours.RAMP) + " 1\n")


class Underlined(Stream):
    """Lines of characters, and under each a line of digits: tenths of m, rounded down."""

    def __init__(self) -> None:
        super().__init__()
        self._line = self._digits = ""

    def write(self, text: str, m: float | None = None) -> None:
        from rich.cells import cell_len

        for place, each in enumerate(text):
            if each == "\n" and m is None:
                self.end()
                continue
            shown = visible(each)
            digit = " " if m is None or place else str(min(int(m * 10), 9))
            self._line += shown
            self._digits += (digit + " " * (cell_len(shown) - 1)) if cell_len(shown) else ""
            if each == "\n":
                self.end()

    def end(self) -> None:
        if self._digits.strip():
            click.echo(f"{self._line.rstrip()}\n{self._digits.rstrip()}")
        elif self._line:
            click.echo(self._line)
        self._line = self._digits = ""

    def explain(self) -> None:
        """What the digits are; not in the way of those who read them from a pipe."""
        click.echo("digits: m in tenths, 4 is 0.4 to 0.5", err=True)


def visible(character: str) -> str:
    """A character that takes its place: white space as a space, what can't be printed as a point."""
    if character.isspace():
        return " "
    return character if character.isprintable() else "·"


def compute_stream() -> Stream:
    """Colours where the terminal has 256 of them, else digits."""
    from rich.console import Console

    console = Console()
    colours = console.color_system in ("256", "truecolor") and not console.no_color
    return Coloured() if colours else Underlined()
