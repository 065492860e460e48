"""`vcdeploy bench`: how fast a model runs, against dense ones of its size, all in one interleaved run."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from vcdeploy import zoo
from vcdeploy.cli.model import ModelName
from vcdeploy.errors import VcdeployError

if TYPE_CHECKING:
    from rich.console import Console

UNITS = ("vcrnn", "vcgru", "vclstm")
SCENARIOS = ("step", "sequence", "generate")
ROUNDS, QUICK_ROUNDS, FULL_ROUNDS = 30, 5, 10  # vcdeploy.bench.run and full have them, too, and are slow to import
FOLDER = "vcdeploy-report"
WORSE = 4  # the exit code where something is slower than it was
WITH_FULL = ("full", "folder", "parts", "compare", "threshold", "dim", "rounds", "seed")
BUSY = 0.5  # programs that want a core, before the run
WIDTH = 200  # columns, more than any table takes


class Bench(click.Command):
    """`vcdeploy bench train` and `bench paper` are commands of their own; a model in a folder train is ./train."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        command: click.Command
        if args[:1] == ["train"]:
            from vcdeploy.cli.bench_train import train as command
        elif args[:1] == ["paper"]:
            from vcdeploy.cli.bench_paper import paper as command
        else:
            return super().make_context(info_name, args, parent, **extra)
        return command.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)


@click.command(cls=Bench, short_help="Measure a model's speed against dense ones.")
@click.argument("model", required=False, type=ModelName())
@click.option("--unit", type=click.Choice(UNITS), help="Of a made-up model: the unit. [default: vcgru]")
@click.option("--dim", type=click.IntRange(2, 16384), help="Of a made-up model: the size of the state. [default: 1024]")
@click.option("--share", metavar="LO:HI",
              help="Of a made-up model: m, spread over the symbols, or a number. [default: 0.2:0.6]")  # fmt: skip
@click.option("--text", type=click.Path(path_type=Path, dir_okay=False),
              help="With MODEL: a file for it to read. [default: what it writes itself]")  # fmt: skip
@click.option("--scenario", metavar="NAMES", default=",".join(SCENARIOS), show_default=True,
              help="What to measure, with commas in between.")  # fmt: skip
@click.option("--steps", type=click.IntRange(1), default=100, show_default=True, help="Symbols of a sequence.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True,
              help="Sequences at once, in step and sequence.")  # fmt: skip
@click.option("--contenders", metavar="NAMES",
              help="Only those with these names or beginnings of names, and the baseline. [default: all]")  # fmt: skip
@click.option("--precision", metavar="NAMES", default="f32,f16,bf16,int8", show_default=True,
              help="Precisions of the native contenders.")  # fmt: skip
@click.option("--baseline", metavar="NAME",
              help="What ratios refer to. [default: the dense unit in ONNX Runtime, else PyTorch]")  # fmt: skip
@click.option(
    "--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="CPU threads of each contender."
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True,
              help="Where to measure; cuda needs a GPU, and has other contenders.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1),
              help=f"[default: {ROUNDS}; with --quick {QUICK_ROUNDS}; with --full {FULL_ROUNDS} a visit]")  # fmt: skip
@click.option("--quick", is_flag=True, help="Fewer and shorter rounds: under a minute, and noisier.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of weights, symbols and samples.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the JSON document to this file, too.")  # fmt: skip
@click.option("--full", is_flag=True, help="The whole report, in a folder; a run that was stopped goes on.")
@click.option("-o", "folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
              help=f"With --full: the folder. [default: {FOLDER}]")  # fmt: skip
@click.option("--parts", metavar="NAMES", help="With --full: only these of its parts; others can follow later.")
@click.option("--compare", metavar="OLD.json", type=click.Path(path_type=Path, dir_okay=False),
              help="Say which ratios differ from those of an earlier run; exit code 4 if one is worse.")  # fmt: skip
@click.option("--threshold", type=click.FloatRange(0, min_open=True), metavar="PERCENT",
              help="With --compare: a change up to this is none. [default: 10]")  # fmt: skip
