"""`vcdeploy sample` as a user types it: what is written, in which order, and what is said about what can't be."""

import io
import re
import sys
import wave
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from click.testing import CliRunner, Result
from outcomes import refused, said
from small_models import scheduled

from vcdeploy import cli
from vcdeploy.cli.sample import LENGTH, _ends_sentence, sample
from vcdeploy.music import notation, rendering
from vcdeploy.runtime.backends import PythonLoop
from vcdeploy.runtime.model import load
from vcdeploy.runtime.sampling import Sampling
from vcdeploy.training import checkpoint
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

SYMBOLS = "M:6/8 K:Gmaj |: G2 A B2 d | (3 e f g d ^c c2 | [1 G6 :| [2 G3 A3 || K:Dmin c2 ^c/2 z/2 f3 | f6 :|"
TUNE = SYMBOLS.split()
TEXT = Vocabulary("\n abcdefghimnprt'")
BITS = Vocabulary("01", "bits", 8)
MUSIC = Vocabulary(dict.fromkeys([*TUNE, "M:4/4", "K:Edor", notation.END]), "music")


def write(folder: Path, vocab: Vocabulary) -> Path:
    torch.manual_seed(6)
    network = scheduled(LanguageModel("vcgru", len(vocab), 12, sharpness=0.5))
    config = {
        "unit": "vcgru", "dim": 12, "layers": 1, "sharpness": 0.5, "epsilon": 1e-3, "precision": "f32",
        "kind": vocab.kind, "buffer": vocab.buffer, "dropout": 0.0, "corpus": "demo",
    }  # fmt: skip
    checkpoint.write(folder / "best.safetensors", checkpoint.Checkpoint(config, vocab, network.state_dict(), {}, {}))
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {vocab.kind: write(tmp_path_factory.mktemp(vocab.kind), vocab) for vocab in (TEXT, BITS, MUSIC)}


def run(*arguments: str | Path, given: str | bytes | None = None, **environment: str) -> Result:
    runner = CliRunner(env={"NO_COLOR": None, "FORCE_COLOR": None, **environment})
    return runner.invoke(cli.main, ["sample", *map(str, arguments)], input=given, prog_name="vcdeploy")


def test_the_sample_is_that_of_the_library(models: dict[str, Path]) -> None:
    result = run(models["text"], "--prime", "the pr", "--length", "50", "--seed", "3", "--top-k", "4")
    assert result.exit_code == 0, result.output
    model = load(models["text"])
    made = model.generate(TEXT.encode("the pr"), 50, top_k=4, seed=3)
    assert result.stdout == "the pr" + TEXT.decode(list(made)).removesuffix("\n") + "\n"
    summary = r"f32, 1 thread · [\d,]+ tokens/s \(6 read, 50 generated\) · (\d\.\d+) bits per symbol · mean m 0\.\d+\n"
    assert re.fullmatch(rf"{model.backend} \({model.detail}\), {summary}", result.stderr)


def test_the_last_line_says_what_of_onnx_runtime_ran(models: dict[str, Path]) -> None:
    pytest.importorskip("onnxruntime")
    usual = run(models["text"], "--backend", "onnxruntime", "--length", "5")
    body = run(models["text"], "--backend", "onnxruntime:function", "--length", "5")
    assert usual.stdout == body.stdout
    assert usual.stderr.startswith("onnxruntime (custom op), f32, 1 thread")
    assert body.stderr.startswith("onnxruntime (function body), f32, 1 thread")


