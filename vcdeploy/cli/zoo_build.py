"""`python -m vcdeploy.cli.zoo_build NAME RUN`: build a zoo entry from a run of `vcdeploy train`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from vcdeploy.bench.zoo_entry import build, timed_again
from vcdeploy.errors import VcdeployError
from vcdeploy.spec import PRECISIONS


@click.command()
@click.argument("name")
@click.argument("run", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--precision", type=click.Choice(PRECISIONS), default="f16", show_default=True,
              help="How the file stores matrices.")  # fmt: skip
def main(name: str, run: Path | None, precision: str) -> None:
    """Build the zoo entry NAME from RUN, the folder of a finished run; without RUN, time NAME again.

    Timing needs an otherwise idle machine. The test text must be installed (see `vcdeploy corpora`).
    """
    try:
        card = build(name, run, precision) if run else timed_again(name)
    except VcdeployError as error:
        raise click.ClickException(str(error)) from error
    click.echo(json.dumps(card, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
