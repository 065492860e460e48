"""`vcdeploy sample`: what a model writes after a prime, as it writes it, and what it spends on each symbol."""

from __future__ import annotations

import codecs
import shlex
import time
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from vcdeploy import zoo
from vcdeploy.cli.given import read_given
from vcdeploy.cli.model import ModelName
from vcdeploy.cli.output import write_file
from vcdeploy.cli.strip import Collected, Stream, compute_stream
from vcdeploy.corpora import Vocabulary, music
from vcdeploy.corpora.vocabulary import describe_unknown
from vcdeploy.errors import VcdeployError
from vcdeploy.runtime.loading import CHOICES, PRECISIONS, Model, load
from vcdeploy.runtime.sampling import Reader, choose

FORMATS = ("abc", "midi", "svg", "wav")
SUFFIXES = {".abc": "abc", ".mid": "midi", ".midi": "midi", ".svg": "svg", ".wav": "wav"}
LENGTH, LONGEST_TUNE = 200, 1000
TYPED = 160  # characters of a prime that can be typed again
# Typographic characters that have a plain spelling, but no decomposition.
PLAIN = {"‘": "'", "’": "'", "‚": ",", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "–": "-", "—": "-",
         "−": "-", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ß": "ss", "ł": "l", "Ł": "L",
         "\t": " ", "\r": "", "\n": " "}  # fmt: skip


@click.command(short_help="Write text or tunes with a model.")
@click.argument("model", default=zoo.DEFAULT, type=ModelName())
@click.option("--prime", help="What the model goes on from. [default: the start of a line, or of a tune]")
@click.option("--prime-file", type=click.Path(allow_dash=True),
              help="A file with the prime, - for standard input; the newline at its end is left out.")  # fmt: skip
@click.option("--length", type=click.IntRange(1),
              help="Symbols to write. [default: 200 characters; of a tune, as many as it has, up to 1000]")  # fmt: skip
@click.option("--temperature", type=click.FloatRange(0), default=0.8, show_default=True,
              help="Below 1 the likely becomes likelier; 0 always takes the most likely symbol.")  # fmt: skip
@click.option("--top-k", type=click.IntRange(0), default=0, show_default=True,
              help="Choose among so many most likely symbols only; 0 for all.")  # fmt: skip
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True,
              help="Choose among the fewest symbols that have this probability together.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
              help="The same seed gives the same sample, on every backend (in int8 nearly always).")  # fmt: skip
@click.option("--num", type=click.IntRange(1), default=1, show_default=True,
              help="Samples to write, the seed one higher for each.")  # fmt: skip
@click.option("--backend", type=click.Choice(CHOICES), default="auto", show_default=True,
              help="What runs the model; auto takes the first that is here and can. onnxruntime takes our custom op "
              "where that was built, onnxruntime:function never does.")  # fmt: skip
@click.option("--precision", type=click.Choice(PRECISIONS),
              help="Precision of the weights; other than the file's own on the native backend only.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="CPU threads.")
@click.option("--show-compute", is_flag=True,
              help="Colour each symbol by m, the share of the state that reading it updated; "
              "without colours, a digit under each: 4 is 0.4 to 0.5.")  # fmt: skip
@click.option("--meter", help="With music: the tune's meter, such as 6/8.")
@click.option("--key", help="With music: the tune's key, such as Gmaj or Edor.")
@click.option("--format", "format_", type=click.Choice(FORMATS),
              help="With music: notation, MIDI, score or sound. [default: what -o ends with, else abc]")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
              help="Write to this file. MIDI, scores and sound of several tunes go to files with numbers.")  # fmt: skip
