"""`vcdeploy eval`: measure a trained model, and where it spends its computation."""

import json
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from vcdeploy import extras


@click.command("eval", short_help="Evaluate a model.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("corpus", required=False)
@click.option(
    "--split",
    type=click.Choice(["train", "valid", "test"]),
    default="test",
    show_default=True,
    help="Which split.",
)
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True,
              help="Parallel streams, each from a zero state; 1 reads the text in one piece.")  # fmt: skip
@click.option("--unknown", type=click.Choice(["error", "drop"]), default="error", show_default=True,
              help="Symbols the model never saw: stop, or leave them out and say how many.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1), help="CPU threads; by default PyTorch's choice.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
def evaluate(
    model: Path, corpus: str | None, split: str, batch: int, unknown: str, threads: int | None, as_json: bool
) -> None:
    """Evaluate MODEL (a run's folder or a checkpoint) on CORPUS. [default: the one it was trained on]

    Every symbol of the split is predicted once. Then the mean of m by class of the symbol read: where the
    scheduler spends computation, and where it saves.
    """
    for module in ("torch", "safetensors"):
        extras.require(module, for_="vcdeploy eval")
    import torch

    from vcdeploy.cli.train import load_corpus
    from vcdeploy.training import checkpoint
    from vcdeploy.training.evaluate import evaluate as measure
    from vcdeploy.training.streams import Streams

    if threads:
        torch.set_num_threads(threads)
    file = checkpoint.find(model)
    saved = checkpoint.read(file)
    config = saved.config
    console = Console(highlight=False, soft_wrap=True)
    data = load_corpus(corpus or config["corpus"], Console(stderr=True), vocab=saved.vocab, unknown=unknown)
    boundaries = data.boundaries(split) if config["unit"] == "crnn" else None
    streams = Streams(data.splits[split], batch, 100, boundaries=boundaries, exact=True, period=data.vocab.period)
    start = time.perf_counter()
    tally, m = measure(saved.build(), streams)
    seconds = time.perf_counter() - start
    summary = tally.summary(config["unit"], config["dim"], data.vocab)
    summary["tokens_per_second"] = streams.pairs / seconds
    shares = m.mean(-1)
    classes = {
        name: {"symbols": int(chosen[:-1].sum()), "m": float(shares[chosen[:-1]].mean())}
        for name, chosen in data.classes(split).items()
        if chosen[:-1].any()
    }
    dropped = data.unknown_dropped[split]
    if as_json:
        document = {"model": str(file), "corpus": data.name, "split": split, "symbols": streams.pairs,
                    "unknown_dropped": dropped, **summary, "classes": classes}  # fmt: skip
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    console.print(f"{file} on {data.name}, {split}: {streams.pairs:,} symbols"
                  + (f", {dropped:,} unknown ones left out" if dropped else ""))  # fmt: skip
    console.print(_measures(summary, config))
    console.print(_spending(classes, summary["m"]))


def _measures(summary: dict[str, float], config: dict[str, str]) -> Table:
    symbol = {"text": "character", "bits": "bit", "music": "symbol"}[config["kind"]]
    names = {
        "bits": f"bits per {symbol}",
        "bits_per_character": "bits per character",
        "perplexity": "perplexity",
        "m": "mean m",
        "m_spread": "spread of m",
        "rnn_d": "rnn_d (equivalent Elman units, the paper's count)",
        "macs": "macs a step (exact)",
        "compute": "mean a²/D²",
        "tokens_per_second": "symbols a second (PyTorch)",
    }
    table = Table(show_header=False, box=None)
    table.add_column()
    table.add_column(justify="right")
    for key, name in names.items():
        if key in summary:
            value = summary[key]
            table.add_row(name, f"{value:,.0f}" if value >= 100 else f"{value:.4f}")
    return table


def _spending(classes: dict[str, dict[str, float]], mean: float) -> Table:
    table = Table("reading", "symbols", "mean m", "of the mean", box=None, title="computation by class of symbol")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, row in classes.items():
        table.add_row(name, f"{row['symbols']:,}", f"{row['m']:.4f}", f"{row['m'] / mean:.2f}")
    return table
