"""`vcdeploy eval`: measure the quality of a model and where it spends its computation."""

import json
import math
import time
from typing import Any

import click
from rich.table import Table

from vcdeploy import extras, zoo
from vcdeploy.cli import terminal
from vcdeploy.cli.types import BATCH, THREADS, complete_model
from vcdeploy.errors import VcdeployError
from vcdeploy.runtime.backends import CHOICES
from vcdeploy.runtime.model import load
from vcdeploy.runtime.sources import find, holds_onnx
from vcdeploy.spec import PRECISIONS

SEGMENT = 100  # steps per call


@click.command("eval", short_help="Evaluate a model.")
@click.argument("model", default=zoo.DEFAULT, shell_complete=complete_model)
@click.argument("corpus", required=False)
@click.option(
    "--split",
    type=click.Choice(["train", "valid", "test"]),
    default="test",
    show_default=True,
    help="Split to evaluate.",
)
@click.option("--batch", type=BATCH, default=32, show_default=True,
              help="Parallel streams, each starting from a zero state; 1 reads the text as one stream.")  # fmt: skip
@click.option("--unknown", type=click.Choice(["error", "drop"]), default="error", show_default=True,
              help="Symbols unknown to the model: stop, or leave them out and print how many.")  # fmt: skip
@click.option("--backend", type=click.Choice(CHOICES),
              help="Backend that runs the model; auto takes the first one installed that can. "
              "[default: torch for a checkpoint without --precision, else auto]")  # fmt: skip
@click.option("--precision", type=click.Choice(PRECISIONS),
              help="Weight precision; only the native backend can change the file's own.")  # fmt: skip
@click.option("--threads", type=THREADS,
              help="CPU threads. [default: PyTorch's choice on the torch backend, else 1]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
def evaluate(
    model: str,
    corpus: str | None,
    split: str,
    batch: int,
    unknown: str,
    backend: str | None,
    precision: str | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Evaluate MODEL on CORPUS. [default: english, on the corpus MODEL was trained on]

    MODEL is a pretrained model (see `vcdeploy zoo`), an ONNX file, a checkpoint or the folder of a run. The name of a
    pretrained model takes precedence; for a file of that name, give ./english.

    Every symbol of the split is predicted once. The second table shows mean m by class of the symbol read: where the
    scheduler spends computation and where it saves. Every backend reads the text in the same pieces, so that their
    results compare.
    """
    for module in ("torch", "safetensors"):
        extras.require(module, for_="vcdeploy eval")
    import torch

    from vcdeploy.analysis.spending import by_class
    from vcdeploy.cli.spending import spending_table
    from vcdeploy.cli.train import load_corpus
    from vcdeploy.training.evaluate import evaluate_loaded
    from vcdeploy.training.streams import Streams

    file = find(model)
    if backend is None:
        backend = "auto" if precision or holds_onnx(file) else "torch"
    loaded = load(file, backend, precision, threads or (torch.get_num_threads() if backend == "torch" else 1))
    config = loaded.config
    source = corpus or config.get("corpus")
    if not isinstance(source, str):
        raise VcdeployError(f"{file} does not say what it was trained on: name a corpus, `vcdeploy eval MODEL CORPUS`")
    console = terminal.console(soft_wrap=True)
    data = load_corpus(source, terminal.console(stderr=True), vocab=loaded.vocab, unknown=unknown)
    streams = Streams(data.splits[split], batch, SEGMENT, exact=True, period=data.vocab.period)
    start = time.perf_counter()
    tally, m = evaluate_loaded(loaded, streams)
    seconds = time.perf_counter() - start
    summary = tally.summary(config["unit"], config["dim"], data.vocab)
    if not math.isfinite(summary["loss"]):
        raise VcdeployError(
            f"{file} predicts a symbol with a probability of 0 or NaN ({loaded.backend}, {loaded.precision}): "
            "try --precision f32; if that does not help, training diverged: use another checkpoint"
        )
    summary["tokens_per_second"] = streams.pairs / seconds
    classes = by_class(m, data.classes(split))
    dropped = data.unknown_dropped[split]
    if as_json:
        document = {"model": str(file), "backend": loaded.backend, "precision": loaded.precision,
                    "corpus": data.name, "split": split, "symbols": streams.pairs,
                    "unknown_dropped": dropped, **summary, "classes": classes}  # fmt: skip
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    console.print(f"{file} on {data.name}, {split}: {streams.pairs:,} symbols"
                  + (f", {dropped:,} unknown ones left out" if dropped else "")
                  + f"; {loaded.backend} backend, {loaded.precision}")  # fmt: skip
    console.print(_measures(summary, config))
    console.print(spending_table(classes, summary["m"]))


def _measures(summary: dict[str, float], config: dict[str, Any]) -> Table:
    symbol = {"text": "character", "bits": "bit", "music": "symbol"}[config["kind"]]
    names = {
        "bits": f"bits per {symbol}",
        "bits_per_character": "bits per character",
        "perplexity": "perplexity",
        "m": "mean m",
        "m_spread": "spread of m",
        "rnn_d": "rnn_d (size of the equivalent Elman unit, the paper's count)",
        "macs": "macs/step (exact)",
        "compute": "mean a²/D²",
        "tokens_per_second": "tokens/s",
    }
    table = Table(show_header=False, box=None)
    table.add_column()
    table.add_column(justify="right")
    for key, name in names.items():
        if key in summary:
            value = summary[key]
            table.add_row(name, f"{value:,.0f}" if value >= 100 else f"{value:.4f}")
    return table