@click.pass_context
def bench(
    context: click.Context,
    model: str | None,
    unit: str | None,
    dim: int | None,
    share: str | None,
    text: Path | None,
    scenario: str,
    steps: int,
    batch: int,
    contenders: str | None,
    precision: str,
    baseline: str | None,
    threads: int,
    device: str,
    rounds: int | None,
    quick: bool,
    seed: int,
    json_file: Path | None,
    full: bool,
    folder: Path | None,
    parts: str | None,
    compare: Path | None,
    threshold: float | None,
) -> None:
    """Measure how fast MODEL runs, beside dense models of its size.

    MODEL is one that ships (vcdeploy zoo lists them), an ONNX file, a checkpoint or a run's folder. A model that ships
    comes before a file of its name, which is ./english. [default: english] --unit, --dim or --share in its place make
    one up, with random weights and an m that is known. All are whole language models, in ONNX Runtime, PyTorch and,
    where installed, OpenVINO.

    Every contender has a process of its own; in each round each runs every scenario once, one at a time. A ratio is
    the median over the rounds, each within one round. The last line of the output is one JSON document.

    With --device cuda: TensorRT with our plugin, beside cuDNN (in PyTorch), ONNX Runtime and TensorRT with dense units;
    wall time and, in the column GPU, the time between two CUDA events. Not run on a GPU yet.

    --full takes no MODEL. It measures units, precisions, sizes, batches, threads, backends and what else there is, cost
    against D and m, cold caches and the tail, and writes report.md, .html and .json. About seven minutes; after Ctrl-C,
    the same command goes on. --dim is then the largest D.

    --compare works with the JSON of any run, before a MODEL (or --full) is measured anew, or with an earlier JSON in
    the place of MODEL. Compared are ratios to the dense baseline, not times.

    The speed of training is another matter: see vcdeploy bench train --help. The paper's tables and figures are
    another: see vcdeploy bench paper --help.
    """
    old = _old(compare, threshold)
    if full:
        _refuse_beside_full(context)
        document = _full(folder or Path(FOLDER), dim, rounds, seed, _split(parts or ""))
        _compare(old, document, threshold)
        return
    for option, given in {"-o": folder, "--parts": parts}.items():
        if given is not None:
            raise VcdeployError(f"{option} is for --full: add that, or leave {option} out")
    if model is not None and model.endswith(".json"):
        if old is None:
            raise VcdeployError(
                f"{model} is the JSON of a run, not a model: give --compare OLD.json to compare it with"
            )
        from vcdeploy.bench import compare as comparing

        _compare(old, comparing.read(Path(model)), threshold)
        return
    from rich.console import Console

    from vcdeploy.bench import report
    from vcdeploy.bench.run import DIM, UNIT
    from vcdeploy.bench.run import bench as measured
    from vcdeploy.runtime.loading import PRECISIONS

    if device == "cuda":
        _need_gpu()
    names = _listed(scenario, SCENARIOS, "--scenario")
    precisions = _listed(precision, PRECISIONS, "--precision")
    made_up = {"--unit": unit, "--dim": dim, "--share": share}
    chosen = [option for option, value in made_up.items() if value is not None]
    if model is not None and chosen:
        raise VcdeployError(f"{chosen[0]} is for a model that is made up, and {model} is given: leave one out")
    if text is not None and chosen:
        raise VcdeployError(f"--text is for a trained MODEL to read, and {chosen[0]} makes one up: leave one out")
    if not chosen:
        model = model or zoo.DEFAULT
    with ended_by_sigterm(), Console(stderr=True, highlight=False).status("") as status:
        document = measured(
            model, unit=unit or UNIT, dim=dim or DIM, share=share_range(share or "0.2:0.6"), text=text,
            scenarios=names, steps=steps, batch=batch, contenders=_split(contenders or ""), precisions=precisions,
            baseline=baseline, threads=threads, device=device, quick=quick, rounds=rounds, seed=seed,
            command=shlex.join(["vcdeploy", *sys.argv[1:]]), tell=status.update,
        )  # fmt: skip
    console = Console(highlight=False)
    console.width = max(console.width, WIDTH)  # a terminal that is narrower breaks lines, but no figure is lost
    _print(console, document, report.tables(document))
    put_out(document, json_file)
    _compare(old, document, threshold)


