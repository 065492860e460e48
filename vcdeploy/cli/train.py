"""`vcdeploy train`: train a language model on a corpus."""

import json
import os
import platform
import shlex
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from vcdeploy import __version__, extras
from vcdeploy.cli import terminal
from vcdeploy.cli.types import SEED, THREADS
from vcdeploy.errors import VcdeployError
from vcdeploy.files import write_atomically
from vcdeploy.spec import UNITS
from vcdeploy.training.config import TrainConfig

if TYPE_CHECKING:
    from vcdeploy.corpora import Corpus
    from vcdeploy.training.loop import Trainer


def _setting(flag: str, help_: str, **more: Any) -> Any:
    """An option for the TrainConfig field of the same name, with its default."""
    field = flag.lstrip("-").replace("-", "_")
    default = getattr(TrainConfig, field)
    return click.option(flag, field, default=default, show_default=default is not None, help=help_, **more)


@click.command(short_help="Train a model.")
@click.argument("corpus", required=False)
@_setting(
    "--kind",
    "Read the corpus as this kind; by default its own.",
    type=click.Choice(["text", "bits", "music"]),
)
@_setting("--buffer", "With bits: zero bits after each character (0, 8 or 24).", type=int)
@_setting("--lowercase", "Share of the lines of training text to read in lower case.", type=float)
@_setting("--unit", "The recurrent unit.", type=click.Choice(UNITS))
@_setting("--dim", "Dimensions of the state.", type=int)
@_setting("--layers", "Layers of the unit.", type=int)
@_setting("--dropout", "Dropout on embedding, between layers and before the output.", type=float)
@_setting("--epsilon", "Mask threshold: below epsilon becomes 0, above 1 - epsilon becomes 1.", type=float)
@_setting("--initial-m", "m of an untrained scheduler.", type=float)
@_setting(
    "--budget",
    "Fraction of the dense unit's rnn_d to spend, instead of --target.",
    type=float,
)
@_setting("--target", "Mean m to reach; with --weight, the value the penalty pulls every m to.", type=float)
@_setting(
    "--weight",
    "Fixed weight of the penalty (nats); by default it is adjusted until --target or --budget is met.",
    type=float,
)
@_setting("--norm", "Norm of the penalty.", type=click.Choice(["l1", "l2"]))
@click.option("--above-only", is_flag=True, help="Penalise only m above the target.")
@_setting(
    "--setting",
    "learn: one target for all; guide: --guide-target on chosen symbols; entropy: the target follows the entropy of "
    "the prediction.",
    type=click.Choice(["learn", "guide", "entropy"]),
)
@_setting("--guide", "Guided symbols, such as ' ', or `boundaries` (white space, last bit, bars).", type=str)
@_setting("--guide-target", "Target on guided symbols.", type=float)
@_setting("--sharpness-start", "Initial sharpness of the mask.", type=float)
@_setting("--sharpness-growth", "Linear increase of the sharpness over --sharpness-every steps.", type=float)
@_setting("--sharpness-end", "Final sharpness of the mask.", type=float)
@_setting(
    "--sharpness-every",
    "Steps per --sharpness-growth; by default an epoch, or fewer in a run of less than ten epochs.",
    type=int,
)
@_setting("--epochs", "Passes over the training text; may be fractional.", type=float)
@_setting("--batch", "Parallel streams through the text (over all processes).", type=int)
@_setting("--bptt", "Steps of backpropagation through time; the state is carried over.", type=int)
@_setting("--restart", "Segments of --bptt steps after which a stream restarts from a zero state.", type=int)
@_setting(
    "--lr", "Peak learning rate of Adam; by default 0.002 up to 256 dimensions, 0.002·√(256/dim) above.", type=float
)
@_setting("--scheduler-rate", "Learning rate of the schedulers, as a multiple of --lr.", type=float)
@_setting("--warmup", "Steps of linear warm-up.", type=int)
@_setting(
    "--decay",
    "How the learning rate decays to a tenth at the end.",
    type=click.Choice(["cosine", "linear", "none"]),
)
@_setting("--clip", "Maximum gradient norm, for schedulers and all other weights separately.", type=float)
@_setting("--seed", "Seed of the initial weights and of dropout.", type=SEED)
@_setting("--save-every", "Steps between checkpoints (one is also saved after every epoch).", type=int)
@click.option("--threads", type=THREADS, help="CPU threads; by default PyTorch's choice.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Run folder. [default: runs/CORPUS-UNIT-DIM]",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    help="Continue the run in this folder (or from this checkpoint), with the same result as without the interruption.",
)
@click.option("--sample", "sample_length", type=click.IntRange(0, 10_000), default=400, show_default=True,
              help="Symbols to sample at the end.")  # fmt: skip
