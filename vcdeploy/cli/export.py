"""`vcdeploy export`: write a model as one ONNX file, checked against PyTorch first.

With --trt it writes a folder, with a TensorRT engine if there is a GPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vcdeploy.cli import terminal
from vcdeploy.cli.terminal import progress
from vcdeploy.cli.types import complete_model
from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.files import is_standard_output, write_atomically
from vcdeploy.spec import PRECISIONS, UNITS
from vcdeploy.zoo import DEFAULT

if TYPE_CHECKING:
    from vcdeploy.export.parity import Report
    from vcdeploy.export.pipeline import Job


@click.command(short_help="Write a model as an ONNX file.")
@click.argument("model", shell_complete=complete_model, default=DEFAULT)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
              help="File to write. [default: next to MODEL (a pretrained one: here), named after it]")  # fmt: skip
@click.option("--precision", type=click.Choice(PRECISIONS),
              help="How matrices are stored; runtimes compute in float32. [default: as in MODEL]")  # fmt: skip
@click.option("--bucketed", is_flag=True,
              help="Skip with If nodes over prefixes in steps of 128, for runtimes without our kernels.")  # fmt: skip
@click.option("--portable", is_flag=True,
              help="Write a Loop of standard ops, for runtimes without functions: OpenVINO, MNN.")  # fmt: skip
@click.option("--opset", type=click.IntRange(18), default=18, show_default=True,
              help="ONNX opset version; newer ones need newer runtimes.")  # fmt: skip
@click.option("--bundle", type=click.Path(path_type=Path, file_okay=False),
              help="Write a folder with model.onnx, manifest.json, samples.npz and report.json; add -o "
              "to also write the file.")  # fmt: skip
@click.option("--web", type=click.Path(path_type=Path, file_okay=False),
              help="Write a web page that runs the model in the browser; any static host serves it.")  # fmt: skip
@click.option("--trt", is_flag=True,
              help="Write a folder for TensorRT, with an engine if there is a GPU; else exit code 3.")  # fmt: skip
@click.option("--steps", metavar="MIN:OPT:MAX", help="With --trt: symbols per call. [default: 1:64:512]")
@click.option("--batch", metavar="MIN:OPT:MAX", help="With --trt: sequences per call. [default: 1:1:16]")
@click.option("--force", is_flag=True, help="Replace existing files.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
@click.pass_context
def export(
    ctx: click.Context,
    model: str,
    output: Path | None,
    precision: str | None,
    bucketed: bool,
    portable: bool,
    opset: int,
    bundle: Path | None,
    web: Path | None,
    trt: bool,
    steps: str | None,
    batch: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Export MODEL to one ONNX file that runs in ONNX Runtime as it is.

    MODEL is a checkpoint or the folder of a run; or, to convert it, a pretrained model (see `vcdeploy zoo`) or a file
    exported before. [default: english]

    The model first runs on the same tokens in PyTorch, in ONNX Runtime (with the function body and with our custom op),
    on the native kernels and in onnx's own evaluator. The file is written only if all differences are within rounding;
    otherwise the exit code is 1 and existing files stay as they were. A file that exists is replaced only with --force.

    With --web it writes a folder with the page of `vcdeploy serve`, the kernels compiled to WebAssembly, and the model.
    Export another model into the same folder to add it to the page. Try it with `python -m http.server -d DIR`.

    With --trt it writes a folder (named by --bundle): all of the above, plus the graph, the plugin and the engine for
    TensorRT. An engine is built on the machine that runs it. Without a GPU or TensorRT the exit code is 3, and the last
    line of the output is the command to finish there, with that folder as MODEL. Not run on a GPU yet.
    """
    to_stdout = output is not None and is_standard_output(output)  # then everything else goes to standard error
    console = terminal.console(stderr=to_stdout, soft_wrap=True)
    tensorrt = _TensorRt(console, steps, batch, as_json) if trt else None
    if web is not None and (trt or bucketed or portable):
        raise BadValue("--web runs our own kernels: leave out --trt, --bucketed and --portable")
    if tensorrt is None:
        for option, value in (("--steps", steps), ("--batch", batch)):
            if value is not None:
                raise BadValue(f"{option} is for a TensorRT engine: add --trt, or leave it out")
    elif output is not None:
        raise BadValue("--trt writes a folder: name it with --bundle, and leave out -o")
    elif tensorrt.is_bundle(Path(model)):
        tensorrt.check_settings(precision or "f32", bucketed, portable)
        ctx.exit(tensorrt.finish(Path(model), {}))
    from vcdeploy.export.bundle import write_bundle
    from vcdeploy.export.pipeline import Job
    from vcdeploy.export.web import check_runs, write_web

    with progress("export") as tell:
        job = Job.open(model, precision, opset, bucketed, portable, tell)
        if tensorrt is not None:
            tensorrt.check_settings(job.precision, bucketed, portable)
            bundle = bundle or job.default_path("-trt")
        elif output is None and bundle is None and web is None:
            output = job.default_path(".onnx")
        name = job.default_path("").name
        if web is not None:
            check_runs(job.source.config)
        for path in (output, bundle and bundle / "model.onnx", web and web / f"{name}.onnx"):
            if path is not None:
                job.check_place(path, force)
        report, about = job.report, job.about()
    if not as_json:
        console.print(_table(report))
        for line in report.left_out:
            console.print(f"not checked: {line}")
    written: list[Path] = []
    if report.passed:
        try:
            if bundle is not None:
                if tensorrt is not None:
                    tensorrt.write(bundle, job, about)
                else:
                    write_bundle(bundle, job.content, report, about)
                written.append(bundle)
            if web is not None:
                write_web(web, name, job.content, {**job.source.config, "precision": job.precision})
                written.append(web)
            if output is not None:
                write_atomically(output, job.content)
                written.append(output)
        except OSError as error:
            # The first path that is not in `written` is the one that failed.
            path = next(each for each in (bundle, web, output) if each is not None and each not in written)
            raise VcdeployError(f"could not write {path}: {error.strerror or error}") from error
    document = {**about, "bytes": len(job.content), "written": [str(path) for path in written], **report.to_json()}
    if as_json and (tensorrt is None or not report.passed):
        click.echo(json.dumps(document, ensure_ascii=False), err=to_stdout)
    if not report.passed:
        raise VcdeployError(_failure(report))
    if not as_json:
        if PRECISIONS[job.precision].levels and UNITS[about["unit"]].variable:
            console.print(
                f"note: without our custom op or kernels, {job.precision} is about ten times as slow as f16: its exact "
                "integer products are computed in double. For stock runtimes use --precision f16"
            )
        for path in written:
            console.print(
                f"wrote {path}: {about['unit']}-{about['dim']}, {job.precision}, {len(job.content) / 1e6:.1f} MB"
            )
    if tensorrt is not None:
        assert bundle is not None
        ctx.exit(tensorrt.finish(bundle, document))


