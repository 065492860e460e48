"""Progress bar of a corpus download; shown only if something is downloaded."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


@contextmanager
def download_bar(console: Console, name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a callback for vcdeploy.corpora.load: bytes so far, total bytes (None if the server does not say)."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
    task = None

    def progress(done: int, total: int | None) -> None:
        nonlocal task
        if task is None:
            bar.start()
            task = bar.add_task(f"fetching {name}", total=total)
        bar.update(task, completed=done, total=total)

    try:
        yield progress
    finally:
        if task is not None:
            bar.stop()
