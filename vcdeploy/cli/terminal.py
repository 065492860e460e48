"""The output of commands: streams, the console and progress.

Nothing a model, a file name or a server contains can control the terminal. `main` replaces sys.stdout and sys.stderr by
Output. On a terminal it shows control characters other than newline and tab instead of sending them. Our own colours
and cursor movements go around it: those of `console`, which filters the text between them, and those of `write_own`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

if TYPE_CHECKING:
    from rich.console import Console

# C0 and DEL as their pictures (U+2400 to U+2421); C1, which has none, as the replacement character.
_VISIBLE = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_VISIBLE |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)

EVERY = 10.0  # seconds between two lines of a log


def visible(text: str) -> str:
    """Replace control characters other than newline and tab by characters that show them."""
    return text.translate(_VISIBLE)


class Output:
    """A text stream that filters what it sends to a terminal, encodes every character and names itself in errors.

    It has no `buffer`: bytes would pass unfiltered.
    """

    def __init__(self, stream: TextIO, name: str) -> None:
        self.own, self._name, self._filtered = stream, name, stream.isatty()
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # ASCII, or a file name that is no UTF-8

    def write(self, text: str | bytes) -> int:
        if isinstance(text, bytes):
            if not text:  # click's test for a binary stream
                raise TypeError("write() argument must be str, not bytes")
            text = text.decode(errors="backslashreplace")  # click's completion scripts
        return self.write_own(visible(text) if self._filtered else text)

    def write_own(self, text: str) -> int:
        """Write without a filter."""
        with self._errors():
            if text:  # click tries what kind of stream this is with nothing, and ignores the errors of a full device
                self.own.write(text)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self._errors():
            self.own.flush()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno == errno.EPIPE:  # click ends the program quietly
                raise
            # What is left in the buffer would fail again at exit, with a traceback.
            with contextlib.suppress(OSError, ValueError):
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, self.own.fileno())
                os.close(nothing)
            if self.own is not sys.__stderr__:  # there is nowhere to report that standard error is full
                raise OSError(error.errno, error.strerror, self._name) from error

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.own, name)


@contextlib.contextmanager
def guarded_output() -> Iterator[None]:
    """Replace sys.stdout and sys.stderr by Output."""
    before = sys.stdout, sys.stderr
    # A closed stream is None.
    if sys.stdout is not None:
        sys.stdout = cast(TextIO, Output(sys.stdout, "standard output"))
    if sys.stderr is not None:
        sys.stderr = cast(TextIO, Output(sys.stderr, "standard error"))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Own:
    """The unfiltered side of an Output, as a file for `console`."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def write(self, text: str) -> int:
        return self._output.write_own(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


def write_own(text: str) -> None:
    """Print text with our own escape sequences on standard output; the caller has filtered everything else."""
    stream = sys.stdout
    if isinstance(stream, Output):
        stream.write_own(text)
    elif stream is not None:
        stream.write(text)
    if stream is not None:
        stream.flush()


class Stream:
    """Print characters immediately."""

    def __init__(self) -> None:
        self._last = ""

    def write(self, text: str, m: float | None = None) -> None:
        if text:
            click.echo(text, nl=False)  # echo flushes
            self._last = text[-1]

    def end(self) -> None:
        """Start the next output on a new line."""
        if self._last != "\n":
            self.write("\n")

    def explain(self) -> None:
        """Print what colours or digits mean, if there are any."""


def console(*, stderr: bool = False, soft_wrap: bool = False, highlight: bool = False) -> Console:
    """A rich console for text from anywhere: strings have no markup, control characters are shown on a terminal."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Filtered(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                if segment.control or not self.is_terminal:
                    yield segment
                else:
                    yield Segment(visible(segment.text), segment.style)

    stream = sys.stderr if stderr else sys.stdout
    file = cast(TextIO, _Own(stream)) if isinstance(stream, Output) else None
    return Filtered(file=file, stderr=stderr, soft_wrap=soft_wrap, highlight=highlight, markup=False, emoji=False)


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that tells what is being done now: in a status line on a terminal, else in a log with the time.

    what: names the command in the log.
    """
    from rich.text import Text

    screen = console(stderr=True)
    if screen.is_terminal:
        with screen.status("") as status:
            yield lambda line: status.update(Text(line))
        return
    begun = time.monotonic()
    said = begun - EVERY

    def tell(line: str) -> None:
        nonlocal said
        if time.monotonic() - said >= EVERY:
            click.echo(f"{time.strftime('%H:%M:%S')} {what}: {line}", err=True)
            said = time.monotonic()

    yield tell
    if time.monotonic() - begun >= EVERY:
        click.echo(f"{time.strftime('%H:%M:%S')} {what}: done in {time.monotonic() - begun:.0f} s", err=True)