class _TensorRt:
    """The --trt part; without --trt, vcdeploy.gpu is not imported."""

    def __init__(self, console: Console, steps: str | None, batch: str | None, as_json: bool) -> None:
        from vcdeploy.gpu import engine, tensorrt_bundle

        self._bundle, self._console, self._as_json = tensorrt_bundle, console, as_json
        self._steps = engine.read_range(steps, "--steps") if steps is not None else None
        self._batch = engine.read_range(batch, "--batch") if batch is not None else None
        self.is_bundle, self.check_settings = tensorrt_bundle.is_bundle, tensorrt_bundle.check_settings

    def write(self, folder: Path, job: Job, about: dict[str, Any]) -> None:
        from vcdeploy.gpu import engine

        self._bundle.write(
            folder, job.model, job.content, job.report, about, self._steps or engine.STEPS, self._batch or engine.BATCH
        )

    def finish(self, folder: Path, document: dict[str, Any]) -> int:
        """Build the engine, or print what is missing for it; return the exit code."""
        from vcdeploy.gpu.plan import rebuild_command

        try:
            outcome = self._bundle.finish(folder, lambda line: click.echo(line, err=True), self._steps, self._batch)
        except OSError as error:
            raise VcdeployError(f"could not write {error.filename or folder}: {error.strerror or error}") from error
        if self._as_json:
            click.echo(json.dumps({**document, "tensorrt": self._bundle.to_json(folder, outcome)}, ensure_ascii=False))
        elif outcome.missing:
            self._console.print("no engine was built here; missing:", *outcome.missing, sep="\n  ")
            self._console.print("to finish, on the machine with the GPU:")
            self._console.print(rebuild_command(folder))
        else:
            self._console.print(f"wrote {folder / 'model.plan'}: checked against {outcome.checked}")
        return self._bundle.UNFINISHED if outcome.missing else 0


def _table(report: Report) -> Table:
    """One row per comparison: the largest difference of each output, and its tolerance."""
    table = Table("largest difference / tolerance", "logits", "state", "compute (m)", "", box=None)
    runtime = ""
    for name, against, found, within in report.rows():
        if name != runtime:
            table.add_row(runtime := name)
        cells = [f"{each.largest:.0e} / {each.tolerance:.0e}" for each in found]
        table.add_row(f"  {against}", *cells, Text("ok", "green") if within else Text("TOO FAR", "red"))
    return table


def _failure(report: Report) -> str:
    worst = report.worst
    return (
        f"the exported model differs from PyTorch by more than rounding: {worst.output} in {worst.runtime} "
        f"against {worst.against} by {worst.largest:.2g}, tolerance {worst.tolerance:.2g}. Nothing was written. "
        "Try another --opset or another version of the runtime; if that does not help, please report a bug in vcdeploy"
    )
