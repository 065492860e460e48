"""Input and output of commands: text from a file or standard input, files to write."""

import sys
from pathlib import Path

import click

from vcdeploy.errors import VcdeployError
from vcdeploy.files import read_limited, write_atomically

LARGEST = 1 << 28  # bytes; a device such as /dev/zero never ends


def read_given(name: str, what: str) -> str:
    """Read UTF-8 text from a file, or from standard input for -; `what` names it in errors, such as "the prime"."""
    place = "of standard input" if name == "-" else name
    try:
        if name != "-":
            with Path(name).open("rb") as file:
                data = read_limited(file, LARGEST)
        elif sys.stdin is None or sys.stdin.closed:
            raise VcdeployError(f"cannot read {what} {place}: it is closed; give a file or pipe the text in")
        else:
            data = read_limited(sys.stdin.buffer, LARGEST)
    except OSError as error:
        raise VcdeployError(f"cannot read {what} {name}: {error.strerror or error}") from error
    if data is None:
        raise VcdeployError(f"{what} {place} is longer than {LARGEST >> 20} MiB: give a shorter text")
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise VcdeployError(
            f"{what} {place} is not UTF-8: byte 0x{data[error.start]:02X} at offset {error.start}"
        ) from error


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically, and print its name on standard error."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise VcdeployError(f"could not write {path}: {error.strerror or error}") from error
    click.echo(f"wrote {path}", err=True)
