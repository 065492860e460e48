"""`vcdeploy bench serve`: measure a server under load."""

from __future__ import annotations

from pathlib import Path

import click

from vcdeploy.cli.bench_options import command_line, ended_by_sigterm, json_option, put_out
from vcdeploy.cli.terminal import progress
from vcdeploy.cli.types import complete_model
from vcdeploy.errors import BadValue
from vcdeploy.extras import require
from vcdeploy.spec import PRECISIONS
from vcdeploy.zoo import DEFAULT


@click.command()
@click.argument("model", default=DEFAULT, shell_complete=complete_model)
@click.option("--precision", type=click.Choice(PRECISIONS), help="Weight precision.")
@click.option("--streams", default="1,16,128,1000", show_default=True, metavar="N,…",
              help="Numbers of streams at the same time.")  # fmt: skip
@click.option("--tokens", type=click.IntRange(1, 2**20), default=512, show_default=True, help="Tokens per stream.")
@click.option("--prompt", default="The ", show_default=True, help="Text that the streams continue.")
@click.option("--short", type=click.IntRange(0), default=0, show_default=True,
              help="Requests of one token, to see that memory stays flat.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Number of rounds.")
@json_option
def serve(
    model: str,
    precision: str | None,
    streams: str,
    tokens: int,
    prompt: str,
    short: int,
    rounds: int,
    json_file: Path | None,
) -> None:
    """Measure a server of MODEL under load, on this machine.

    Starts `vcdeploy serve` and clients in processes of their own: tokens/s, time to the first token, gaps between
    pieces, and CPU time, next to one session that generates the same tokens in a process. On few cores the clients
    take time from the server; compare CPU time then.
    """
    for module in ("starlette", "uvicorn"):
        require(module, for_="vcdeploy bench serve")
    from vcdeploy.bench import serving
    from vcdeploy.cli import terminal

    try:
        counts = tuple(int(each) for each in streams.split(","))
    except ValueError as error:
        raise BadValue(f"--streams takes numbers with commas between, not {streams!r}") from error
    if not all(1 <= each <= 4096 for each in counts):
        raise BadValue(f"--streams takes numbers from 1 to 4096, not {streams!r}")
    task = serving.Task(model, precision, counts, tokens, prompt, short)
    with ended_by_sigterm(), progress("bench serve") as tell:
        document = serving.bench(task, rounds, command_line(), tell)
    put_out(document, json_file, lambda: serving.show(document, terminal.console()))
