"""The MODEL argument: the name of a pretrained model or a path, as typed."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from vcdeploy import zoo


class ModelName(click.Path):
    """A string for vcdeploy.load, where english and ./english differ; completes pretrained models, then files."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        named = [CompletionItem(name, help="pretrained model") for name in zoo.names() if name.startswith(incomplete)]
        return named + super().shell_complete(ctx, param, incomplete)
