"""`vcdeploy bench run`: measure a model against dense models of its size, in one interleaved run."""

from __future__ import annotations

from pathlib import Path

import click

from vcdeploy import zoo
from vcdeploy.bench.defaults import DIM, M_RANGE, QUICK_ROUNDS, ROUNDS, SCENARIOS, UNIT
from vcdeploy.cli.bench_options import (
    WIDTH,
    command_line,
    compare_option,
    ended_by_sigterm,
    json_option,
    listed,
    m_range,
    print_comparison,
    put_out,
    read_old,
    split,
    threshold_option,
)
from vcdeploy.cli.terminal import progress
from vcdeploy.cli.types import BATCH, SEED, THREADS, complete_model
from vcdeploy.errors import BadValue
from vcdeploy.spec import MOST_DIMENSIONS, PRECISIONS, VARIABLE_UNITS

LOW, HIGH = M_RANGE


@click.command()
@click.argument("model", required=False, shell_complete=complete_model)
@click.option("--unit", type=click.Choice(VARIABLE_UNITS), help=f"Unit of a synthetic model. [default: {UNIT}]")
@click.option(
    "--dim", type=click.IntRange(2, MOST_DIMENSIONS), help=f"State size of a synthetic model. [default: {DIM}]"
)
@click.option("--m", metavar="LO:HI",
              help=f"m of a synthetic model, spread over the symbols, or one number. [default: {LOW}:{HIGH}]",
)  # fmt: skip
@click.option("--text", type=click.Path(path_type=Path, dir_okay=False),
              help="With MODEL: text file to read. [default: self-generated text]")  # fmt: skip
@click.option("--scenario", metavar="NAMES", default=",".join(SCENARIOS), show_default=True,
              help="Scenarios to measure, separated by commas.")  # fmt: skip
@click.option("--steps", type=click.IntRange(1), default=100, show_default=True, help="Symbols per sequence.")
@click.option("--batch", type=BATCH, default=1, show_default=True,
              help="Batch size of step and sequence.")  # fmt: skip
@click.option("--engines", metavar="NAMES",
              help="Only engines with these names or prefixes, and the baseline. [default: all]")  # fmt: skip
@click.option("--precision", metavar="NAMES", default=",".join(PRECISIONS), show_default=True,
              help="Precisions of the native engines.")  # fmt: skip
@click.option("--baseline", metavar="NAME",
              help="Baseline of the ratios. [default: the dense unit in ONNX Runtime, else PyTorch]")  # fmt: skip
@click.option("--threads", type=THREADS, default=1, show_default=True, help="CPU threads per engine.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True,
              help="Device to measure on; cuda needs a GPU and has other engines.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), help=f"Rounds. [default: {ROUNDS}; with --quick {QUICK_ROUNDS}]")
@click.option("--quick", is_flag=True, help="Fewer and shorter rounds: under a minute, and noisier.")
@click.option("--seed", type=SEED, default=0, show_default=True,
              help="Seed of weights, symbols and samples.")  # fmt: skip
@json_option
@compare_option
@threshold_option
def run(
    model: str | None,
    unit: str | None,
    dim: int | None,
    m: str | None,
    text: Path | None,
    scenario: str,
    steps: int,
    batch: int,
    engines: str | None,
    precision: str,
    baseline: str | None,
    threads: int,
    device: str,
    rounds: int | None,
    quick: bool,
    seed: int,
    json_file: Path | None,
    compare: Path | None,
    threshold: float | None,
) -> None:
    """Measure the speed of MODEL against dense models of its size.

    MODEL is a pretrained model (see `vcdeploy zoo`), an ONNX file, a checkpoint or the folder of a run. The name of a
    pretrained model takes precedence; for a file of that name, give ./english. [default: english] With --unit, --dim or
    --m instead of MODEL, the model is synthetic: random weights and a known m. Every engine runs a complete language
    model; besides our own there are ONNX Runtime, PyTorch and, if installed, OpenVINO and JAX.

    Each engine runs in its own process. In each round every engine runs each scenario once, one at a time. A ratio is
    taken within a round; its median over the rounds is shown.

    With --device cuda: TensorRT with our plugin against cuDNN (in PyTorch), ONNX Runtime and TensorRT with dense units.
    It reports wall time and, in the column GPU, the time between two CUDA events. Not run on a GPU yet.
    """
    from vcdeploy.bench import report
    from vcdeploy.bench.run import bench as measure
    from vcdeploy.bench.run import need_gpu
    from vcdeploy.cli import terminal

    if model is not None and model.endswith(".json"):
        raise BadValue(
            f"{model} is the JSON of a run, not a model: compare it with `vcdeploy bench compare OLD.json {model}`"
        )
    old = read_old(compare, threshold)
    if device == "cuda":
        need_gpu()
    scenarios = listed(scenario, tuple(SCENARIOS), "--scenario")
    precisions = listed(precision, tuple(PRECISIONS), "--precision")
    synthetic = [option for option, value in {"--unit": unit, "--dim": dim, "--m": m}.items() if value is not None]
    if model is not None and synthetic:
        raise BadValue(f"{synthetic[0]} is for a synthetic model, and {model} is given: leave one out")
    if text is not None and synthetic:
        raise BadValue(f"--text is for a trained MODEL, and {synthetic[0]} asks for a synthetic one: leave one out")
    if not synthetic:
        model = model or zoo.DEFAULT
    with ended_by_sigterm(), progress("bench") as tell:
        document = measure(
            model, unit=unit or UNIT, dim=dim or DIM, m_range=m_range(m) if m else M_RANGE, text=text,
            scenarios=scenarios, steps=steps, batch=batch, engines=split(engines), precisions=precisions,
            baseline=baseline, threads=threads, device=device, quick=quick, rounds=rounds, seed=seed,
            command=command_line(), tell=tell,
        )  # fmt: skip
    console = terminal.console()
    console.width = max(console.width, WIDTH)  # a narrower terminal wraps lines, but no value is cut off
    put_out(document, json_file, lambda: report.show(document, console))
    print_comparison(old, document, threshold)
