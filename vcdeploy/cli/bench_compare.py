"""`vcdeploy bench compare`: compare two earlier runs."""

from __future__ import annotations

from pathlib import Path

import click

from vcdeploy.cli.bench_options import print_comparison, threshold_option


@click.command()
@click.argument("old", metavar="OLD.json", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("new", metavar="NEW.json", type=click.Path(path_type=Path, dir_okay=False))
@threshold_option
def compare(old: Path, new: Path, threshold: float | None) -> None:
    """List the ratios that differ between two runs; exit code 4 if one is worse.

    The files come from `vcdeploy bench --json`, or are the report.json of `vcdeploy bench report`. Speedups vs the
    dense baseline are compared, not times.
    """
    from vcdeploy.bench import compare as comparing

    print_comparison(comparing.read(old), comparing.read(new), threshold)
