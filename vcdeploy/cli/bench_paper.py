"""`vcdeploy bench paper`: rerun the paper's tables and figures."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcdeploy import extras
from vcdeploy.cli.terminal import progress
from vcdeploy.cli.types import THREADS
from vcdeploy.errors import BadValue, VcdeployError

if TYPE_CHECKING:
    from vcdeploy.bench.paper.experiment import Experiment

RESULTS = Path("docs/results/paper")  # in a checkout
RUNS = Path("runs/paper")

_scale = click.option("--scale", type=click.Choice(["machine", "paper"]), default="machine", show_default=True,
                      help="Size of the experiments: a few core-hours, or as in the paper.")  # fmt: skip
_results = click.option("--results", type=click.Path(file_okay=False, path_type=Path), default=RESULTS,
                        show_default=True, help="Results folder.")  # fmt: skip
_runs = click.option("--runs", type=click.Path(file_okay=False, path_type=Path), default=RUNS, show_default=True,
                     help="Checkpoint folder.")  # fmt: skip


@click.group()
def paper() -> None:
    """Rerun the tables and figures of "Variable Computation in Recurrent Neural Networks" (ICLR 2017), and some more.

    Models are trained at the scale of this machine, or at the paper's. Results are kept: every command continues from
    the existing ones.
    """


@paper.command("list", short_help="List the experiments.")
@_scale
@_results
def list_(scale: str, results: Path) -> None:
    """List the experiments, and how many of their rows have a result."""
    from rich.table import Table

    from vcdeploy.bench.paper import report
    from vcdeploy.cli import terminal

    table = Table("experiment", "rows done", "title", box=None)
    for experiment, done, rows in report.index(scale, results):
        table.add_row(experiment.name, f"{done} of {rows}", experiment.title)
    terminal.console().print(table)


@paper.command(short_help="Train rows without a result yet.")
@click.argument("names", metavar="[EXPERIMENT]...", nargs=-1)
@_scale
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Seeds per row, starting at 0.")
@click.option("--row", "only", multiple=True, metavar="NAME", help="Only this row; may be repeated.")
@click.option("--threads", type=THREADS, default=1, show_default=True, help="CPU threads.")
@_results
@_runs
@click.pass_context
def run(
    ctx: click.Context,
    names: tuple[str, ...],
    scale: str,
    seeds: int,
    only: tuple[str, ...],
    threads: int,
    results: Path,
    runs: Path,
) -> None:
    """Train the rows of each EXPERIMENT that have no result yet. [default: all experiments]

    A finished run is a line of SCALE/EXPERIMENT.jsonl in --results. An interrupted run is resumed. All rows of an
    experiment are trained with the first seed before the next.
    """
    for module in ("torch", "safetensors"):
        extras.require(module, for_="vcdeploy bench paper run")
    import torch

    from vcdeploy.bench.paper import run as runner
    from vcdeploy.training.loop import Interrupted

    chosen = _experiments(names)
    rows = [row.name for experiment in chosen for row in experiment.rows]
    for name in only:
        if name not in rows:
            raise BadValue(f"no row {name!r} in {', '.join(each.name for each in chosen)}. "
                                f"There are: {'; '.join(rows)}")  # fmt: skip
    torch.set_num_threads(threads)
    trained = 0
    for experiment in chosen:
        for row, seed, config in runner.pending(experiment, scale, seeds, results, only):
            click.echo(f"{experiment.name} · {row.name} · D {config.dim} · seed {seed}", nl=False)
            try:
                made = runner.train(experiment, row, scale, config, results, runs)
            except Interrupted as stop:
                click.echo(f"\nstopped by {stop}, saved; run the same command to continue")
                ctx.exit(128 + stop.number)
            except VcdeployError:
                click.echo()  # puts the error on its own line
                raise
            trained += 1
            score = made["test"][experiment.score]
            click.echo(f" · test {score:.4f} · m {made['test']['m']:.3f} · rnn_d {made['test']['rnn_d']:.0f}"
                       f" · {made['cpu_seconds']:.0f} s of CPU")  # fmt: skip
    if not trained:
        click.echo(f"nothing to train: {results / scale} has all results. To train them again, give another "
                   "--results folder")  # fmt: skip


@paper.command(short_help="Render the results.")
@_scale
@_results
def report(scale: str, results: Path) -> None:
    """Render the results of a scale as Markdown and figures, next to them in --results."""
    extras.require("matplotlib", for_="vcdeploy bench paper report")
    from vcdeploy.bench.paper import report as pages

    for file in pages.write(scale, results):
        click.echo(f"wrote {file}")


@paper.command(short_help="Measure the latency of the trained models.")
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@_scale
@click.option("--rounds", type=click.IntRange(1), default=15, show_default=True, help="Interleaved rounds.")
@click.option("--steps", type=click.IntRange(1), default=100, show_default=True, help="Characters per sequence.")
@click.option("--threads", type=THREADS, default=1, show_default=True, help="CPU threads per engine.")
@_results
@_runs
def time(texts: tuple[str, ...], scale: str, rounds: int, steps: int, threads: int, results: Path, runs: Path) -> None:
    """Measure the time per character of the models of each TEXT. [default: all texts with trained models]

    TEXT is ptb (the models of `characters`), text8 (of `text8` and `front`) or europarl-en (of `english`). Each model
    runs in its own process, and the models of one text take turns. Needs an otherwise idle machine.
    """
    for module in ("torch", "safetensors", "onnxruntime"):
        extras.require(module, for_="vcdeploy bench paper time")
    from vcdeploy.bench import interleave
    from vcdeploy.bench.paper import latency
    from vcdeploy.bench.paper import results as files
    from vcdeploy.cli.bench_options import ended_by_sigterm

    for text in texts:
        if text not in latency.TIMED:
            raise BadValue(f"no text {text!r} to time: choose from {', '.join(latency.TIMED)}")
    settings = interleave.Settings(("sequence", "step"), threads, steps, rounds, 0.03, 0)
    untimed: dict[str, str] = {}
    for text in texts or latency.TIMED:
        experiments = tuple(_experiments(latency.TIMED[text]))
        made = _made(scale)
        with ended_by_sigterm(), progress("bench paper time") as tell:
            try:
                models, absent = latency.measure(experiments, scale, results, runs, settings, tell)
            except latency.NothingToTime as error:
                untimed[text] = str(error)
                continue
        document = {
            **made,
            "text": text,
            "settings": {"rounds": rounds, "steps": steps, "threads": threads, "batch": 1},
            "models": models,
            "left_out": absent,
        }
        files.add(results, document, files.TIMES)
        for each in models:
            took = each["microseconds"]
            click.echo(f"{text} · {each['model']} · {each['runs']} · {each['bits']:.3f} bits · "
                       f"{took['sequence']:.2f} µs/step in sequence · {took['step']:.2f} µs single step")  # fmt: skip
        for name, why in absent.items():
            click.echo(f"{text} · left out: {name}: {why}", err=True)
    if untimed and (texts or len(untimed) == len(latency.TIMED)):
        raise VcdeployError(". ".join(f"{text}: {why}" for text, why in untimed.items()))


@paper.command(short_help="Draw the paper's figures of m over a text.")
@click.argument("figures", metavar="[FIGURE]...", nargs=-1)
@_scale
@_results
@_runs
def trace(figures: tuple[str, ...], scale: str, results: Path, runs: Path) -> None:
    """Draw each FIGURE that shows m over a text, from the trained models. [default: figure2, figure3 and figure5]

    figure2 needs the models of `bits`, the others those of `europarl`. Figure 4 is drawn by `report`.
    """
    for module in ("torch", "safetensors", "matplotlib"):
        extras.require(module, for_="vcdeploy bench paper trace")
    from vcdeploy.bench.paper import results as files
    from vcdeploy.bench.paper import tracing
    from vcdeploy.bench.paper.experiments import EXPERIMENTS
    from vcdeploy.files import write_atomically

    known = {figure.name: (each, figure) for each in EXPERIMENTS.values() for figure in each.traced}
    for name in figures:
        if name not in known:
            raise BadValue(f"no figure {name!r} to trace: choose from {', '.join(known)}")
    for name in figures or known:
        experiment, figure = known[name]
        about, drawn = tracing.trace(experiment, figure, scale, results, runs)
        place = results / scale / files.TRACES
        file = files.add(results, {**_made(scale), **about}, files.TRACES)
        write_atomically(place / f"{name}.png", drawn)
        click.echo(f"wrote {place / name}.png and a line of {file}")
        for word in about["words"]:
            click.echo(f"  {word['word']}")


def _made(scale: str) -> dict[str, Any]:
    """Command, date, scale, machine and versions, as recorded with results."""
    from vcdeploy.bench import machine
    from vcdeploy.versions import versions

    return {
        "command": shlex.join(["vcdeploy", *sys.argv[1:]]),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "scale": scale,
        "machine": machine.describe(),
        "versions": versions(machine.PACKAGES),
    }


def _experiments(names: tuple[str, ...]) -> list[Experiment]:
    from difflib import get_close_matches

    from vcdeploy.bench.paper.experiments import EXPERIMENTS

    for name in names:
        if name not in EXPERIMENTS:
            near = get_close_matches(name, EXPERIMENTS, n=1)
            raise BadValue(
                f"no experiment {name!r}" + (f"; did you mean {near[0]}?" if near else ".")
                + f" There are: {', '.join(EXPERIMENTS)}"
            )  # fmt: skip
    return [EXPERIMENTS[name] for name in names or EXPERIMENTS]
