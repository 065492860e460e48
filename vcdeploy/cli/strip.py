"""Symbols on the terminal, with the m of each as a colour or, without colours, as a digit below it."""

from __future__ import annotations

import click

from vcdeploy import colours
from vcdeploy.cli import terminal
from vcdeploy.cli.terminal import Stream


class Coloured(Stream):
    """Print characters on a background that shows m."""

    def write(self, text: str, m: float | None = None) -> None:
        for each in text:
            if m is None:
                super().write(each)
                continue
            colour = colours.of(m)
            shown = f"\x1b[38;5;{colour.letters};48;5;{colour.ground}m{colours.cell(each)}\x1b[0m"
            terminal.write_own(shown + ("\n" if each == "\n" else ""))
            self._last = each

    def explain(self) -> None:
        """Print the colour scale from m = 0 to m = 1."""
        ramp = "".join(f"\x1b[48;5;{colour.ground}m  \x1b[0m" for colour in colours.RAMP)
        terminal.write_own(f"m  0 {ramp} 1\n")


class Underlined(Stream):
    """Print lines of characters, each with a line of digits below: tenths of m, rounded down."""

    def __init__(self) -> None:
        super().__init__()
        self._line = self._digits = ""

    def write(self, text: str, m: float | None = None) -> None:
        from rich.cells import cell_len

        for place, each in enumerate(text):
            if each == "\n" and m is None:
                self.end()
                continue
            shown = colours.cell(each)
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
        """Print what the digits mean, on standard error so that pipes get only the text."""
        click.echo("digits: m in tenths, 4 is 0.4 to 0.5", err=True)


def compute_stream() -> Stream:
    """A stream with colours if the terminal has 256 of them, else with digits."""
    console = terminal.console()
    colours = console.color_system in ("256", "truecolor") and not console.no_color
    return Coloured() if colours else Underlined()