def test_symbols_appear_as_they_are_generated(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    echo: Any = click.echo
    model = load(models["text"], "torch")

    def watched_echo(text: str = "", **more: Any) -> None:
        events.append(text)
        echo(text, **more)

    monkeypatch.setattr(click, "echo", watched_echo)

    class Watched(PythonLoop):
        def run(self, *arguments: Any) -> Any:
            events.append("step")
            return model.runner.run(*arguments)

    monkeypatch.setattr(
        "vcdeploy.cli.sample.load", lambda *_: type(model)("torch", model.config, TEXT, "f32", "", Watched())
    )
    assert run("model", "--prime", "ab", "--length", "3").exit_code == 0
    assert [event == "step" for event in events[:7]] == [False, True, False, True, False, True, False]
    assert events[0] == "ab"


def test_several_samples_have_seeds_of_their_own(models: dict[str, Path], tmp_path: Path) -> None:
    both = run(models["text"], "--length", "30", "--num", "2", "--seed", "4").stdout
    one, other = (run(models["text"], "--length", "30", "--seed", seed).stdout for seed in "45")
    assert both == f"--- seed 4\n{one}--- seed 5\n{other}"
    assert one != other
    result = run(models["text"], "--length", "30", "--seed", "4", "-o", tmp_path / "new" / "text.txt")
    assert result.stdout == ""
    assert (tmp_path / "new" / "text.txt").read_text() == one
    assert "wrote" in result.stderr
    (tmp_path / "file").touch()
    assert "could not write" in said(run(models["text"], "-o", tmp_path / "file" / "text.txt"))


def test_primes_from_files_and_standard_input(models: dict[str, Path], tmp_path: Path) -> None:
    wanted = run(models["text"], "--prime", "the", "--length", "9").stdout
    (tmp_path / "prime").write_text("the\n")
    assert run(models["text"], "--prime-file", tmp_path / "prime", "--length", "9").stdout == wanted
    assert run(models["text"], "--prime-file", "-", "--length", "9", given="the").stdout == wanted
    assert "both give a prime" in refused(run(models["text"], "--prime", "a", "--prime-file", "-"))
    assert "cannot read the prime" in said(run(models["text"], "--prime-file", tmp_path / "none"))
    assert "is not UTF-8: byte 0xFF at offset 1" in said(run(models["text"], "--prime-file", "-", given=b"a\xff"))
    assert "it knows the rest, with 'E' as 'e'" in refused(run(models["text"], "--prime-file", "-", given="thE"))


@pytest.mark.parametrize(
    ("prime", "position", "offered"),
    [
        ("The prime", r"'T' \(U\+0054\) at line 1, column 1", "'the prime'"),
        ("prime\nmÍn", r"'Í' \(U\+00CD\) at line 2, column 2", "'prime\nmin'"),
        ("man’s", "column 4", "'man'\"'\"''"),
        ("a\tb", "column 2", "'a b'"),
        ("ab☃c", "column 3", "abc"),
    ],
)
def test_a_symbol_outside_the_vocabulary(models: dict[str, Path], prime: str, position: str, offered: str) -> None:
    message = refused(run(models["text"], "--prime", prime))
    assert re.search(position, message)
    assert message.endswith(f"the closest it knows: --prime {offered}\n")


def test_nothing_to_offer(models: dict[str, Path]) -> None:
    assert "knows nothing similar: use other symbols" in refused(run(models["text"], "--prime", "☃☃"))


def test_without_a_prime_a_text_starts_a_line(models: dict[str, Path]) -> None:
    made = load(models["text"]).generate(TEXT.encode("\n"), 200)
    assert run(models["text"], "--length", "200").stdout == TEXT.decode(list(made)).removesuffix("\n") + "\n"


def test_bits_are_spelt_byte_by_byte(models: dict[str, Path]) -> None:
    result = run(models["bits"], "--prime", "é!", "--length", "160")
    prime = BITS.encode("é!")
    made = list(load(models["bits"]).generate(prime, 160))
    wanted = BITS.decode([*prime, *made])
    assert wanted.startswith("é!") and len(wanted) > 4
    assert result.stdout_bytes.decode() == wanted + "\n" * (not wanted.endswith("\n"))
    assert run(models["bits"], "--prime", "é!", "--length", "160", "--show-compute").stdout.startswith("é!")


def test_compute_without_colours_is_a_line_of_digits(models: dict[str, Path]) -> None:
    arguments: list[str | Path] = [models["text"], "--prime", "the\nprime", "--length", "12", "--temperature", "0"]
    plain = run(*arguments).stdout
    for environment in ({}, {"NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "xterm-256color"}):
        result = run(*arguments, "--show-compute", **environment)
        assert "\x1b" not in result.stdout
        lines = result.stdout.splitlines()
        assert [line.rstrip() for line in plain.splitlines()] == lines[::2]
        model = load(models["text"])
        m = model.run(TEXT.encode("the\n").reshape(-1, 1))[2][:, 0, 0]
        assert lines[:2] == ["the", "".join(str(int(10 * each)) for each in m)]


def test_compute_in_colours(models: dict[str, Path]) -> None:
    arguments: list[str | Path] = [models["text"], "--prime", "the\n", "--length", "5"]
    shown = run(*arguments, "--show-compute", FORCE_COLOR="1", TERM="xterm-256color").stdout
    assert len(re.findall(r"\x1b\[38;5;\d+;48;5;\d+m.\x1b\[0m", shown)) == 9
    *bare, ramp = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
    assert [line.rstrip() for line in bare] == run(*arguments).stdout.splitlines()
    assert re.fullmatch(r"m  0 +1", ramp)


def test_invalid_requests(models: dict[str, Path], tmp_path: Path) -> None:
    assert "--meter is for models of music" in refused(run(models["text"], "--meter", "6/8"))
    assert "leave out -o" in refused(run(models["text"], "--show-compute", "-o", tmp_path / "x"))
    assert "no model at" in said(run(tmp_path / "none"))
    assert "backend can't change the precision of a file" in refused(
        run(models["text"], "--backend", "torch", "--precision", "int8")
    )
    music_model = models["music"]
    assert "name a file for it with -o" in refused(run(music_model, "--format", "midi"))
    assert "the closest are 6/8" in refused(run(music_model, "--meter", "6/16"))
    assert "knows no key 'Fdor'; the closest are Edor" in refused(run(music_model, "--key", "Fdor"))
    assert "it knows 6/8, 4/4" in refused(run(music_model, "--meter", "waltz"))
    assert "its own meter and key: leave out --key" in refused(run(music_model, "--prime", "M:6/8 G2", "--key", "Edor"))
    message = refused(run(music_model, "--prime", "M:6/8 K:Gmaj G2 A5"))
    assert "'A5', symbol 4 of tune 1" in message and "--prime 'M:6/8 K:Gmaj G2 A" in message


def test_a_tune_is_abc_that_reads_back(models: dict[str, Path]) -> None:
    result = run(models["music"], "--meter", "6/8", "--key", "E dorian", "--num", "2", "--prime", "G2 A")
    assert result.exit_code == 0, result.output
    pages = result.stdout.split("\n\n")
    assert len(pages) == 2
    for number, page in enumerate(pages, 1):
        head = [f"X:{number}", f"T:Sample {number}, seed {number - 1}", "M:6/8", "L:1/8", "K:Edor"]
        assert page.splitlines()[:5] == head
        assert "<end>" not in page
        assert notation.parse(page)[:4] == ["M:6/8", "K:Edor", "G2", "A"]


def test_a_tune_ends_at_its_end_or_says_that_it_has_none(models: dict[str, Path]) -> None:
    shown = run(models["music"], "--show-compute", "--seed", "1")
    symbols = " ".join(shown.stdout.splitlines()[::2]).split()
    assert symbols.index(notation.END) == len(symbols) - 1
    assert [notation.role(each) for each in symbols[:2]] == ["meter", "key"]
    assert "has no end after 1 symbols: give a larger --length" in run(models["music"], "--length", "1").stderr


@pytest.mark.parametrize(
    ("tune", "order"),
    [
        ("|: A | B :| c", "A B A B c"),
        ("A :: B :| c", "A A B B c"),
        ("|: A | [1 B :| [2 c | d || e :|", "A B A c d e e"),
        ("|: A | [1 B :| [2 c :| |: d :|", "A B A c d d"),
        ("A | B |] c", "A B c"),
    ],
)
def test_repeats_are_played(tune: str, order: str) -> None:
    symbols = tune.split()
    heard = [symbols[place] for place in rendering.played(symbols)]
    assert " ".join(symbol for symbol in heard if symbol != "|") == order


def test_keys_accidentals_and_tuplets_sound() -> None:
    # By hand: F is sharp in G, C stays sharp to the end of its bar, and D minor has neither.
    part = [67, 69, 71, 74, 76, 78, 79, 74, 73, 73]
    low = [72, 73, 77, 77]
    wanted = [*part, 67, *part, 67, 69, *low, *low]
    assert [note.midi for note in rendering.heard(TUNE) if note.step] == wanted
    assert [rendering.fifths(key) for key in ("K:Edor", "K:Bbmaj", "K:F#min", "K:Bloc", "K:none")] == [2, -2, 3, 0, 0]


def test_music21_hears_the_midi_and_reads_the_abc(tmp_path: Path) -> None:
    music21 = pytest.importorskip("music21")
    file = music21.midi.MidiFile()
    file.readstr(rendering.to_midi(TUNE, "A tune"))
    started = [event.pitch for track in file.tracks for event in track.events if event.isNoteOn() and event.velocity]
    assert started == [note.midi for note in rendering.heard(TUNE) if note.step]
    score = music21.converter.parse(notation.to_abc(TUNE), format="abc")
    lengths = [note.quarterLength for note in score.flatten().notesAndRests]
    assert lengths == [note.eighths / 2 for note in rendering.notes(TUNE) if note]


def test_midi_score_and_sound_are_written(models: dict[str, Path], tmp_path: Path) -> None:
    for module in ("music21", "verovio"):
        pytest.importorskip(module)
    for name in ("a.mid", "a.svg", "a.wav"):
        result = run(models["music"], "--prime", SYMBOLS, "--length", "30", "-o", tmp_path / name)
        assert result.exit_code == 0, result.output
    assert (tmp_path / "a.mid").read_bytes()[:4] == b"MThd"
    svg = (tmp_path / "a.svg").read_text()
    assert svg.startswith("<svg") and "Sample 1, seed 0" in svg and svg.count('class="note"') >= 18
    assert 'class="clef"' in svg
    with wave.open(io.BytesIO((tmp_path / "a.wav").read_bytes())) as sound:
        assert (sound.getnchannels(), sound.getsampwidth()) == (1, 2)
        assert sound.getnframes() / sound.getframerate() > 8
    result = run(models["music"], "--num", "2", "--format", "wav", "-o", tmp_path / "b.wav")
    assert sorted(path.name for path in tmp_path.glob("b*")) == ["b-1.wav", "b-2.wav"]


@pytest.mark.parametrize(("name", "module"), [("a.mid", "music21"), ("a.svg", "verovio")])
def test_a_missing_library_names_the_extra(
    models: dict[str, Path], tmp_path: Path, name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("music21")
    monkeypatch.setitem(sys.modules, module, None)
    message = said(run(models["music"], "-o", tmp_path / name))
    assert f"needs {module}" in message and 'pip install "music21>=9.1" "verovio>=4.0"' in message


def test_a_text_stops_at_the_end_of_a_sentence() -> None:
    whole = run("english", "--prime", "The prime min").stdout
    text = whole.removeprefix("The prime min").removesuffix("\n")
    assert text.startswith("ister")
    assert 200 <= len(text) < 600 and text[-1] in ".!?"
    assert not re.search(r"[.!?]\s", text[199:])
    longer = run("english", "--prime", "The prime min", "--length", str(len(text) + 1)).stdout
    assert longer.startswith(whole.removesuffix("\n")) and longer.removesuffix("\n") != whole.removesuffix("\n")
    exact = run("english", "--prime", "The prime min", "--length", "7").stdout
    assert exact == f"The prime min{text[:7]}\n"


@pytest.mark.parametrize(
    ("made", "last", "after", "ends"),
    [
        (LENGTH, ".", " ", True),
        (LENGTH + 50, "?", "\n", True),
        (LENGTH - 1, ".", " ", False),
        (LENGTH, ".", "5", False),
        (LENGTH, "a", " ", False),
    ],
)
def test_a_sentence_ends_with_a_full_stop_before_white_space(made: int, last: str, after: str, ends: bool) -> None:
    vocab = Vocabulary("a5.? \n")
    assert _ends_sentence(vocab)(made, *vocab.encode(last + after)) is ends


def test_a_sentence_may_be_too_long(models: dict[str, Path]) -> None:
    text = run(models["text"]).stdout.removesuffix("\n")
    assert len(text) in (599, 600)  # a model without full stops; a final newline is not repeated


@pytest.mark.parametrize("beyond", [-1, 0, 1, 2])
def test_a_stop_string_that_is_not_complete_at_the_end_takes_nothing_off(models: dict[str, Path], beyond: int) -> None:
    """`beyond`: how many symbols past --length the stop string ends."""
    length, settings = 20, ["--temperature", "0.9", "--top-p", "1", "--seed", "4"]
    arguments: list[str | Path] = [models["text"], "--prime", "the pr", *settings]
    text = run(*arguments, "--length", "23").stdout.removeprefix("the pr").removesuffix("\n")
    stop = text[length + beyond - 3 : length + beyond]
    assert text.index(stop) == length + beyond - 3
    for show in ([], ["--show-compute"]):
        result = run(*arguments, "--length", str(length), "--stop", stop, *show)
        shown = "".join(result.stdout.splitlines()[:1])
        assert shown == "the pr" + (text[:length] if beyond > 0 else text[: length + beyond - 3])
    one = run(*arguments, "--length", "1", "--stop", text[:2])
    assert one.stdout == f"the pr{text[0]}\n" and "mean m" not in one.stderr  # no step has read the symbol


def test_most_seeds_continue_the_word() -> None:
    model = load("english")
    prime = model.vocab.encode("The prime min")
    found = [model.vocab.decode(list(model.generate(prime, 5, seed=seed))) for seed in range(20)]
    assert found.count("ister") >= 12


def test_the_defaults_are_those_of_the_library() -> None:
    options = {each.name: each.default for each in sample.params}
    assert (options["temperature"], options["top_k"], options["top_p"], options["seed"]) == (
        Sampling().temperature, Sampling().top_k, Sampling().top_p, Sampling().seed,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("text", "t.mid"),
        ("text", "t.abc"),
        ("text", "t.mp3"),
        ("bits", "t.WAV"),
        ("music", "t.mp3"),
        ("music", "t.txt"),
    ],
)
def test_suffixes_that_can_not_be_written(models: dict[str, Path], tmp_path: Path, kind: str, name: str) -> None:
    assert f"a model of {kind} can't write {tmp_path / name}: the name has to end in ." in refused(
        run(models[kind], "-o", tmp_path / name)
    )
    assert not any(tmp_path.iterdir())


def test_suffixes_and_formats(models: dict[str, Path], tmp_path: Path) -> None:
    for kind, name in (("text", "a.txt"), ("text", "noname"), ("music", "b.ABC"), ("music", "c")):
        assert run(models[kind], "-o", tmp_path / name, "--length", "50").exit_code == 0
        assert (tmp_path / name).stat().st_size
    assert "--format wav and the suffix of" in refused(
        run(models["music"], "-o", tmp_path / "a.mid", "--format", "wav")
    )


def test_free_is_for_music_and_lets_any_symbol_follow(models: dict[str, Path]) -> None:
    assert "--free is for models of music" in refused(run(models["text"], "--free"))
    arguments = ["irish", "--meter", "6/8", "--key", "Edor", "--temperature", "1.3", "--top-p", "1"]
    inside, free = run(*arguments).stdout, run(*arguments, "--free").stdout
    assert inside != free
    length, lengths = Fraction(0), []
    tune = notation.parse(inside)
    for symbol, note in zip(tune, rendering.notes(tune), strict=True):
        length += note.eighths if note else 0
        if notation.role(symbol) == "bar":
            lengths.append(length)
            length = Fraction(0)
    assert lengths.count(Fraction(6)) >= 14 and max(lengths) == 6


def test_midi_has_title_tempo_meter_and_key() -> None:
    music21 = pytest.importorskip("music21")
    tune = [
        "M:6/8",
        "K:Ebmaj",
        "|:",
        "G2",
        "A",
        "B2",
        "d",
        "|",
        "[1",
        "G6",
        ":|",
        "[2",
        "G3",
        "A3",
        "||",
        "K:Dmin",
        "M:9/8",
        "c3",
        "d3",
        "e3",
        ":|",
    ]
    score = music21.converter.parse(rendering.to_midi(tune, "Über den Wolken"), format="midi")
    assert score.parts[0].partName == "Über den Wolken"
    found = score.flatten()
    meters = found.getElementsByClass(music21.meter.TimeSignature)
    assert [(each.ratioString, each.offset) for each in meters] == [("6/8", 0), ("9/8", 12)]
    keys = [(each.sharps, each.mode, each.offset) for each in found.getElementsByClass(music21.key.Key)]
    assert keys == [(-3, "major", 0), (-1, "minor", 12)]
    assert [each.number for each in found.getElementsByClass(music21.tempo.MetronomeMark)] == [160]
    assert found.notes.last().offset + found.notes.last().quarterLength == 12 + 2 * 4.5
    modal = music21.converter.parse(rendering.to_midi(["M:3/4", "K:Edor", "G6", "|"], "x"), format="midi").flatten()
    assert [each.sharps for each in modal.getElementsByClass(music21.key.KeySignature)] == [2]


def test_what_is_written_has_the_bars_of_the_meter(tmp_path: Path) -> None:
    """Other programs read the tune with full bars: music21 its ABC and MIDI, Verovio the score."""
    music21 = pytest.importorskip("music21")
    pytest.importorskip("verovio")
    arguments = ["irish", "--meter", "6/8", "--key", "Edor", "--seed", "3"]
    for name in ("a.abc", "a.mid", "a.svg"):
        assert run(*arguments, "-o", tmp_path / name).exit_code == 0
    abc = (tmp_path / "a.abc").read_text()
    part = music21.converter.parse(abc, format="abc").parts[0]
    lengths = [measure.duration.quarterLength for measure in part.getElementsByClass(music21.stream.Measure)]
    assert lengths.count(3.0) >= 14 and all(length <= 3 for length in lengths)
    midi = music21.converter.parse((tmp_path / "a.mid").read_bytes(), format="midi").flatten()
    tune = notation.parse(abc)
    played = sum(note.eighths for note in rendering.heard(tune))
    assert played % 6 == 0  # every repeat's pickup completes the last bar before it
    last = midi.notes.last()
    assert last.offset + last.quarterLength == played / 2
    assert last.pitch.step == "E"
    assert (tmp_path / "a.svg").read_text().count('class="measure"') >= 16
