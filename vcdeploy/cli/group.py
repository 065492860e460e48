"""A click group that imports each of its commands only when it is run."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    """Where a command lives, and its line in --help, so that --help imports no command."""

    target: str
    summary: str


class LazyGroup(click.Group):
    """A group whose commands come from a table of entries by name."""

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
