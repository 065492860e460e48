"""`vcdeploy bench train`: how fast a layer trains, against the reference and PyTorch's dense ones, interleaved."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from vcdeploy.cli.bench import BUSY, UNITS, ended_by_sigterm, put_out, share_range


@click.command()
@click.option("--unit", type=click.Choice(UNITS), default="vcgru", show_default=True)
@click.option("--dim", type=click.IntRange(1, 16384), default=512, show_default=True, help="Dimensions of the state.")
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True, help="Sequences at once.")
@click.option("--steps", type=click.IntRange(1), default=100, show_default=True, help="Steps of a sequence.")
@click.option("--share", metavar="LO:HI", default="0.2:0.6", show_default=True,
              help="m, evenly spread over the tokens, or one number.")  # fmt: skip
@click.option("--sharpness", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True,
              help="Of the mask: training starts with 0.1 and ends with 1.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True,
              help="CPU threads of each contender.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=10, show_default=True, help="Passes of each contender.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of weights and inputs.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the JSON document to this file, too.")  # fmt: skip
def train(
    unit: str,
    dim: int,
    batch: int,
    steps: int,
    share: str,
    sharpness: float,
    threads: int,
    rounds: int,
    seed: int,
    json_file: Path | None,
) -> None:
    """Measure how fast one layer trains: forward and backward, tokens a second.

    The unit's ops run beside the reference and torch.nn.RNN, GRU and LSTM of the same size, each in a process of its
    own, once a round and one at a time. A ratio is the median over the rounds, each within one round. CPU time counts
    the processor's work alone and says more than the clock on a busy machine. The last line of the output is one JSON
    document.
    """
    from rich.console import Console

    from vcdeploy.bench import machine, training
    from vcdeploy.versions import versions

    low, high = share_range(share)
    task = training.Task(unit, dim, batch, steps, (low, high), sharpness, threads, seed)
    about_machine, begun = machine.describe(), datetime.now(timezone.utc)
    with ended_by_sigterm(), Console(stderr=True, highlight=False).status("") as status:
        records = training.measure(task, rounds, status.update)
    document = {
        "command": shlex.join(["vcdeploy", *sys.argv[1:]]),
        "date": begun.isoformat(timespec="seconds"),
        "machine": about_machine,
        "versions": versions(machine.PACKAGES),
        "settings": {
            "unit": unit, "dim": dim, "batch": batch, "steps": steps, "share": [low, high], "sharpness": sharpness,
            "threads": threads, "rounds": rounds, "seed": seed,
        },
        "contenders": training.figures(records, steps * batch),
    }  # fmt: skip
    _print(Console(highlight=False), document, training.CONTENDERS, training.DENSE[unit])
    put_out(document, json_file)


def _print(console: Any, document: dict[str, Any], meaning: dict[str, str], kin: str) -> None:
    """kin: the unit's dense kin among the contenders."""
    from rich.table import Table

    settings, machine = document["settings"], document["machine"]
    console.print(f"{machine['processor']}, {machine['cores']} cores; load before the run {machine['load']}")
    if (machine["load"] or 0) > BUSY:
        console.print("The machine was busy: trust the ratios of CPU time, not the clock's.")
    title = (
        f"{settings['unit']}-{settings['dim']}, T = {settings['steps']}, B = {settings['batch']}, "
        f"m {settings['share'][0]} to {settings['share'][1]}, sharpness {settings['sharpness']}, "
        f"threads: {settings['threads']}"
    )
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    times = (f"times {kin.removeprefix('torch ')}", "times reference")
    for header in ("tokens/s", *times, "CPU: tokens/s", *times, "MB"):
        table.add_column(header, justify="right")
    for each in document["contenders"]:
        table.add_row(
            each["name"],
            f"{each['tokens_per_second']:,.0f}",
            *(f"{each['times'][other]:.2f}" for other in (kin, "reference")),
            f"{each['tokens_per_cpu_second']:,.0f}",
            *(f"{each['cpu_times'][other]:.2f}" for other in (kin, "reference")),
            f"{each['memory'] / 1e6:,.0f}",
        )
    console.print(table)
    for each in document["contenders"]:
        console.print(f"{each['name']}: {meaning[each['name']]}; {each['runs']}", style="dim")
    console.print("MB: what a process grew by in its first pass.", style="dim")
