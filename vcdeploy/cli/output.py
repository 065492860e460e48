"""Output files of commands."""

from pathlib import Path

import click

from vcdeploy.errors import VcdeployError
from vcdeploy.files import write_atomically


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically, and print its name on standard error."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise VcdeployError(f"could not write {path}: {error.strerror or error}") from error
    click.echo(f"wrote {path}", err=True)
