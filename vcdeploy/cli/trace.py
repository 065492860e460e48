"""`vcdeploy trace`: show m for each symbol of a text, in the terminal, as a picture or as a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from vcdeploy import analysis, zoo
from vcdeploy.analysis import Trace, Word, writers
from vcdeploy.analysis.layout import lines
from vcdeploy.analysis.spending import RISE
from vcdeploy.analysis.traces import blocks, changes_of
from vcdeploy.cli import terminal
from vcdeploy.cli.io import read_given, write_file
from vcdeploy.cli.spending import spending_table
from vcdeploy.cli.strip import compute_stream
from vcdeploy.cli.types import THREADS, complete_model
from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.runtime.backends import CHOICES
from vcdeploy.runtime.model import Model, load
from vcdeploy.spec import PRECISIONS

SHADES = " ░▒▓█"  # of a change in the terminal, by its square root; a space means no change
ROWS = 12  # rows of dimensions in the terminal
EXAMPLES = {
    "text": ("The prime minister said that the European Union has to change.", "the prime minister of the country"),
    "bits": ("The prime minister",),
    "music": ("M:6/8 K:Gmaj |: G2 G B A G | d B G A G E :|",),
}


@click.command(short_help="Show where a model spends its computation.")
@click.argument("models", metavar="[MODEL]...", nargs=-1, shell_complete=complete_model)
@click.option("--text", "texts", multiple=True,
              help="Text to read; for music, ABC or symbols. Several are shown one below another.")  # fmt: skip
@click.option("--file", "files", multiple=True, type=click.Path(allow_dash=True),
              help="File to read, or - for standard input; comes after the texts.")  # fmt: skip
@click.option("--tune", "tunes", multiple=True, metavar="TITLE",
              help="Music: a tune of the corpus irish by title; comes after texts and files.")  # fmt: skip
@click.option("--dimensions", is_flag=False, flag_value="all", metavar="[FIRST-LAST]",
              help="Also show how much each dimension of the state changed; all, or such as 700-768.")  # fmt: skip
@click.option("--classes", is_flag=True,
              help="Also print mean m by class of symbol: ends of words, bits of bytes, note lengths, …")  # fmt: skip
@click.option("--words", is_flag=True,
              help="Also print the words, with a hyphen where m peaks inside; pictures and pages mark it.")  # fmt: skip
@click.option("--rise", type=click.FloatRange(0, 1),
              help=f"With --words: how far m must rise above its neighbours at a peak. [default: {RISE}]")  # fmt: skip
@click.option("-o", "--output", "outputs", multiple=True, type=click.Path(path_type=Path, dir_okay=False),
              help="Write a .png, .svg, .html or .json file instead of the strip; may be repeated.")  # fmt: skip
@click.option("--backend", type=click.Choice(CHOICES), default="auto", show_default=True,
              help="Backend that runs the model; auto takes the first one installed that can.")  # fmt: skip
@click.option("--precision", type=click.Choice(PRECISIONS),
              help="Weight precision; only the native backend can change the file's own.")  # fmt: skip
@click.option("--threads", type=THREADS, default=1, show_default=True, help="CPU threads.")
def trace(
    models: tuple[str, ...],
    texts: tuple[str, ...],
    files: tuple[str, ...],
    tunes: tuple[str, ...],
    dimensions: str | None,
    classes: bool,
    words: bool,
    rise: float | None,
    outputs: tuple[Path, ...],
    backend: str,
    precision: str | None,
    threads: int,
) -> None:
    """Show where MODEL spends its computation, symbol by symbol. [default: english]

    MODEL is a pretrained model (see `vcdeploy zoo`), an ONNX file, a checkpoint or the folder of a run. Each symbol is
    coloured by m, the fraction of the state updated when reading it; without colours, a digit is printed below it: 4
    means 0.4 to 0.5. Pictures show m as bars. For each symbol, a page also shows a, its probability and the entropy of
    the prediction.

    One model reads every text; several models read one text, or one each, in the order given. Without a text it shows
    an example.
    """
    models = models or (zoo.DEFAULT,)
    if rise is not None and not words:
        raise BadValue("--rise is for --words: add --words, or leave out --rise")
    for output in outputs:
        writers.check_suffix(output)
    sources = [*(_Source("", text) for text in texts), *map(_read, files), *map(_find_tune, tunes)]
    loaded = {name: load(name, backend, precision, threads) for name in dict.fromkeys(models)}
    if not sources:
        sources = [_example(next(iter(loaded.values())))]
    pairs = _pair(models, sources)
    shown = _dimensions(dimensions, [model.config["dim"] for model in loaded.values()])
    several = len(loaded) > 1
    traces = [
        analysis.trace(loaded[name], _encode(name, loaded[name], source), changes=shown is not None,
                       title=" · ".join(filter(None, [name if several else "", source.title])))
        for name, source in pairs
    ]  # fmt: skip
    spent = analysis.spent(traces) if classes else None
    found = analysis.words(traces, RISE if rise is None else rise) if words else None
    for output in outputs:
        write_file(output, writers.render(output.suffix, writers.Document(traces, shown, spent, found)))
    if not outputs:
        _show(traces, shown)
    console = terminal.console(soft_wrap=True)
    if spent:
        console.print(spending_table(spent, float(np.concatenate([each.mean_m for each in traces]).mean())))
    if found is not None:
        _show_words(found)
    for name, model in loaded.items():
        own = [each for each, (of, _) in zip(traces, pairs, strict=True) if of == name]
        click.echo(_describe(f"{name}: " if several else "", model, own), err=True)


# Input


class _Source(NamedTuple):
    """A text and its title."""

    title: str
    text: str
    is_tune: bool = False


def _example(model: Model) -> _Source:
    """A text to show if none is given: EXAMPLES, or what the model itself generates if it lacks their symbols."""
    for text in EXAMPLES[model.vocab.kind]:
        try:
            model.vocab.encode(text)
        except VcdeployError:
            continue
        return _Source("", text)
    vocab, start = model.vocab, model.vocab.start()
    ids = [*start.tolist(), *model.generate(start, 60 * vocab.period)]
    return _Source("", " ".join(vocab.symbols[each] for each in ids) if vocab.kind == "music" else vocab.decode(ids))


def _read(name: str) -> _Source:
    text = read_given(name, "the text")
    # The final newline of a file is not part of the text; but in ABC a blank line ends a tune.
    return _Source("standard input" if name == "-" else name, re.sub(r"(?<!\n)\r?\n\Z", "", text))


def _find_tune(title: str) -> _Source:
    from vcdeploy.corpora.readers import irish_tune

    return _Source(title, irish_tune(title), is_tune=True)


def _encode(name: str, model: Model, source: _Source) -> NDArray[np.int64]:
    """Encode a text; errors name its file or tune."""
    if source.is_tune and model.vocab.kind != "music":
        raise BadValue(f"--tune is for a model of music, and {name} reads {model.vocab.kind}: give --text, --file")
    try:
        return model.vocab.encode(source.text)
    except VcdeployError as error:
        raise type(error)(f"{source.title}: {error}" if source.title else str(error)) from error


def _pair(models: Sequence[str], sources: Sequence[_Source]) -> list[tuple[str, _Source]]:
    if len(models) == 1:
        return [(models[0], source) for source in sources]
    if len(sources) == 1:
        return [(model, sources[0]) for model in models]
    if len(models) != len(sources):
        raise BadValue(
            f"{len(models)} models and {len(sources)} texts don't make pairs: give one model, one text, "
            "or the same number of both"
        )
    return list(zip(models, sources, strict=True))


def _dimensions(asked: str | None, sizes: list[int]) -> tuple[int, int] | None:
    """First and last dimension, counted from 1."""
    if asked is None:
        return None
    if asked == "all":
        return 1, min(sizes)
    match = re.fullmatch(r"(\d+)-(\d+)", asked)
    if not match or not 1 <= int(match[1]) <= int(match[2]) <= min(sizes):
        raise BadValue(
            f"--dimensions is {asked!r}: give two numbers from 1 to {min(sizes)}, such as "
            f"{max(1, min(sizes) - 50)}-{min(sizes)}, or nothing for all"
        )
    return int(match[1]), int(match[2])


# Terminal output


def _describe(prefix: str, model: Model, traces: Sequence[Trace]) -> str:
    backend = f"{model.backend} ({model.detail})" if model.detail else model.backend
    m = np.concatenate([each.mean_m for each in traces])
    bits = np.concatenate([each.bits[1:] for each in traces])
    a = np.concatenate([each.active for each in traces])
    return (
        f"{prefix}{backend}, {model.precision} · {len(m):,} symbols · "
        + (f"{bits.mean():.3f} bits per symbol · " if len(bits) else "")
        + f"mean m {m.mean():.3f} · mean a {a.mean():,.0f} of {model.config['dim']:,}"
    )


def _show(traces: Sequence[Trace], dimensions: tuple[int, int] | None) -> None:
    """Print the strips, one below another, and the legend."""
    room = terminal.console().width
    stream = compute_stream()
    for number, trace in enumerate(traces):
        if number:
            click.echo()
        if trace.title:
            click.echo(trace.title)
        changed = blocks(changes_of(trace, dimensions).mean(1), ROWS) if dimensions else None  # [T, rows]
        for line in lines(trace, room):
            for text, place in line:
                stream.write(text, None if place is None else float(trace.mean_m[place]))
            stream.end()
            if changed is not None and changed.any():
                shades = np.ceil((len(SHADES) - 1) * np.sqrt(changed / (changed.max() or 1))).astype(int)
                for row in reversed(range(changed.shape[1])):
                    drawn = "".join(
                        (" " if place is None else SHADES[shades[place, row]]) * cell_len(text) for text, place in line
                    )
                    click.echo(drawn.rstrip())
        if dimensions and changed is not None:
            first, last = dimensions
            click.echo(
                f"dimensions {first} (lowest row) to {last} (highest): "
                + (f"{SHADES[1]} changed little, {SHADES[-1]} most" if changed.any() else "none changed")
            )
    stream.explain()


def _show_words(words: Sequence[Word]) -> None:
    """Print one line per word; long lines are not wrapped."""
    if not words:
        click.echo("there are no words: a word is a run of letters")
        return
    heading = "word"
    wide = max(len(heading), *(cell_len(word.marked()) for word in words))
    click.echo(f"{heading:{wide}}  times  m of its letters, in hundredths")
    for word in words:
        padding = " " * (wide - cell_len(word.marked()))
        click.echo(f"{word.marked()}{padding}  {word.count:5,}  {' '.join(f'{100 * m:.0f}' for m in word.m)}")
