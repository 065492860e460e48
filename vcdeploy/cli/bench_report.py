"""`vcdeploy bench report`: measure everything and write Markdown, HTML and JSON."""

from __future__ import annotations

from pathlib import Path

import click

from vcdeploy.bench.defaults import REPORT_DIM, REPORT_ROUNDS
from vcdeploy.cli.bench_options import (
    command_line,
    compare_option,
    ended_by_sigterm,
    print_comparison,
    read_old,
    split,
    threshold_option,
)
from vcdeploy.cli.terminal import progress
from vcdeploy.cli.types import SEED
from vcdeploy.spec import MOST_DIMENSIONS

FOLDER = "vcdeploy-report"


@click.command()
@click.option("-o", "folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), default=FOLDER,
              show_default=True, help="Report folder.")  # fmt: skip
@click.option("--parts", metavar="NAMES", help="Only these parts, separated by commas; others can follow later.")
@click.option(
    "--dim", type=click.IntRange(2, MOST_DIMENSIONS), default=REPORT_DIM, show_default=True, help="Largest state size."
)
@click.option("--rounds", type=click.IntRange(1), default=REPORT_ROUNDS, show_default=True, help="Rounds per visit.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of weights and symbols.")
@compare_option
@threshold_option
def report(
    folder: Path,
    parts: str | None,
    dim: int,
    rounds: int,
    seed: int,
    compare: Path | None,
    threshold: float | None,
) -> None:
    """Measure units, precisions, sizes, batches, threads and backends, and write a report.

    Also measures cost vs D and m, cold caches and tail latency. The models have random weights. Writes report.md,
    report.html and report.json. Takes about seven minutes; after Ctrl-C, the same command continues.
    """
    from vcdeploy.bench import full, summary

    old = read_old(compare, threshold)
    try:
        with ended_by_sigterm(), progress("bench report") as tell:
            document = full.run(
                folder, dim=dim, rounds=rounds, seed=seed, only=split(parts), command=command_line(),
                tell=tell,
            )  # fmt: skip
    except KeyboardInterrupt:
        click.echo(f"stopped; {folder} has {full.done(folder)} of the runs; run the same command to continue", err=True)
        raise
    for file in summary.write(document, folder):
        click.echo(f"wrote {file}", err=True)
    for line in summary.in_short(document):
        click.echo(line)
    print_comparison(old, document, threshold)
