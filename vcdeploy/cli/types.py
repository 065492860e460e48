"""Arguments and options that several commands have, so that all of them accept the same values."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from vcdeploy.spec import MOST_THREADS
from vcdeploy.zoo import names

THREADS = click.IntRange(1, MOST_THREADS)
SEED = click.IntRange(0, 2**63 - 1)  # what every random number generator takes
BATCH = click.IntRange(1, 4096)  # sequences side by side; more only take memory


def complete_model(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a MODEL: the name of a pretrained model, or a path."""
    pretrained = [CompletionItem(name, help="pretrained model") for name in names() if name.startswith(incomplete)]
    return [*pretrained, CompletionItem(incomplete, type="file")]
