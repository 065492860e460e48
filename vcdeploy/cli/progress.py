"""Progress of long commands on standard error: a status line on a terminal, else lines with the time, for a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.text import Text

from vcdeploy.cli import terminal

EVERY = 10.0  # seconds between two lines of a log


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that tells what is being done now; `what` names the command in a log."""
    console = terminal.console(stderr=True)
    if console.is_terminal:
        with console.status("") as status:
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
