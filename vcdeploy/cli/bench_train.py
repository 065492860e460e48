"""`vcdeploy bench train`: measure how fast a layer trains, against the reference and PyTorch's dense layers."""

from __future__ import annotations

from pathlib import Path

import click

from vcdeploy.cli.bench_options import command_line, ended_by_sigterm, json_option, m_range, put_out
from vcdeploy.cli.terminal import progress
from vcdeploy.cli.types import BATCH, SEED, THREADS
from vcdeploy.spec import MOST_DIMENSIONS, VARIABLE_UNITS


@click.command()
@click.option("--unit", type=click.Choice(VARIABLE_UNITS), default="vcgru", show_default=True,
              help="Unit to train.")  # fmt: skip
@click.option(
    "--dim", type=click.IntRange(1, MOST_DIMENSIONS), default=512, show_default=True, help="Dimensions of the state."
)
@click.option("--batch", type=BATCH, default=32, show_default=True, help="Sequences per batch.")
@click.option("--steps", type=click.IntRange(1), default=100, show_default=True, help="Steps per sequence.")
@click.option("--m", metavar="LO:HI", default="0.2:0.6", show_default=True,
              help="Range of m, evenly spread over the tokens, or one number.")  # fmt: skip
@click.option("--sharpness", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True,
              help="Sharpness of the mask; training starts at 0.1 and ends at 1.")  # fmt: skip
@click.option("--threads", type=THREADS, default=1, show_default=True,
              help="CPU threads per engine.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=10, show_default=True, help="Number of rounds.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of weights and inputs.")
@json_option
def train(
    unit: str,
    dim: int,
    batch: int,
    steps: int,
    m: str,
    sharpness: float,
    threads: int,
    rounds: int,
    seed: int,
    json_file: Path | None,
) -> None:
    """Measure how fast one layer trains: forward and backward, tokens/s.

    The unit's ops are compared with the reference and with torch.nn.RNN, GRU and LSTM of the same size. Each engine
    runs in its own process, once per round and one at a time. A ratio is taken within a round; its median over the
    rounds is shown. On a busy machine, CPU time is more reliable than wall time.
    """
    from vcdeploy.bench import training
    from vcdeploy.cli import terminal

    task = training.Task(unit, dim, batch, steps, m_range(m), sharpness, threads, seed)
    with ended_by_sigterm(), progress("bench train") as tell:
        document = training.bench(task, rounds, command_line(), tell)
    put_out(document, json_file, lambda: training.show(document, terminal.console()))
