"""`vcdeploy export`: write a checkpoint as one ONNX file, checked against PyTorch before it gets its name."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from vcdeploy import extras
from vcdeploy.errors import VcdeployError
from vcdeploy.files import write_atomically

if TYPE_CHECKING:
    from vcdeploy.export.parity import Report


@click.command(short_help="Write a checkpoint as an ONNX file.")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
              help="The file to write. [default: beside the checkpoint, named after it and the form]")  # fmt: skip
@click.option("--precision", type=click.Choice(["f32", "f16", "bf16", "int8"]), default="f32", show_default=True,
              help="How matrices are stored; runtimes still compute in float32.")  # fmt: skip
@click.option("--bucketed", is_flag=True,
              help="Skip by If nodes over prefixes in steps of 128, for runtimes without our kernels.")  # fmt: skip
@click.option("--opset", type=click.IntRange(18), default=18, show_default=True,
              help="Version of ONNX's standard ops; newer ones need newer runtimes.")  # fmt: skip
@click.option("--bundle", type=click.Path(path_type=Path, file_okay=False),
              help="Write a folder (too, with -o): model.onnx, manifest.json, samples.npz, report.json.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def export(
    checkpoint: Path,
    output: Path | None,
    precision: str,
    bucketed: bool,
    opset: int,
    bundle: Path | None,
    as_json: bool,
) -> None:
    """Write CHECKPOINT (a run's folder or a file) as one ONNX file, which runs in any stock runtime.

    The model is first run in PyTorch, in ONNX Runtime (with the function body and with our custom op), on the native
    kernels and in onnx's own evaluator, on the same tokens. Only if every difference is one of rounding is the file
    written; otherwise the exit code is 1, and what was there before stays.
    """
    for module in ("torch", "safetensors"):
        extras.require(module, for_="vcdeploy export")
    from vcdeploy.export.bundle import write_bundle
    from vcdeploy.export.graph import build
    from vcdeploy.export.parity import check_export
    from vcdeploy.training import checkpoint as checkpoints

    source = checkpoints.find(checkpoint)
    saved = checkpoints.read(source)
    if output is None and bundle is None:
        form = "".join(
            f"-{part}" for part in (precision if precision != "f32" else "", bucketed and "bucketed") if part
        )
        output = source.with_name(f"{source.stem}{form}.onnx")
    model = build(saved, precision=precision, opset=opset, bucketed=bucketed)
    content = model.SerializeToString(deterministic=True)
    report = check_export(model, content, saved)
    console = Console(highlight=False, soft_wrap=True)
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
                write_bundle(bundle, content, report, about)
                written.append(bundle)
            if output is not None:
                write_atomically(output, content)
                written.append(output)
        except OSError as error:
            # What has been written is noted: the path that failed is the first that is not.
            path = next(each for each in (bundle, output) if each is not None and each not in written)
            raise VcdeployError(f"could not write {path}: {error.strerror or error}") from error
    if as_json:
        paths = [str(path) for path in written]
        document = {**about, "bytes": len(content), "written": paths, **report.to_json()}
        click.echo(json.dumps(document, ensure_ascii=False))
    if not report.passed:
        raise VcdeployError(_failure(report))
    if not as_json:
        what = f"{config['unit']}-{config['dim']}, {precision}, {len(content) / 1e6:.1f} MB"
        for path in written:
            console.print(f"wrote {path}: {what}")


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