def _refuse_beside_full(context: click.Context) -> None:
    """--full has a design of its own."""
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) not in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
        if given and name not in WITH_FULL:
            said = "MODEL" if name == "model" else parameter.opts[0]
            raise VcdeployError(
                f"--full measures models of its own making and takes no {said}: leave one of the two out"
            )


def _full(folder: Path, dim: int | None, rounds: int | None, seed: int, only: list[str]) -> dict[str, Any]:
    from rich.console import Console

    from vcdeploy.bench import full, summary

    progress = Console(stderr=True, highlight=False)
    try:
        with ended_by_sigterm(), progress.status("") as status:
            document = full.run(
                folder, dim=dim or full.DIM, rounds=rounds or full.ROUNDS, seed=seed, only=only,
                command=shlex.join(["vcdeploy", *sys.argv[1:]]), tell=status.update,
            )  # fmt: skip
    except KeyboardInterrupt:
        done = len(list((folder / "parts").glob("*.json")))
        click.echo(f"stopped; {folder} has {done} of the runs, and the same command goes on with the rest", err=True)
        raise
    for file in summary.write(document, folder):
        click.echo(f"wrote {file}", err=True)
    for line in summary.in_short(document):
        click.echo(line)
    return document


def _old(file: Path | None, threshold: float | None) -> dict[str, Any] | None:
    """What to compare with, read before anything is measured."""
    if file is None:
        if threshold is not None:
            raise VcdeployError("--threshold is for --compare OLD.json: give that, too, or leave it out")
        return None
    from vcdeploy.bench import compare as comparing

    return comparing.read(file)