@click.pass_context
def train(
    ctx: click.Context,
    /,
    corpus: str | None,
    threads: int | None,
    out: Path | None,
    resume: Path | None,
    sample_length: int,
    **settings: Any,
) -> None:
    """Train a model on CORPUS: a name from `vcdeploy corpora`, or a path to your own text. [default: demo]

    The run folder gets last.safetensors (to --resume), best.safetensors (to use), metrics.jsonl, and TensorBoard files
    if tensorboard is installed. Ctrl-C saves before stopping. For more than one process:
    torchrun --nproc-per-node 2 -m vcdeploy train …
    """
    # PyTorch's OpenMP threads spin for milliseconds after a loop, on cores that our kernels need. The variable is read
    # when PyTorch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    for module in ("torch", "safetensors"):
        extras.require(module, for_="vcdeploy train")
    import torch

    from vcdeploy.training import checkpoint
    from vcdeploy.training import resume as resuming
    from vcdeploy.training.distributed import processes
    from vcdeploy.training.loop import Interrupted, Trainer

    if threads:
        torch.set_num_threads(threads)
    console = terminal.console(soft_wrap=True)
    with processes() as group:
        saved = None
        if resume:
            _refuse_settings(ctx)
            file = checkpoint.find(resume, prefer="last")
            saved = checkpoint.read(file)
            if not saved.training:
                last = file.with_name("last.safetensors")
                remedy = f"resume from {last}" if last != file and last.is_file() else "start a new run"
                raise VcdeployError(f"{file} holds a model only: {remedy}")
            config, folder = resuming.settings(saved), file.parent
        else:
            config = TrainConfig(**settings, corpus=corpus or TrainConfig.corpus)
            if group.device.type == "cpu":
                config.check_memory(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
            folder = out or _new_folder(config)
            if out and any((out / f"{name}.safetensors").exists() for name in ("last", "best")):
                raise VcdeployError(
                    f"{out} already holds a run: continue it with --resume {out}, or give another --out"
                )
        data = load_corpus(config.corpus, console, kind=config.kind, buffer=config.buffer)
        trainer = Trainer(config, data, folder, group)
        if saved:
            trainer.restore(saved)
        if not group.first:
            _run_quietly(trainer)
            return
        if trainer.step >= trainer.total and not trainer.unfinished:
            console.print(f"{folder} is finished: all {trainer.total:,} steps are done, nothing was trained. For a "
                          f"longer run, start a new one with more --epochs than {config.epochs:g}")  # fmt: skip
            return
        _make_folder(folder)
        with trainer.locked():
            _write_run(folder, config, group.world)
            _introduce(console, trainer)
            try:
                _run(console, trainer)
            except Interrupted as stop:
                console.print(f"stopped by {stop} at step {trainer.step}, saved; continue with: "
                              f"vcdeploy train --resume {shlex.quote(str(folder))}")  # fmt: skip
                ctx.exit(128 + stop.number)
            _conclude(console, trainer, sample_length)


def load_corpus(source: str, console: Console, **options: Any) -> "Corpus":
    """Load a corpus, with a progress bar if it has to be downloaded."""
    from vcdeploy.cli.download import download_bar
    from vcdeploy.corpora import load

    with download_bar(console, source) as progress:
        return load(source, progress=progress, **options)


def _refuse_settings(ctx: click.Context) -> None:
    """Raise if settings are given with --resume: a resumed run keeps its own."""
    given = [
        parameter.opts[0]
        for parameter in ctx.command.params
        if parameter.name not in ("resume", "threads", "sample_length")
        and parameter.name is not None
        and ctx.get_parameter_source(parameter.name) == click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"--resume continues a run with its own settings: leave out {', '.join(given)}")


def _new_folder(config: TrainConfig) -> Path:
    """runs/CORPUS-UNIT-DIM, with a number appended if that exists."""
    name = f"{Path(config.corpus).stem}-{config.unit}-{config.dim}"
    folder, number = Path("runs") / name, 1
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    return folder


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VcdeployError(
            f"could not create the run folder {folder}: {error.strerror or error}; give another --out"
        ) from error


def _write_run(folder: Path, config: TrainConfig, world: int) -> None:
    """Write run.json: what is needed to reproduce the run."""
    import torch

    made = {
        "command": shlex.join(["vcdeploy", *sys.argv[1:]]),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "vcdeploy": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, threads: {torch.get_num_threads()}, processes: {world}",
        "config": config.to_json(),
    }
    write_atomically(folder / "run.json", (json.dumps(made, indent=1, ensure_ascii=False) + "\n").encode())


def _introduce(console: Console, trainer: "Trainer") -> None:
    config, data = trainer.config, trainer.corpus
    weights = sum(each.numel() for each in trainer.model.parameters())
    sizes = " / ".join(f"{len(data.splits[split]):,}" for split in ("train", "valid", "test"))
    layers = f", {config.layers} layers" if config.layers > 1 else ""
    console.print(f"{data.name}: {data.kind}, {len(data.vocab)} symbols, {sizes} (train / valid / test)")
    console.print(f"{config.unit} of {config.dim}{layers}: {weights:,} weights, on {trainer.processes.device}")
    console.print(f"{trainer.folder}: {trainer.total:,} steps" + (f", from {trainer.step:,}" if trainer.step else ""))


def _score(row: dict[str, Any]) -> str:
    return f"perplexity {row['perplexity']:.3f}" if "perplexity" in row else f"{row['bits']:.3f} bits"


def describe(row: dict[str, Any]) -> str:
    """Format a row of metrics as one line."""
    return (
        f"loss {row['loss']:.3f} · {_score(row)} · m {row['m']:.3f} ± {row['m_spread']:.3f} · rnn_d {row['rnn_d']:.0f}"
    )


def _run_quietly(trainer: "Trainer") -> None:
    """Run without output: the first process prints for all."""
    from vcdeploy.training.loop import Interrupted

    try:
        trainer.run()
    except Interrupted as stop:
        raise SystemExit(128 + stop.number) from None


def _run(console: Console, trainer: "Trainer") -> None:
    live = console.is_terminal
    bar = Progress(
        BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[row]}", markup=False),
        TimeRemainingColumn(), TextColumn("left"), console=console, disable=not live,
    )  # fmt: skip
    task = bar.add_task("", total=trainer.total, completed=trainer.step, row="")
    said = time.monotonic()

    def on_row(row: dict[str, Any]) -> None:
        nonlocal said
        if row["split"] == "valid":
            console.print(f"epoch {row['epoch']:g} · valid · {describe(row)} · sharpness {row['sharpness']:g}")
        elif row["split"] == "step":
            speed = row.get("tokens_per_second")
            line = describe(row) + (f" · {speed:,.0f} tokens/s" if speed else "")
            bar.update(task, row=line)
            if not live and speed and time.monotonic() - said > 20:  # without a live progress bar, a line now and then
                left = (trainer.total - row["step"]) * trainer.config.batch * trainer.config.bptt
                console.print(f"step {row['step']:,} of {trainer.total:,} · {line} · "
                              f"{left / speed:,.0f} s left")  # fmt: skip
                said = time.monotonic()

    trainer.on_row = on_row
    trainer.on_step = lambda step: bar.update(task, completed=step)
    with bar:
        trainer.run()


def _conclude(console: Console, trainer: "Trainer", sample_length: int) -> None:
    from vcdeploy.runtime.sampling import Sampling
    from vcdeploy.runtime.session import generate
    from vcdeploy.runtime.torch import TorchModel
    from vcdeploy.training import checkpoint

    best = checkpoint.read(trainer.folder / "best.safetensors")
    if trainer.config.budget and best.progress["best"][0]:
        console.print(Text(f"the budget of {trainer.config.budget:g} was not met within 2 %", "bold")
                      + ": train longer, or let the sharpness grow sooner (--sharpness-every)")  # fmt: skip
    if sample_length > 0:
        model = TorchModel(best.build(), best.vocab)
        prime = trainer.corpus.splits["test"][:64].astype("int64")
        ids = [*prime, *(token.id for token in generate(model, prime, sample_length, Sampling()))]
        console.print("\na sample, after 64 symbols of the test text:\n")
        console.print(best.vocab.decode(ids))
    console.print(f"\nnext: vcdeploy eval {shlex.quote(str(trainer.folder))}")
