"""`vcdeploy bench paper`: the paper's tables and figures, rerun."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcdeploy import extras
from vcdeploy.errors import VcdeployError

if TYPE_CHECKING:
    from vcdeploy.bench.paper.experiment import Experiment

RESULTS = Path("docs/results/paper")  # of a checkout
RUNS = Path("runs/paper")

_scale = click.option("--scale", type=click.Choice(["machine", "paper"]), default="machine", show_default=True,
                      help="How large: for a few core-hours, or as in the paper.")  # fmt: skip
_results = click.option("--results", type=click.Path(file_okay=False, path_type=Path), default=RESULTS,
                        show_default=True, help="Folder of the results.")  # fmt: skip
_runs = click.option("--runs", type=click.Path(file_okay=False, path_type=Path), default=RUNS, show_default=True,
                     help="Folder of the checkpoints.")  # fmt: skip


@click.group()
def paper() -> None:
    """Rerun the experiments of "Variable Computation in Recurrent Neural Networks" (ICLR 2017)."""


@paper.command(short_help="Train what has no result yet.")
@click.argument("names", metavar="[EXPERIMENT]...", nargs=-1)
@_scale
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Seeds of each row, from 0.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="CPU threads.")
@_results
@_runs
@click.pass_context
def run(
    ctx: click.Context, names: tuple[str, ...], scale: str, seeds: int, threads: int, results: Path, runs: Path
) -> None:
    """Train the rows of each EXPERIMENT that have no result yet. [default: of all]

    A finished run is a JSON file below --results. A run that was stopped goes on where it was. Rows are trained with
    the first seed, all of them, before the next.
    """
    for module in ("torch", "safetensors"):
        extras.require(module, for_="vcdeploy bench paper run")
    import torch

    from vcdeploy.bench.paper import run as runner
    from vcdeploy.training.loop import Interrupted

    chosen = _experiments(names)
    torch.set_num_threads(threads)
    for experiment in chosen:
        for row, seed, config in runner.pending(experiment, scale, seeds, results, runs):
            click.echo(f"{experiment.name} · {row.name} · D {config.dim} · seed {seed}", nl=False)
            try:
                made = runner.train(experiment, row, scale, config, results, runs)
            except Interrupted as stop:
                click.echo(f"\nstopped by {stop}, saved: the same command goes on")
                ctx.exit(128 + stop.number)
            score = made["test"][experiment.score]
            click.echo(f" · test {score:.4f} · m {made['test']['m']:.3f} · rnn_d {made['test']['rnn_d']:.0f}"
                       f" · {made['cpu_seconds']:.0f} s of CPU")  # fmt: skip


def _experiments(names: tuple[str, ...]) -> list[Experiment]:
    from difflib import get_close_matches

    from vcdeploy.bench.paper.experiments import EXPERIMENTS

    for name in names:
        if name not in EXPERIMENTS:
            near = get_close_matches(name, EXPERIMENTS, n=1)
            raise VcdeployError(
                f"no experiment {name!r}" + (f"; did you mean {near[0]}?" if near else "")
                + f" There are: {', '.join(EXPERIMENTS)}"
            )  # fmt: skip
    return [EXPERIMENTS[name] for name in names or EXPERIMENTS]