def _compare(old: dict[str, Any] | None, new: dict[str, Any], threshold: float | None) -> None:
    """Print what has changed; exit with WORSE if something is slower by more than the threshold."""
    if old is None:
        return
    from rich.console import Console
    from rich.table import Table

    from vcdeploy.bench import compare as comparing

    found = comparing.compare(old, new, comparing.THRESHOLD if threshold is None else threshold / 100)
    table = Table(title=f"times as fast as the baseline: {old['date']} and {new['date']}", box=None, pad_edge=False,
                  title_justify="left", title_style="bold", header_style="dim")  # fmt: skip
    for header in ("part", "model", "m", "B", "threads", "", "contender", "against"):
        table.add_column(header, no_wrap=True)
    for header in ("old", "new", "old/new"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("")
    for change in found.changes:
        place = change.place
        word = "SLOWER" if change in found.regressions else "faster" if change in found.improvements else ""
        word = word if change.firm else "≈"
        table.add_row(place.part, place.model, place.share, str(place.batch), str(place.threads), place.scenario,
                      place.contender, place.baseline, f"{change.old:.2f}", f"{change.new:.2f}", f"{change.times:.3f}",
                      word)  # fmt: skip
    console = Console(highlight=False, stderr=False)
    console.width = max(console.width, WIDTH)
    console.print(table)
    for remark in found.remarks:
        console.print(remark, markup=False)
    worse = len(found.regressions)
    loose = len(found.changes) - len(found.firm)
    if loose:
        console.print(f"≈: {loose} ratios that need not be the same in another run, and are not judged (docs/bench.md)")
    console.print(
        f"{len(found.firm)} firm ratios are in both; {worse} slower and {len(found.improvements)} faster by more than "
        f"{100 * found.threshold:g} %; the widest change is {100 * (found.widest - 1):.1f} %"
    )
    if worse:
        raise SystemExit(WORSE)


def put_out(document: dict[str, Any], json_file: Path | None) -> None:
    """The last line of the output, and the file that was asked for."""
    from vcdeploy.files import write_atomically

    line = json.dumps(document, ensure_ascii=False)
    if json_file is not None:
        try:
            write_atomically(json_file, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())
        except OSError as error:
            click.echo(line)
            raise VcdeployError(f"could not write {json_file}: {error.strerror or error}") from error
        click.echo(f"wrote {json_file}", err=True)
    click.echo(line)


def _need_gpu() -> None:
    from vcdeploy import extras
    from vcdeploy.runtime import cuda

    if (fault := cuda.fault()) is not None:
        raise VcdeployError(
            f"--device cuda needs {extras.install_command('tensorrt')} and a GPU that CUDA can use; here: {fault}"
        )


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _listed(text: str, known: tuple[str, ...], option: str) -> list[str]:
    """The names of a list with commas, in the order they are known in."""
    wanted = _split(text)
    for each in wanted:
        if each not in known:
            raise VcdeployError(f"{option} has no {each!r}: choose from {', '.join(known)}, with commas in between")
    if not wanted:
        raise VcdeployError(f"{option} names nothing: choose from {', '.join(known)}")
    return [each for each in known if each in wanted]


def share_range(text: str) -> tuple[float, float]:
    """LO:HI, or one number for both."""
    low, _, high = text.partition(":")
    try:
        ends = float(low), float(high or low)
    except ValueError:
        ends = 0.0, 0.0
    if not 0 < ends[0] <= ends[1] <= 1 or text.endswith(":"):
        raise VcdeployError(
            f"--share {text!r} is no range of m: give LO:HI with 0 < LO <= HI <= 1, such as 0.2:0.6, or one number"
        )
    return ends


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the run as an error would: workers end and temporary files go."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print(console: Console, document: dict[str, Any], tables: list[Any]) -> None:
    model, settings, machine = document["model"], document["settings"], document["machine"]
    layers = f", {model['layers']} layers" if model["layers"] > 1 else ""
    console.print(
        f"{model['unit']}-{model['dim']}{layers}, {model['vocab']} symbols, {model['source']}; reads {settings['text']}"
    )
    caches = ", ".join(f"{name} {size}" for name, size in machine["caches"].items())
    console.print(f"{machine['processor']}, {machine['cores']} cores, {caches}; load before the run {machine['load']}")
    console.print(
        f"rounds: {settings['rounds']}, threads: {settings['threads']}; "
        f"times: how many times as fast as {document['baseline']} in the same round"
    )
    if "gpu" in machine:
        _print_gpu(console, machine["gpu"], document["contenders"])
    if machine["load"] and machine["load"] > BUSY:
        console.print("other programs were running when this began: the figures are noisier for it, p90 and p99 most")
    for table in tables:
        console.print()
        console.print(table)
    console.print()
    for contender in document["contenders"]:
        for scenario, reason in contender["not_measured"].items():
            console.print(f"{contender['name']}: {scenario} not measured: {reason}")
    for name, reason in document["left_out"].items():
        console.print(f"left out: {name}: {reason}", markup=False)


def _print_gpu(console: Console, gpu: dict[str, Any], contenders: list[dict[str, Any]]) -> None:
    console.print(
        f"{gpu['name']}, compute capability {gpu['capability']}, {gpu['multiprocessors']} multiprocessors, L2 "
        f"{gpu['l2'] / 2**20:.0f} MB, memory {gpu['bandwidth'] / 1e9:.0f} GB/s by its data sheet; CUDA {gpu['runtime']}"
    )
    before, after = gpu["clocks"], gpu["clocks_after"]
    if before and after:
        console.print(
            f"multiprocessor clock {before['clocks.sm']} MHz before the run, {after['clocks.sm']} after, at most "
            f"{before['clocks.max.sm']}; figures repeat best with a locked one: sudo nvidia-smi -lgc "
            f"{before['clocks.max.sm']}"
        )
    else:
        console.print("the GPU's clocks are not known: nvidia-smi is not here")
    for each in contenders:
        for name, found in each["scenarios"].items():
            if not found["settled"]:
                console.print(f"{each['name']}: {name} was not stable after warming up: its figures are noisy")
