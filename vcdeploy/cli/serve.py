"""`vcdeploy serve`: an HTTP server for models."""

from __future__ import annotations

import ipaddress
import os
from functools import partial
from pathlib import Path

import click

from vcdeploy.cli.types import THREADS, complete_model
from vcdeploy.errors import BadValue
from vcdeploy.extras import require
from vcdeploy.runtime.backends import CHOICES
from vcdeploy.spec import PRECISIONS
from vcdeploy.zoo import names

TOKEN, STATE_KEY = "VCDEPLOY_TOKEN", "VCDEPLOY_STATE_KEY"  # environment variables


@click.command(short_help="Serve models over HTTP.")
@click.argument("models", nargs=-1, metavar="[MODEL]...", shell_complete=complete_model)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 for a free one.",
)
@click.option("--token-file", type=click.Path(path_type=Path, dir_okay=False),
              help=f"File with the token that clients must send. [default: the variable {TOKEN}]")  # fmt: skip
@click.option("--cors", multiple=True, metavar="ORIGIN",
              help="Web site whose pages may call the API, such as https://example.org; * for all.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True,
              help="Instances per model, each on a CPU core; they share the weights.")  # fmt: skip
@click.option("--threads", type=THREADS, default=1, show_default=True, help="CPU threads per instance.")
@click.option("--backend", type=click.Choice(CHOICES), default="auto", show_default=True,
              help="Backend that runs the models.")  # fmt: skip
@click.option("--precision", type=click.Choice(PRECISIONS), help="Weight precision, on the native backend.")
@click.option("--lazy", is_flag=True, help="Load each model on its first use instead of at start.")
@click.option("--streams", type=click.IntRange(1, 4096), default=128, show_default=True,
              help="Streams that generate at the same time, per model and instance.")  # fmt: skip
@click.option("--queue", type=click.IntRange(0, 65536), default=1024, show_default=True,
              help="Streams that wait for a place, per model; more are refused with 429.")  # fmt: skip
@click.option("--max-tokens", type=click.IntRange(1, 2**20), default=4096, show_default=True,
              help="Symbols that a request may generate.")  # fmt: skip
@click.option("--max-prompt", type=click.IntRange(1, 2**24), default=65536, show_default=True,
              help="Symbols of a prompt.")  # fmt: skip
@click.option("--max-body", type=click.IntRange(1024, 2**30), default=2**20, show_default=True,
              help="Bytes of a request.")  # fmt: skip
@click.option("--max-connections", type=click.IntRange(1, 65536), default=2048, show_default=True,
              help="Connections at the same time; more are refused with 503.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=120.0, show_default=True,
              help="Seconds for a request; it then ends with what it has.")  # fmt: skip
@click.option("--patience", type=click.FloatRange(0, min_open=True), default=15.0, show_default=True,
              help="Seconds a client may take to send a request.")  # fmt: skip
@click.option("--drain", type=click.FloatRange(1), default=30.0, show_default=True,
              help="Seconds that running requests may take after SIGTERM.")  # fmt: skip
@click.option("--no-metrics", is_flag=True, help="Do not answer /metrics.")
def serve(
    models: tuple[str, ...],
    host: str,
    port: int,
    token_file: Path | None,
    cors: tuple[str, ...],
    workers: int,
    threads: int,
    backend: str,
    precision: str | None,
    lazy: bool,
    streams: int,
    queue: int,
    max_tokens: int,
    max_prompt: int,
    max_body: int,
    max_connections: int,
    timeout: float,
    patience: float,
    drain: float,
    no_metrics: bool,
) -> None:
    """Serve MODELs over HTTP: completions, tunes, inference, and a web page. [default: the pretrained models]

    A MODEL is a pretrained model (see `vcdeploy zoo`), an ONNX file, a checkpoint or the folder of a run; NAME=MODEL
    serves it under another name. docs/serving.md describes the API. On SIGTERM the server finishes what runs.
    """
    for module in ("starlette", "uvicorn"):
        require(module, for_="vcdeploy serve")
    from vcdeploy.serving.catalogue import Catalogue
    from vcdeploy.serving.engine import Limits
    from vcdeploy.serving.http.app import app
    from vcdeploy.serving.http.process import run
    from vcdeploy.serving.http.settings import Settings

    token, local = _token(token_file), _is_loopback(host)
    if token is None and not local:
        click.secho(
            f"warning: {host} can be reached from other machines, and anybody there can use this server: set a token "
            f"with --token-file or {TOKEN}", fg="red", bold=True, err=True,
        )  # fmt: skip
    settings = Settings(
        token=token,
        origins=cors,
        hosts=("localhost", "127.0.0.1", "[::1]", host) if local else (),
        most_tokens=max_tokens,
        most_prompt=max_prompt,
        most_body=max_body,
        timeout=timeout,
        patience=patience,
        metrics=not no_metrics,
        state_key=os.environ.get(STATE_KEY, "").encode(),
    )
    catalogue = partial(
        Catalogue, list(models or names()), backend=backend, precision=precision, threads=threads, workers=workers,
        limits=Limits(streams, queue),
    )  # fmt: skip
    made = app(catalogue, settings, load_now=not lazy)
    run(made, host, port, max_connections, drain, lambda url: click.echo(f"{url}  (Ctrl-C stops it)", err=True))


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN) or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadValue(f"cannot read the token in {file}: {error}") from error
    if not token:
        raise BadValue(f"{file} is empty: write a token into it")
    return token


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
