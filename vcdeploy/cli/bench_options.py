"""Shared by the subcommands of `vcdeploy bench`: options, parsing of lists and ranges, JSON output, SIGTERM."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click

from vcdeploy.errors import BadValue, VcdeployError

WIDTH = 200  # columns; wider than any table
WORSE = 4  # exit code if something is slower than before

json_option = click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Also write the results as one JSON document to this file; to a .jsonl file it is appended as a line. "
    "- prints it instead of the table.",
)  # fmt: skip
compare_option = click.option(
    "--compare", metavar="OLD.json", type=click.Path(path_type=Path, dir_okay=False),
    help="List the ratios that differ from those of an earlier run; exit code 4 if one is worse.",
)  # fmt: skip
threshold_option = click.option(
    "--threshold", type=click.FloatRange(0, min_open=True), metavar="PERCENT",
    help="Ignore changes up to this. [default: 10]",
)  # fmt: skip


def command_line() -> str:
    """The command as typed, for documents."""
    return shlex.join(["vcdeploy", *sys.argv[1:]])


def split(text: str | None) -> list[str]:
    """The names in a comma-separated list."""
    return [each.strip() for each in (text or "").split(",") if each.strip()]


def listed(text: str, known: tuple[str, ...], option: str) -> list[str]:
    """The names in a comma-separated list, in the order of `known`."""
    wanted = split(text)
    for each in wanted:
        if each not in known:
            raise BadValue(f"{option} has no {each!r}: choose from {', '.join(known)}, separated by commas")
    if not wanted:
        raise BadValue(f"{option} is empty: choose from {', '.join(known)}")
    return [each for each in known if each in wanted]


def m_range(text: str) -> tuple[float, float]:
    """Parse LO:HI, or one number for both."""
    low, _, high = text.partition(":")
    try:
        ends = float(low), float(high or low)
    except ValueError:
        ends = 0.0, 0.0
    if not 0 < ends[0] <= ends[1] <= 1 or text.endswith(":"):
        raise BadValue(
            f"--m {text!r} is not a range of m: give LO:HI with 0 < LO <= HI <= 1, such as 0.2:0.6, or one number"
        )
    return ends


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Handle SIGTERM like an error: workers end and temporary files are removed."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def put_out(document: dict[str, Any], json_file: Path | None, show: Callable[[], None]) -> None:
    """Show the results as a table, or print the JSON document (--json -); write it to the file given with --json."""
    from vcdeploy.bench import jsonl

    if json_file is not None and str(json_file) == "-":
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    show()
    if json_file is None:
        return
    try:
        jsonl.save(json_file, document)
        click.echo(f"wrote {json_file}", err=True)
    except OSError as error:
        click.echo(json.dumps(document, ensure_ascii=False))  # so that the results are not lost
        raise VcdeployError(f"could not write {json_file}: {error.strerror or error}") from error


def read_old(file: Path | None, threshold: float | None) -> dict[str, Any] | None:
    """Read the document to compare with; call it before measuring, so that errors come early."""
    from vcdeploy.bench import compare

    if file is None and threshold is not None:
        raise BadValue("--threshold is for --compare OLD.json: add --compare, or leave out --threshold")
    return None if file is None else compare.read(file)


def print_comparison(old: dict[str, Any] | None, new: dict[str, Any], threshold: float | None) -> None:
    """Print what changed; exit with WORSE if something is slower by more than the threshold."""
    if old is None:
        return
    from vcdeploy.bench import compare
    from vcdeploy.cli import terminal

    found = compare.compare(old, new, compare.THRESHOLD if threshold is None else threshold / 100)
    console = terminal.console()
    console.width = max(console.width, WIDTH)
    console.print(compare.table(found, old["date"], new["date"]))
    for line in compare.remarks(found):
        console.print(line)
    if found.regressions:
        raise SystemExit(WORSE)
