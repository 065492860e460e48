"""`vcdeploy gpu-check`: run every check that needs a GPU, and write a report to attach to an issue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from vcdeploy.cli import terminal
from vcdeploy.errors import BadValue, NoGpu, VcdeployError

if TYPE_CHECKING:
    from vcdeploy.bench.gpu_check import Step


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), default="gpu-check.md",
              show_default=True, help="Report file; all figures go to a .json file of the same name.")  # fmt: skip
@click.option("--quick", is_flag=True, help="One size and one m: a few minutes instead of about an hour.")
def gpu_check(output: Path, quick: bool) -> None:
    """Run every check that needs a GPU, and write a report.

    Builds the plugin and engines, checks every unit, precision and kernel path against PyTorch, captures CUDA graphs,
    runs compute-sanitizer if it is installed, and measures speed by m. A failed step does not stop the others, and the
    report is written after each step. The exit code is 0 only if nothing failed. Without a GPU it prints what it would
    do and what is missing, with exit code 3. Not run on a GPU yet.
    """
    from vcdeploy.bench import gpu_check as check
    from vcdeploy.files import write_atomically

    console = terminal.console(soft_wrap=True)
    figures = output.with_suffix(".json")
    if figures == output:
        raise BadValue(
            f"-o {output} is where the figures go: give the report another name, such as {output.with_suffix('.md')}"
        )
    if gaps := check.missing():
        click.echo("on a machine with a GPU this would:")
        for line in check.plan(quick):
            click.echo(f"  {line}")
        raise NoGpu("gpu-check can't run here; missing:\n  " + "\n  ".join(gaps))

    def write(report: dict[str, Any]) -> None:
        try:
            write_atomically(output, check.text(report).encode())
            write_atomically(figures, (json.dumps(report, indent=1) + "\n").encode())
        except OSError as error:
            raise VcdeployError(f"could not write {output}: {error.strerror or error}") from error

    def tell(step: Step, report: dict[str, Any]) -> None:
        state = Text(f"{step.state:8}", {"passed": "green", "failed": "red"}.get(step.state, "yellow"))
        console.print(state + f"{step.name}: {step.detail}")
        write(report)

    write(report := check.run(quick, tell))
    click.echo(f"wrote {output} and {figures}")
    if not report["passed"]:
        failed = sum(step["state"] == "failed" for step in report["steps"])
        raise VcdeployError(f"{failed} of {len(report['steps'])} steps failed: please attach {output} to an issue")