def sample(
    model: str,
    prime: str | None,
    prime_file: str | None,
    length: int | None,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    num: int,
    backend: str,
    precision: str | None,
    threads: int,
    show_compute: bool,
    meter: str | None,
    key: str | None,
    format_: str | None,
    output: Path | None,
) -> None:
    """Write text or tunes with MODEL. [default: english]

    MODEL is one that ships (vcdeploy zoo lists them), an ONNX file, a checkpoint or a run's folder. A model that ships
    comes before a file of its name, which is ./english.

    The prime comes first, then what the model makes of it, symbol by symbol. At the end standard error says which
    backend ran, how fast, how many bits a symbol of the sample has by the model's own distribution, and the mean of m.
    """
    if prime is not None and prime_file is not None:
        raise VcdeployError("--prime and --prime-file both give a prime: leave one out")
    if show_compute and output is not None:
        raise VcdeployError("--show-compute is for reading along: leave out -o, or write the output to a file with >")
    loaded = load(model, backend, precision, threads)
    vocab = loaded.vocab
    text = _read_prime(prime_file, vocab) if prime_file is not None else prime or ""
    settings: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    tally = _Tally()
    if vocab.kind == "music":
        chosen = format_ or SUFFIXES.get(output.suffix.lower() if output else "", "abc")
        if chosen != "abc" and output is None:
            raise VcdeployError(f"--format {chosen} is no text: name a file for it with -o")
        if chosen != "abc" and show_compute:
            raise VcdeployError(f"--show-compute shows symbols, not {chosen}: leave out --format")
        request = _Request(text, _field(meter, "meter", vocab), _field(key, "key", vocab), prime_file is not None)
        _write_tunes(loaded, request, length or LONGEST_TUNE, settings, range(seed, seed + num), chosen, output,
                     show_compute, tally)  # fmt: skip
    else:
        for option, value in (("--meter", meter), ("--key", key), ("--format", format_)):
            if value is not None:
                raise VcdeployError(f"{option} is for models of music, and {model} writes {vocab.kind}: leave it out")
        _write_texts(loaded, text, prime_file is not None, length or LENGTH * vocab.period, settings,
                     range(seed, seed + num), output, show_compute, tally)  # fmt: skip
    click.echo(tally.describe(loaded, threads), err=True)


@dataclass
class _Tally:
    """What the samples came to."""

    primed: int = 0
    made: int = 0
    seconds: float = 0.0  # within the model
    bits: float = 0.0
    shares: float = 0.0

    def timed(self, tokens: Iterator[int]) -> Iterator[int]:
        """The tokens; the clock stops while they are shown."""
        while True:
            start = time.perf_counter()
            token = next(tokens, None)
            self.seconds += time.perf_counter() - start
            if token is None:
                return
            yield token

    def count(self, primed: int, bits: NDArray[np.float64], m: NDArray[np.float64]) -> None:
        """bits and m: of the symbols made."""
        self.primed += primed
        self.made += len(bits)
        self.bits += float(bits.sum())
        self.shares += float(m.sum())

    def describe(self, model: Model, threads: int) -> str:
        symbols = self.primed + self.made
        backend = f"{model.backend} ({model.detail})" if model.detail else model.backend
        return (
            f"{backend}, {model.precision}, {threads} thread{'s' * (threads > 1)} · "
            f"{symbols / max(self.seconds, 1e-9):,.0f} tokens/s ({self.primed:,} read, {self.made:,} made) · "
            f"{self.bits / self.made:.3f} bits per symbol · mean m {self.shares / self.made:.3f}"
        )


def _measure(model: Model, prime: NDArray[np.int64], made: Sequence[int], tally: _Tally) -> None:
    """Count a sample, read once more: the model's own loop keeps no distributions."""
    reader, whole = Reader(model), np.concatenate([prime, np.array(made, np.int64)])
    pieces = [reader.read(whole[at : at + 1024]) for at in range(0, len(whole), 1024)]
    bits, m = (np.concatenate(each)[len(prime) :] for each in zip(*pieces, strict=True))
    tally.count(len(prime), bits, m)


# The prime


def _read_prime(name: str, vocab: Vocabulary) -> str:
    text = read_given(name, "the prime")
    # In ABC a blank line at the end says that the tune is finished.
    return text if vocab.kind == "music" else text.removesuffix("\n").removesuffix("\r")


def _encode(text: str, vocab: Vocabulary, from_file: bool) -> NDArray[np.int64]:
    """The ids of a prime; a symbol that the model doesn't know is an error with the nearest way out."""
    if vocab.kind == "text" and ((ids := vocab.lookup(text)) < 0).any():
        nearest = {each: _nearest(each, vocab) for each in dict.fromkeys(text) if vocab.lookup(each)[0] < 0}
        raise VcdeployError(
            f"{describe_unknown(text, ids)}, is not among the {len(vocab)} symbols of the model; "
            + _offer("".join(nearest.get(each, each) for each in text), nearest, from_file)
        )
    if vocab.kind == "music":
        symbols = _music_symbols(text, vocab)
        ids = vocab.lookup(symbols)
        if (ids < 0).any():
            nearest = {each: _nearest_music(each, vocab) for each, id_ in zip(symbols, ids, strict=True) if id_ < 0}
            mended = " ".join(near for each in symbols if (near := nearest.get(each, each)))
            raise VcdeployError(
                f"{describe_unknown(symbols, ids)}, is not among the {len(vocab)} symbols of the model; "
                + _offer(mended, nearest, from_file)
            )
        return ids.astype(np.int64)
    return vocab.encode(text)


def _music_symbols(text: str, vocab: Vocabulary) -> list[str]:
    """As Vocabulary.encode reads music; but what is no ABC either, and has one strange symbol, is a line of symbols."""
    line = text.split()
    strange = sum(symbol not in vocab.symbols for symbol in line)
    several_lines = "\n" in text.removesuffix("\n")
    if not strange and not several_lines:
        return line
    try:
        return music.symbols_of(text)
    except VcdeployError:
        if several_lines or strange > 1 or len(line) < 2:
            raise
        return line


