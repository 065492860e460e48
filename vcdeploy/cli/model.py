"""The argument MODEL of a command: a name of the zoo or a path, as it was typed."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from vcdeploy import zoo


class ModelName(click.Path):
    """A string for vcdeploy.load, in which english and ./english differ. The Tab key offers the zoo, then files."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        named = [CompletionItem(name, help="of the zoo") for name in zoo.names() if name.startswith(incomplete)]
        return named + super().shell_complete(ctx, param, incomplete)
