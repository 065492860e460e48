"""`vcdeploy doctor`: what works on this machine, what does not and why, and how to fix it."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from vcdeploy import checks
from vcdeploy.cli import terminal

COLOURS: dict[checks.State, str] = {"works": "green", "missing": "yellow", "broken": "red"}


def _print_table(findings: list[checks.Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", "extra", "state", ""):
        table.add_column(column)
    for finding in findings:
        detail = Text(finding.detail)
        if finding.fix:
            detail.append(f"\n{finding.fix}", style="cyan")
        table.add_row(finding.name, finding.extra, Text(finding.state, COLOURS[finding.state]), detail)
    terminal.console(highlight=True).print(table)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list with one object per check.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Show what works on this machine and how to fix what does not.

    Every component is actually loaded or run. Optional ones may be missing or broken: the exit code is 1 only if
    vcdeploy itself, its native module, NumPy or ONNX does not work.
    """
    findings = checks.find_all()
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print_table(findings)
    if any(finding.needed and finding.state != "works" for finding in findings):
        ctx.exit(1)
