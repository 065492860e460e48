"""`vcdeploy sample`: generate text or tunes from a prime, with the computation spent on each symbol."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from vcdeploy.cli.io import read_given, write_file
from vcdeploy.cli.tally import Stop, Tally, m_of
from vcdeploy.cli.terminal import Stream
from vcdeploy.cli.types import SEED, THREADS, complete_model
from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.runtime.backends import CHOICES
from vcdeploy.runtime.model import Model, load
from vcdeploy.runtime.sampling import Sampling
from vcdeploy.spec import PRECISIONS
from vcdeploy.vocabulary import Speller, Vocabulary
from vcdeploy.zoo import DEFAULT

FORMATS = ("abc", "midi", "svg", "wav")
SUFFIXES = {".abc": "abc", ".mid": "midi", ".midi": "midi", ".svg": "svg", ".wav": "wav"}
TEXT_SUFFIXES = (".txt", ".text", ".md", ".log")
LENGTH, LONGEST_TEXT, LONGEST_TUNE = 200, 600, 1000
SENTENCE_ENDS = ".!?"


@click.command(short_help="Generate text or tunes.")
@click.argument("model", default=DEFAULT, shell_complete=complete_model)
@click.option("--prime", help="Text to continue. [default: the start of a line or of a tune]")
@click.option("--prime-file", type=click.Path(allow_dash=True),
              help="Read the prime from a file, or from standard input (-); a final newline is dropped.")  # fmt: skip
@click.option("--length", type=click.IntRange(1),
              help="Symbols to generate, exactly; a tune may end sooner. [default: 200 characters and on to the end "
              "of the sentence, at most 600; 1000 for a tune]")  # fmt: skip
@click.option("--temperature", type=click.FloatRange(0), default=Sampling.temperature, show_default=True,
              help="Softmax temperature; 0 always takes the most likely symbol.")  # fmt: skip
@click.option("--top-k", type=click.IntRange(0), default=Sampling.top_k, show_default=True,
              help="Sample from the K most likely symbols; 0 for all.")  # fmt: skip
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), default=Sampling.top_p, show_default=True,
              help="Nucleus sampling: smallest set of symbols whose probabilities sum to P; 1 for all.")  # fmt: skip
@click.option("--min-p", type=click.FloatRange(0, 1), default=Sampling.min_p, show_default=True,
              help="Sample from the symbols at least P times as likely as the most likely one; 0 for all.")  # fmt: skip
@click.option("--repetition-penalty", type=click.FloatRange(0, min_open=True), default=Sampling.repetition_penalty,
              show_default=True,
              help=f"Make the last {Sampling.repetition_window} symbols less likely; 1 for no penalty.")  # fmt: skip
@click.option("--stop", multiple=True,
              help="End the sample before this text; for several texts, give the option several times.")  # fmt: skip
@click.option("--seed", type=SEED, default=0, show_default=True,
              help="The same seed gives the same sample on every backend.")  # fmt: skip
@click.option("--num", type=click.IntRange(1), default=1, show_default=True,
              help="Number of samples; each one uses the next seed.")  # fmt: skip
@click.option("--backend", type=click.Choice(CHOICES), default="auto", show_default=True,
              help="Backend that runs the model; auto takes the first one installed that can. onnxruntime uses our "
              "custom op, onnxruntime:function the dense function body in the file.")  # fmt: skip
@click.option("--precision", type=click.Choice(PRECISIONS),
              help="Weight precision; only the native backend can change the file's own.")  # fmt: skip
@click.option("--threads", type=THREADS, default=1, show_default=True, help="CPU threads.")
@click.option("--show-compute", is_flag=True,
              help="Color each symbol by m, the fraction of the state that was updated when reading it; "
              "without colors, print a digit below it: 4 means 0.4 to 0.5.")  # fmt: skip
@click.option("--meter", help="Music: meter of the tune, such as 6/8.")
@click.option("--key", help="Music: key of the tune, such as Gmaj or Edor.")
@click.option("--free", is_flag=True,
              help="Music: sample any symbol. By default bars have the length of the meter, and a tune has repeated "
              "parts of eight bars and ends on the tonic.")  # fmt: skip
@click.option("--format", "format_", type=click.Choice(FORMATS),
              help="Music: ABC notation, MIDI, score or sound. [default: from the suffix of -o, else abc]")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
              help="Output file. Several tunes as MIDI, score or sound go to numbered files.")  # fmt: skip
def sample(
    model: str,
    prime: str | None,
    prime_file: str | None,
    length: int | None,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repetition_penalty: float,
    stop: tuple[str, ...],
    seed: int,
    num: int,
    backend: str,
    precision: str | None,
    threads: int,
    show_compute: bool,
    meter: str | None,
    key: str | None,
    free: bool,
    format_: str | None,
    output: Path | None,
) -> None:
    """Generate text or tunes with MODEL. [default: english]

    MODEL is a pretrained model (see `vcdeploy zoo`), an ONNX file, a checkpoint or the folder of a run. The name of a
    pretrained model takes precedence; for a file of that name, give ./english.

    Prints the prime and then the generated symbols as they come. The last line, on standard error, shows the backend,
    tokens/s, bits per symbol under the model's own distribution, and the mean of m.
    """
    if prime is not None and prime_file is not None:
        raise BadValue("--prime and --prime-file both give a prime: leave one out")
    if show_compute and output is not None:
        raise BadValue("--show-compute prints to the terminal: leave out -o, or redirect the output with >")
    loaded = load(model, backend, precision, threads)
    vocab = loaded.vocab
    _check_suffix(output, vocab, format_)
    text = _read_prime(prime_file, vocab) if prime_file is not None else prime or ""
    settings = Sampling(temperature, top_k, top_p, min_p=min_p, repetition_penalty=repetition_penalty, stop=stop)
    tally = Tally()
    if vocab.kind == "music":
        chosen = format_ or SUFFIXES.get(output.suffix.lower() if output else "", "abc")
        if chosen != "abc" and output is None:
            raise BadValue(f"--format {chosen} is not text: name a file for it with -o")
        if chosen != "abc" and show_compute:
            raise BadValue(f"--show-compute shows symbols, not {chosen}: leave out --format")
        from vcdeploy.cli.sample_tunes import write_tunes

        start = _encode_prime(text, vocab, prime_file is not None).tolist() if text.strip() else []
        write_tunes(loaded, start, meter, key, length or LONGEST_TUNE, settings, range(seed, seed + num), chosen,
                    output, show_compute, free, tally)  # fmt: skip
    else:
        for option, value in (("--meter", meter), ("--key", key), ("--format", format_), ("--free", free or None)):
            if value is not None:
                raise BadValue(f"{option} is for models of music, and {model} generates {vocab.kind}: leave it out")
        _write_texts(loaded, text, prime_file is not None, length, settings,
                     range(seed, seed + num), output, show_compute, tally)  # fmt: skip
    click.echo(tally.describe(loaded, threads), err=True)


def _check_suffix(output: Path | None, vocab: Vocabulary, format_: str | None) -> None:
    """Raise unless the model can write a file of this suffix; --format and no suffix at all override it."""
    suffix = output.suffix.lower() if output else ""
    known = SUFFIXES if vocab.kind == "music" else TEXT_SUFFIXES
    if suffix and format_ is None and suffix not in known:
        raise BadValue(
            f"a model of {vocab.kind} can't write {output}: the name has to end in {', '.join(known)}"
            + (", or give --format" if vocab.kind == "music" else "")
        )
    if suffix in SUFFIXES and format_ is not None and SUFFIXES[suffix] != format_:
        raise BadValue(f"--format {format_} and the suffix of {output} differ: leave one out")


def _read_prime(name: str, vocab: Vocabulary) -> str:
    text = read_given(name, "the prime")
    # In ABC a blank line at the end ends the tune.
    return text if vocab.kind == "music" else text.removesuffix("\n").removesuffix("\r")


def _encode_prime(text: str, vocab: Vocabulary, from_file: bool) -> NDArray[np.int64]:
    try:
        return vocab.encode(text)
    except VcdeployError as error:
        from vcdeploy.vocabulary.primes import with_suggestion

        raise with_suggestion(error, text, vocab, from_file) from error


def _write_texts(
    model: Model,
    text: str,
    from_file: bool,
    length: int | None,
    settings: Sampling,
    seeds: range,
    output: Path | None,
    show_compute: bool,
    tally: Tally,
) -> None:
    vocab = model.vocab
    prime = _encode_prime(text, vocab, from_file) if text else vocab.start()
    stream = _stream(show_compute, output)
    stop = _ends_sentence(vocab) if length is None and vocab.kind == "text" else None
    length = length or (LONGEST_TEXT if stop else LENGTH * vocab.period)
    for seed in seeds:
        if len(seeds) > 1:
            stream.write(f"--- seed {seed}\n")
        speller, sampling = Speller(vocab), replace(settings, seed=seed)
        if show_compute:
            _show(model, prime, bool(text), tally.sample_with_m(model, prime, length, sampling, stop), speller, stream)
        else:
            if text:
                stream.write("".join(map(speller.spell, prime.tolist())))
            for ids in tally.sample(model, prime, length, sampling, stop):
                stream.write("".join(map(speller.spell, ids)))
        stream.write(speller.end())
        stream.end()
    stream.explain()
    if isinstance(stream, Collected) and output:
        write_file(output, stream.text.encode())


class Collected(Stream):
    """Collect characters for a file."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def write(self, text: str, m: float | None = None) -> None:
        self.text += text
        self._last = text[-1:] or self._last


def _stream(show_compute: bool, output: Path | None) -> Stream:
    if show_compute:
        from vcdeploy.cli.strip import compute_stream

        return compute_stream()
    return Collected() if output else Stream()


def _ends_sentence(vocab: Vocabulary) -> Stop:
    """Stop at the first end of a sentence after LENGTH characters: a full stop or the like before white space."""
    ends, spaces = ([test(each) for each in vocab.symbols] for test in (SENTENCE_ENDS.__contains__, str.isspace))
    return lambda made, last, after: made >= LENGTH and ends[last] and spaces[after]


def _show(
    model: Model,
    prime: NDArray[np.int64],
    with_prime: bool,
    sample: Iterator[tuple[int, float]],
    speller: Speller,
    stream: Stream,
) -> None:
    """Print a sample with the m of each character; with bits, the mean over the bits of the character."""
    start = zip(prime.tolist(), m_of(model, prime), strict=True) if with_prime else ()
    waiting: list[float] = []
    for id_, m in chain(start, sample):
        waiting.append(m)
        if text := speller.spell(id_):
            stream.write(text, float(np.mean(waiting)))
            waiting.clear()
