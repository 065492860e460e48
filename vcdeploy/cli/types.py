"""Types of options that several commands have, so that all of them accept the same values."""

import click

from vcdeploy.spec import MOST_THREADS

THREADS = click.IntRange(1, MOST_THREADS)
SEED = click.IntRange(0, 2**63 - 1)  # what every random number generator takes
BATCH = click.IntRange(1, 4096)  # sequences side by side; more only take memory
