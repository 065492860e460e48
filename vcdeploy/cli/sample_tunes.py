"""`vcdeploy sample` with a model of music: tunes as ABC notation, MIDI, scores or sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from vcdeploy.cli.io import write_file
from vcdeploy.cli.strip import compute_stream
from vcdeploy.cli.tally import Tally, m_of
from vcdeploy.music import notation
from vcdeploy.music.form import Form
from vcdeploy.music.rendering import WRITERS
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.sampling import Sampling
from vcdeploy.runtime.tunes import begin
from vcdeploy.vocabulary import Vocabulary


def write_tunes(
    model: Model,
    start: list[int],
    meter: str | None,
    key: str | None,
    length: int,
    settings: Sampling,
    seeds: range,
    format_: str,
    output: Path | None,
    show_compute: bool,
    free: bool,
    tally: Tally,
) -> None:
    vocab, pages = model.vocab, list[str]()
    end = vocab.symbols.index(notation.END) if notation.END in vocab.symbols else None
    for number, seed in enumerate(seeds, 1):
        sampling = replace(settings, seed=seed)
        prime, begins = begin(model, start, meter, key, sampling)
        form = None if free else Form(vocab.symbols)
        made = list(tally.sample_with_m(model, prime, length, sampling, lambda _, last, __: last == end, form))
        if (not made or made[-1][0] != end) and not sampling.stop:
            click.echo(f"the tune of seed {seed} has no end after {length} symbols: give a larger --length", err=True)
        ids = [*prime[begins:].tolist(), *(id_ for id_, _ in made)]
        tune = notation.repaired([vocab.symbols[id_] for id_ in ids if id_ != end])
        title = f"Sample {number}, seed {seed}"
        if show_compute:
            _show_tune(vocab, ids, [*m_of(model, prime)[begins:], *(m for _, m in made)])
        elif format_ == "abc":
            pages.append(notation.to_abc(tune, title, number))
            if output is None:
                click.echo(("\n" if number > 1 else "") + pages[-1], nl=False)
        elif output is not None:
            file = output.with_stem(f"{output.stem}-{number}") if len(seeds) > 1 else output
            write_file(file, WRITERS[format_](tune, title))
    if output is not None and pages:
        write_file(output, "\n".join(pages).encode())


def _show_tune(vocab: Vocabulary, ids: Sequence[int], fractions: Sequence[float]) -> None:
    """Print the symbols of a tune with the m of each, four bars per line."""
    stream, bars = compute_stream(), 0
    for id_, m in zip(ids, fractions, strict=True):
        symbol = vocab.symbols[id_]
        stream.write(symbol, m)
        bars += notation.role(symbol) == "bar"
        last = symbol == notation.END or (bars == 4 and notation.role(symbol) == "bar")
        bars = 0 if last else bars
        stream.write("\n" if last else " ")
    stream.end()
    stream.explain()
