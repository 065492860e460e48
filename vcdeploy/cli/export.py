"""`vcdeploy export`: write a model as one ONNX file, checked against PyTorch before it gets its name.

With --trt a folder, and in it a TensorRT engine where there is a GPU.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from vcdeploy import extras, zoo
from vcdeploy.cli.model import ModelName
from vcdeploy.errors import VcdeployError
from vcdeploy.files import write_atomically

if TYPE_CHECKING:
    from vcdeploy.export.engine import Range
    from vcdeploy.export.parity import Report


@click.command(short_help="Write a model as an ONNX file.")
@click.argument("model", type=ModelName(), default=zoo.DEFAULT)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
              help="The file to write. [default: beside MODEL (here, if that ships), named after it]")  # fmt: skip
@click.option("--precision", type=click.Choice(["f32", "f16", "bf16", "int8"]),
              help="How matrices are stored; runtimes compute in float32. [default: as in MODEL]")  # fmt: skip
@click.option("--bucketed", is_flag=True,
              help="Skip by If nodes over prefixes in steps of 128, for runtimes without our kernels.")  # fmt: skip
@click.option("--opset", type=click.IntRange(18), default=18, show_default=True,
              help="Version of ONNX's standard ops; newer ones need newer runtimes.")  # fmt: skip
@click.option("--bundle", type=click.Path(path_type=Path, file_okay=False),
              help="Write a folder (too, with -o): model.onnx, manifest.json, samples.npz, report.json.")  # fmt: skip
@click.option("--trt", is_flag=True,
              help="Write a folder for TensorRT, with an engine where a GPU is; else exit code 3.")  # fmt: skip
@click.option("--steps", metavar="MIN:OPT:MAX", help="With --trt: symbols of a call. [default: 1:64:512]")
@click.option("--batch", metavar="MIN:OPT:MAX", help="With --trt: sequences of a call. [default: 1:1:16]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
@click.pass_context
def export(
    ctx: click.Context,
    model: str,
    output: Path | None,
    precision: str | None,
    bucketed: bool,
    opset: int,
    bundle: Path | None,
    trt: bool,
    steps: str | None,
    batch: str | None,
    as_json: bool,
) -> None:
    """Write MODEL as one ONNX file, which runs in any stock runtime.

    MODEL is a checkpoint or a run's folder; or one that ships (vcdeploy zoo lists them) or a file of this command, to
    have it in another form. [default: english]

    The model is first run in PyTorch, in ONNX Runtime (with the function body and with our custom op), on the native
    kernels and in onnx's own evaluator, on the same tokens. Only if every difference is one of rounding is the file
    written; otherwise the exit code is 1, and what was there before stays.

    With --trt a folder is written (--bundle names it): all of the above, and the graph, the plugin and the engine for
    TensorRT. An engine is made on the machine that runs it. Without a GPU or TensorRT the exit code is 3, and the last
    line is the command that finishes there: MODEL is then that folder. Not run on a GPU yet.
    """
    from vcdeploy.export import tensorrt_bundle

    console = Console(highlight=False, soft_wrap=True)
    ranges = _ranges(trt, steps, batch)
    if trt:
        if output is not None:
            raise VcdeployError("--trt writes a folder: name it with --bundle, and leave out -o")
        if tensorrt_bundle.is_bundle(Path(model)):
            tensorrt_bundle.check_settings(precision or "f32", bucketed)
            ctx.exit(_finish(Path(model), console, ranges, {} if as_json else None))
    for module in ("torch", "safetensors"):
        extras.require(module, for_="vcdeploy export")
    from vcdeploy.export import engine
    from vcdeploy.export.bundle import write_bundle
    from vcdeploy.export.graph import build
    from vcdeploy.export.parity import check_export
    from vcdeploy.runtime import loading

    source = loading.find(model)
    saved = loading.open_source(model).checkpoint
    stored = saved.config.get("precision", "f32")
    precision = precision or stored
    if trt:
        tensorrt_bundle.check_settings(precision, bucketed)
    if output is None and bundle is None:
        form = "".join(
            f"-{part}" for part in (precision if precision != stored else "", bucketed and "bucketed") if part
        )
        folder = Path() if model in zoo.names() else source.parent
        if trt:
            bundle = folder / f"{source.stem}{form}-trt"
        else:
            output = folder / f"{source.stem}{form}.onnx"
    for path in (output, bundle and bundle / "model.onnx"):
        if path is not None and path.exists() and path.samefile(source):
            raise VcdeployError(f"{path} is the model itself: name another place with -o or --bundle")
    exported = build(saved, precision=precision, opset=opset, bucketed=bucketed)
    content = exported.SerializeToString(deterministic=True)
    report = check_export(exported, content, saved)
    if not as_json:
        console.print(_table(report))
        for line in report.left_out:
            console.print(f"not checked: {line}")
    config = saved.config
    about = {
        "unit": config["unit"], "dim": config["dim"], "layers": config["layers"], "precision": precision,
        "bucketed": bucketed, "opset": opset,
        "checkpoint": {"name": source.name, "sha256": hashlib.sha256(source.read_bytes()).hexdigest()},
    }  # fmt: skip
    written: list[Path] = []
    if report.passed:
        try:
            if bundle is not None:
                if trt:
                    tensorrt_bundle.write(
                        bundle, exported, content, report, about, ranges[0] or engine.STEPS, ranges[1] or engine.BATCH
                    )
                else:
                    write_bundle(bundle, content, report, about)
                written.append(bundle)
            if output is not None:
                write_atomically(output, content)
                written.append(output)
        except OSError as error:
            # What has been written is noted: the path that failed is the first that is not.
            path = next(each for each in (bundle, output) if each is not None and each not in written)
            raise VcdeployError(f"could not write {path}: {error.strerror or error}") from error
    document = {**about, "bytes": len(content), "written": [str(path) for path in written], **report.to_json()}
    if as_json and not (trt and report.passed):
        click.echo(json.dumps(document, ensure_ascii=False))
    if not report.passed:
        raise VcdeployError(_failure(report))
    if not as_json:
        what = f"{config['unit']}-{config['dim']}, {precision}, {len(content) / 1e6:.1f} MB"
        for path in written:
            console.print(f"wrote {path}: {what}")
    if trt:
        assert bundle is not None
        ctx.exit(_finish(bundle, console, ranges, document if as_json else None))


def _ranges(trt: bool, steps: str | None, batch: str | None) -> tuple[Range | None, Range | None]:
    """Of --steps and --batch, where they were given."""
    if not trt:
        for option, value in (("--steps", steps), ("--batch", batch)):
            if value is not None:
                raise VcdeployError(f"{option} is for a TensorRT engine: add --trt, or leave it out")
        return None, None
    from vcdeploy.export.engine import read_range

    return steps and read_range(steps, "--steps"), batch and read_range(batch, "--batch")


def _finish(
    folder: Path, console: Console, ranges: tuple[Range | None, Range | None], document: dict[str, Any] | None
) -> int:
    """Make the engine of a bundle, or say what that takes; the exit code. document: where JSON is wanted."""
    from vcdeploy.export import tensorrt_bundle
    from vcdeploy.runtime.plan import rebuild_command

    def tell(line: str) -> None:
        click.echo(line, err=True)

    try:
        outcome = tensorrt_bundle.finish(folder, tell, *ranges)
    except OSError as error:
        raise VcdeployError(f"could not write {error.filename or folder}: {error.strerror or error}") from error
    if document is not None:
        trt = tensorrt_bundle.to_json(folder, outcome)
        click.echo(json.dumps({**document, "tensorrt": trt}, ensure_ascii=False))
    elif outcome.missing:
        console.print("no engine was built here; missing:", *outcome.missing, sep="\n  ", markup=False)
        console.print("to finish, on the machine with the GPU:")
        console.print(rebuild_command(folder), markup=False)
    else:
        console.print(f"wrote {folder / 'model.plan'}: checked against {outcome.checked}", markup=False)
    return tensorrt_bundle.UNFINISHED if outcome.missing else 0


def _table(report: Report) -> Table:
    """A row for each comparison: the largest difference of each output, and the most that rounding explains."""
    table = Table("largest difference / tolerance", "logits", "state", "compute (m)", "", box=None)
    runtime, rows = "", dict[tuple[str, str], list[Any]]()
    for each in report.differences:
        rows.setdefault((each.runtime, each.against), []).append(each)
    for (name, against), found in rows.items():
        if name != runtime:
            table.add_row(runtime := name)
        within = all(each.within for each in found)
        cells = [f"{each.largest:.0e} / {each.tolerance:.0e}" for each in found]
        table.add_row(f"  {against}", *cells, "[green]ok[/]" if within else "[red]TOO FAR[/]")
    return table


def _failure(report: Report) -> str:
    worst = next(each for each in report.differences if not each.within)
    return (
        f"the exported model differs from PyTorch by more than rounding: {worst.output} in {worst.runtime} "
        f"against {worst.against} by {worst.largest:.2g}, tolerance {worst.tolerance:.2g}. Nothing was written. "
        "Try another --opset or another version of the runtime; if it stays, please report it as a fault of vcdeploy"
    )