def _nearest(character: str, vocab: Vocabulary) -> str:
    """What comes closest to a character and can be read: other case, no accent, plain punctuation, or nothing."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", character) if not unicodedata.combining(c))
    plain = PLAIN.get(character, bare)
    for candidate in (character.lower(), character.upper(), bare, plain, plain.lower(), plain.upper()):
        if candidate and (vocab.lookup(candidate) >= 0).all():
            return candidate
    return ""


def _nearest_music(symbol: str, vocab: Vocabulary) -> str:
    same_role = [each for each in vocab.symbols if music.role(each) == music.role(symbol)]
    return next(iter(get_close_matches(symbol, same_role, n=1, cutoff=0.3)), "")


def _offer(mended: str, nearest: dict[str, str], from_file: bool) -> str:
    if not mended.strip():
        return "nothing like it can be read: begin with other symbols"
    if len(mended) <= TYPED and not from_file:
        return f"the closest it can read: --prime {shlex.quote(mended)}"
    ways = [f"{each!r} as {near!r}" if near else f"{each!r} left out" for each, near in nearest.items()]
    more = f" and {len(ways) - 8} more" if len(ways) > 8 else ""
    return f"it can read the rest, with {', '.join(ways[:8])}{more}"


# Text and bits


class _Speller:
    """From ids to characters, as they are complete."""

    def __init__(self, vocab: Vocabulary) -> None:
        self.vocab, self._row = vocab, list[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def spell(self, id_: int) -> str:
        if self.vocab.kind == "text":
            return self.vocab.symbols[id_]
        self._row.append(id_)
        byte = ""
        if len(self._row) == 8:
            byte = self._decoder.decode(np.packbits(np.array(self._row, np.uint8)).tobytes())
        if len(self._row) == self.vocab.period:
            self._row = []
        return byte

    def end(self) -> str:
        return "" if self.vocab.kind == "text" else self._decoder.decode(b"", final=True)


def _write_texts(
    model: Model,
    text: str,
    from_file: bool,
    length: int,
    settings: dict[str, Any],
    seeds: range,
    output: Path | None,
    show_compute: bool,
    tally: _Tally,
) -> None:
    vocab = model.vocab
    prime = _encode(text, vocab, from_file) if text else _start(vocab)
    stream = compute_stream() if show_compute else Collected() if output else Stream()
    for seed in seeds:
        if len(seeds) > 1:
            stream.write(f"--- seed {seed}\n")
        tokens = tally.timed(model.generate(prime, length, seed=seed, **settings))
        if show_compute:
            _show(model, prime, bool(text), tokens, stream, tally)
            continue
        speller, made = _Speller(vocab), list[int]()
        if text:
            stream.write("".join(map(speller.spell, prime.tolist())))
        for token in tokens:
            made.append(token)
            stream.write(speller.spell(token))
        stream.write(speller.end())
        stream.end()
        _measure(model, prime, made, tally)
    stream.explain()
    if isinstance(stream, Collected) and output:
        write_file(output, stream.text.encode())


def _start(vocab: Vocabulary) -> NDArray[np.int64]:
    """Where a text begins: after a newline, or else a space, or else anywhere."""
    if vocab.kind == "bits":
        return vocab.encode("\n")
    return vocab.encode(next((each for each in "\n " if each in vocab.symbols), vocab.symbols[0]))


def _show(
    model: Model, prime: NDArray[np.int64], shown: bool, tokens: Iterator[int], stream: Stream, tally: _Tally
) -> None:
    """The sample with the m of every character: of bits, the mean over those of the character."""
    reader, speller = Reader(model), _Speller(model.vocab)
    waiting: list[float] = []

    def spell(id_: int, m: float) -> None:
        waiting.append(m)
        text = speller.spell(id_)
        if text:
            stream.write(text, float(np.mean(waiting)))
            waiting.clear()

    _, shares = reader.read(prime)
    for id_, m in zip(prime.tolist(), shares, strict=True) if shown else ():
        spell(id_, m)
    bits, spent = list[float](), list[float]()
    for token in tokens:
        [bit], [m] = reader.read(np.array([token]))
        bits.append(bit)
        spent.append(m)
        spell(token, m)
    stream.write(speller.end())
    stream.end()
    tally.count(len(prime), np.array(bits), np.array(spent))


# Music


@dataclass(frozen=True)
class _Request:
    """The tune asked for: how it begins, its meter and its key, as symbols; empty where the model may choose."""

    prime: str
    meter: str
    key: str
    from_file: bool


def _field(value: str | None, role: str, vocab: Vocabulary) -> str:
    """The symbol of --meter or --key, which the model must know."""
    if value is None or vocab.kind != "music":
        return ""
    known = [symbol for symbol in vocab.symbols if music.role(symbol) == role]
    try:
        symbol = music.meter_symbol(value) if role == "meter" else music.key_symbol(value)
    except music.UnreadableTune:
        symbol = f"{role[0].upper()}:{value}"
    if symbol in known:
        return symbol
    if not known:
        raise VcdeployError(f"the model knows no {role}: leave out --{role}")
    near = get_close_matches(symbol, known, n=3, cutoff=0.5)
    listed = ", ".join(each[2:] for each in near or known[:12])
    raise VcdeployError(
        f"the model knows no {role} {value!r}; " + (f"the closest are {listed}" if near else f"it knows {listed}")
    )


def _open_tune(model: Model, request: _Request, seed: int, temperature: float) -> tuple[NDArray[np.int64], int]:
    """The ids a tune goes on from, and where among them it begins.

    A tune begins after the end of another with its meter and key; those that nobody asked for the model chooses.
    """
    vocab = model.vocab
    prime = _encode(request.prime, vocab, request.from_file).tolist() if request.prime.strip() else []
    symbols = [vocab.symbols[id_] for id_ in prime]
    begins = len(symbols) - symbols[::-1].index(music.END) if music.END in symbols else 0
    before, tune = prime[:begins], prime[begins:]
    if not before and music.END in vocab.symbols:
        before = vocab.lookup([music.END]).tolist()
    head: list[int] = []
    if tune and music.role(vocab.symbols[tune[0]]) in ("meter", "key"):
        for option, value in (("--meter", request.meter), ("--key", request.key)):
            if value:
                raise VcdeployError(f"the prime has its own meter and key: leave out {option}, or them")
    else:
        random = np.random.default_rng([seed, 1])  # not the draws that generate makes from the seed
        for role, wanted in (("meter", request.meter), ("key", request.key)):
            known = np.array([music.role(symbol) == role for symbol in vocab.symbols])
            if wanted:
                head += vocab.lookup([wanted]).tolist()
            elif known.any():
                so_far = np.array(before + head, np.int64).reshape(-1, 1)
                logits = model.run(so_far)[0][-1, 0] if len(so_far) else np.zeros(len(vocab))
                candidates = np.flatnonzero(known)
                head.append(int(candidates[choose(logits[candidates], random.random(), temperature, 0, 1.0)]))
    return np.array([*before, *head, *tune], np.int64), len(before)


def _write_tunes(
    model: Model,
    request: _Request,
    length: int,
    settings: dict[str, Any],
    seeds: range,
    format_: str,
    output: Path | None,
    show_compute: bool,
    tally: _Tally,
) -> None:
    from vcdeploy.cli.tunes import WRITERS

    vocab, pages = model.vocab, list[str]()
    for number, seed in enumerate(seeds, 1):
        prime, begins = _open_tune(model, request, seed, settings["temperature"])
        made: list[int] = []
        for token in tally.timed(model.generate(prime, length, seed=seed, **settings)):
            made.append(token)
            if vocab.symbols[token] == music.END:
                break
        else:
            click.echo(f"the tune of seed {seed} has no end after {length} symbols: give a larger --length", err=True)
        _measure(model, prime, made, tally)
        whole = np.array([*prime, *made], np.int64)
        tune = music.mended([vocab.symbols[id_] for id_ in whole[begins:] if vocab.symbols[id_] != music.END])
        title = f"Sample {number}, seed {seed}"
        if show_compute:
            _show_tune(model, whole, begins)
        elif format_ == "abc":
            pages.append(music.to_abc(tune, title, number))
            if output is None:
                click.echo(("\n" if number > 1 else "") + pages[-1], nl=False)
        elif output is not None:
            file = output.with_stem(f"{output.stem}-{number}") if len(seeds) > 1 else output
            write_file(file, WRITERS[format_](tune, title))
    if output is not None and pages:
        write_file(output, "\n".join(pages).encode())


def _show_tune(model: Model, ids: NDArray[np.int64], begins: int) -> None:
    """A tune's symbols with the m of each, four bars a line."""
    stream, bars = compute_stream(), 0
    _, shares = Reader(model).read(ids)
    for id_, m in zip(ids[begins:].tolist(), shares[begins:], strict=True):
        symbol = model.vocab.symbols[id_]
        stream.write(symbol, float(m))
        bars += music.role(symbol) == "bar"
        last = symbol == music.END or (bars == 4 and music.role(symbol) == "bar")
        bars = 0 if last else bars
        stream.write("\n" if last else " ")
    stream.end()
    stream.explain()
