"""`vcdeploy corpora`: list the named corpora and whether they are installed."""

import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from vcdeploy.cli import terminal
from vcdeploy.corpora.catalogue import CATALOGUE, Entry, data_folder, whereabouts


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON, with sources and splits.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to look in.  [default: $VCDEPLOY_DATA, else the user's cache]",
)
def corpora(as_json: bool, data_dir: Path | None) -> None:
    """List the named corpora and whether they are installed.

    Commands that take a corpus also take the path of a text file of your own, or of a folder of them.
    """
    folder = data_folder(data_dir)
    if as_json:
        click.echo(json.dumps([_row(entry, folder) for entry in CATALOGUE.values()], indent=2))
        return
    table = Table("name", "kind", box=None, header_style="bold", pad_edge=False)
    table.add_column("size", justify="right")
    table.add_column("symbols", justify="right")
    table.add_column("licence", overflow="fold")
    table.add_column("location", overflow="fold")
    for entry in CATALOGUE.values():
        row = _row(entry, folder)
        size, symbols = (f"{n:,}" if n else "varies" for n in (entry.size, entry.symbols))
        table.add_row(entry.name, entry.kind, size, symbols, entry.licence, row["path"] or row["otherwise"])
    console = terminal.console(highlight=True)
    console.print(table)
    console.print("\nSizes are in characters, or in symbols for music. --kind bits reads text as bits.")
    console.print(f"Data folder: {folder}", soft_wrap=True)


def _row(entry: Entry, folder: Path) -> dict[str, Any]:
    path = whereabouts(entry, folder)
    return {
        "name": entry.name,
        "kind": entry.kind,
        "title": entry.title,
        "size": entry.size,
        "symbols": entry.symbols,
        "licence": entry.licence,
        "page": entry.page,
        "split": entry.split,
        "path": str(path) if path else None,
        "otherwise": entry.coming,
    }
