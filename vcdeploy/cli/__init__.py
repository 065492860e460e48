"""The command `vcdeploy`: a table of commands, each imported only when it is run."""

from __future__ import annotations

import errno
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import IO, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from vcdeploy import __version__
from vcdeploy.cli.terminal import guarded_output
from vcdeploy.errors import VcdeployError
from vcdeploy.extras import EXTRAS, missing


class Entry(NamedTuple):
    """Where a command lives, and its line in --help, so that --help imports no command."""

    target: str
    summary: str


COMMANDS = {
    "train": Entry("vcdeploy.cli.train:train", "Train a model on CORPUS."),
    "eval": Entry("vcdeploy.cli.eval:evaluate", "Evaluate MODEL on CORPUS."),
    "export": Entry("vcdeploy.cli.export:export", "Export MODEL to one ONNX file that runs in ONNX Runtime as it is."),
    "sample": Entry("vcdeploy.cli.sample:sample", "Generate text or tunes with MODEL."),
    "trace": Entry("vcdeploy.cli.trace:trace", "Show where MODEL spends its computation, symbol by symbol."),
    "serve": Entry("vcdeploy.cli.serve:serve", "Serve MODELs over HTTP."),
    "bench": Entry("vcdeploy.cli.bench:bench", "Measure the speed of MODEL against dense models of its size."),
    "zoo": Entry("vcdeploy.cli.zoo:zoo", "List the pretrained models, or show the card of one."),
    "plugin": Entry("vcdeploy.cli.plugin:plugin", "Build the TensorRT plugin, or print its path."),
    "gpu-check": Entry("vcdeploy.cli.gpu_check:gpu_check", "Run every check that needs a GPU, and write a report."),
    "corpora": Entry("vcdeploy.cli.corpora:corpora", "List the named corpora and whether they are installed."),
    "doctor": Entry("vcdeploy.cli.doctor:doctor", "Show what works on this machine and how to fix what does not."),
}

INTERRUPTED = 130  # exit status of a program stopped by Ctrl-C: 128 + SIGINT


class Failure(click.ClickException):
    """A VcdeployError as the command line shows it."""

    def __init__(self, message: str, exit_code: int = VcdeployError.exit_code) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it for the class, and reads it here

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {self.message}", file=file, err=file is None)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show a warning as a message, without the line of code that gave it."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


class Commands(click.Group):
    """A group whose commands come from a table of entries by name; shows errors and warnings as messages."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **more: Any) -> None:
        super().__init__(*args, **more)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.entries:
            return None
        module, _, function = self.entries[cmd_name].target.partition(":")
        command: click.Command = getattr(import_module(module), function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.entries.items()])

    def complete_commands(self, incomplete: str) -> list[CompletionItem]:
        return [
            CompletionItem(name, help=each.summary)
            for name, each in self.entries.items()
            if name.startswith(incomplete)
        ]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return self.complete_commands(incomplete) + click.Command.shell_complete(self, ctx, incomplete)

    def main(self, *args: Any, **more: Any) -> Any:
        with guarded_output(), plain_warnings():
            try:
                return super().main(*args, **more)
            except OSError as error:
                # A file or stream that no command expects to fail; a closed pipe click has dealt with.
                if not more.get("standalone_mode", True) or error.errno is None or error.errno == errno.EPIPE:
                    raise
                place = f"{error.filename}: " if error.filename else ""
                Failure(f"{place}{error.strerror}").show()
                sys.exit(Failure.exit_code)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.entries and not ctx.resilient_parsing:
            near = get_close_matches(name, self.entries, n=1)
            ctx.fail(f"there is no command {name!r}" + (f"; did you mean {near[0]!r}?" if near else "."))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except VcdeployError as error:
            raise Failure(str(error), error.exit_code) from error
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            if module not in EXTRAS:
                raise
            absent = missing(module, f"vcdeploy {ctx.invoked_subcommand}")
            raise Failure(str(absent), absent.exit_code) from error
        except (MemoryError, RuntimeError) as error:
            # PyTorch raises a RuntimeError if memory runs out.
            if not isinstance(error, MemoryError) and not re.search("allocate memory|out of memory", str(error)):
                raise
            raise Failure("there is not enough memory for this: use a smaller model, batch or text") from error
        except KeyboardInterrupt:
            click.echo(err=True)
            ctx.exit(INTERRUPTED)


EPILOG = """\
\b
To complete commands and options with the Tab key:
  bash  eval "$(_VCDEPLOY_COMPLETE=bash_source vcdeploy)"
  zsh   eval "$(_VCDEPLOY_COMPLETE=zsh_source vcdeploy)"
  fish  _VCDEPLOY_COMPLETE=fish_source vcdeploy | source
"""


@click.group(
    cls=Commands,
    entries=COMMANDS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="vcdeploy")
def main() -> None:
    """Recurrent models that spend only the computation each step needs."""
