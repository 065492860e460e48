"""`vcdeploy zoo`: list the pretrained models, or show the card of one."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import Any

import click

from vcdeploy import zoo as models
from vcdeploy.cli import terminal
from vcdeploy.cli.types import complete_model
from vcdeploy.errors import VcdeployError

WIDTH = 120  # columns of the list


@click.command()
@click.argument("name", required=False, shell_complete=complete_model)
@click.option("--json", "as_json", is_flag=True, help="Print the cards, or the card, as JSON.")
def zoo(name: str | None, as_json: bool) -> None:
    """List the pretrained models, or show the card of one.

    Commands that take a MODEL, and vcdeploy.load, accept their names.
    """
    if name is not None and name not in models.names():
        near = get_close_matches(name, models.names(), n=1)
        hint = f" did you mean {near[0]}?" if near else ""
        raise VcdeployError(f"no pretrained model {name!r}:{hint} choose from {', '.join(models.names())}")
    if as_json:
        shown: Any = models.card(name) if name else [models.card(each) for each in models.names()]
        click.echo(json.dumps(shown, indent=1, ensure_ascii=False))
    elif name:
        terminal.console(soft_wrap=True).print(_card(models.card(name)))
    else:
        console = terminal.console()
        console.width = max(console.width, WIDTH)  # a narrower terminal wraps lines, but no value is cut off
        console.print(_list([models.card(each) for each in models.names()]))
        console.print("\ntokens/s: generation, on the machine named in the card. `vcdeploy zoo NAME` shows a card.")


def _list(cards: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table("name", "unit", "trained on", box=None, header_style="bold", pad_edge=False)
    for column in ("MB", "test", "mean m", "rnn_d", "tokens/s"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("licence of the data", overflow="fold")
    for card in cards:
        measured = card["quality"]["file"]
        table.add_row(
            card["name"],
            _model(card),
            card["data"]["corpus"],
            f"{card['file']['bytes'] / 1e6:.1f}",
            _measure(card, measured),
            f"{measured['m']:.2f}",
            f"{measured['rnn_d']:.0f}",
            f"{card['speed']['tokens_per_second']:,.0f}",
            card["data"]["licence"],
        )
    return table


def _model(card: dict[str, Any]) -> str:
    model = card["model"]
    layers = f", {model['layers']} layers" if model["layers"] > 1 else ""
    return f"{model['unit'].upper()}-{model['dim']}{layers}, {model['precision']}"


def _measure(card: dict[str, Any], measured: dict[str, Any]) -> str:
    """Quality: perplexity for music, else bits."""
    if card["model"]["kind"] == "music":
        return f"perplexity {measured['perplexity']:.2f}"
    return f"{measured['bits']:.3f} bits"


def _card(card: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for title, lines in _rows(card).items():
        table.add_row(title, "\n".join(lines))
    return table


def _rows(card: dict[str, Any]) -> dict[str, list[str]]:
    model, data, training, quality, speed = (card[key] for key in ("model", "data", "training", "quality", "speed"))
    file, run = quality["file"], quality["run"]
    dearest = sorted(file["m_by_class"].items(), key=lambda row: -row[1])
    return {
        card["name"]: [
            f"{_model(card)}: {model['symbols']} symbols, {model['weights']:,} weights",
            f"licence of the weights: {card['licence']}",
        ],
        "file": [
            str(models.model_file(card["name"])),
            f"{card['file']['bytes']:,} bytes, sha256 {card['file']['sha256']}",
        ],
        "data": [
            f"{data['corpus']}: {data['title']}",
            f"{data['page']}; licence: {data['licence']}",
            f"split {data['split']}",
        ],
        "training": [
            training["command"],
            (
                f"{training['date'][:10]}, {training['step']:,} steps, {training['epoch']:.4g} epochs; "
                f"PyTorch {training['torch']}, {training['machine']}"
            ),
        ],
        "test": [
            f"{_measure(card, file)} per symbol, {file['symbols']:,} symbols: {quality['command']}",
            f"{_measure(card, run)} before the export ({run['backend']}, {run['precision']})",
        ],
        "computation": [
            (
                f"mean m {file['m']:.3f} ± {file['m_spread']:.3f}, rnn_d {file['rnn_d']:.0f}, "
                f"{file['macs']:,.0f} macs/step, mean a²/D² {file['compute']:.3f}"
            ),
            "m by class: " + ", ".join(f"{name} {m:.2f}" for name, m in dearest),
        ],
        "speed": [
            (
                f"{speed['tokens_per_second']:,.0f} tokens/s, generation; "
                f"{speed['times_the_baseline']:.1f} times the speed of {speed['baseline']} of its size in the same run"
            ),
            speed["command"],
            f"{speed['machine']}, threads: {speed['threads']}; {speed['date'][:10]}",
        ],
    }
