"""`vcdeploy trace` as a user types it: strips, tables, every format, and what is said where it can't be done."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_models
from click.testing import CliRunner, Result
from outcomes import refused, said
from small_models import BITS, MUSIC, TEXT, TUNE

from vcdeploy import cli
from vcdeploy.analysis import peaks
from vcdeploy.corpora.catalogue import irish_folder
from vcdeploy.runtime.model import load
from vcdeploy.training import checkpoint
from vcdeploy.vocabulary import Vocabulary

SENTENCE = "the tin man ran on."


def write(folder: Path, vocab: Vocabulary, unit: str = "vcgru", layers: int = 1) -> Path:
    weights = small_models.network(unit, layers, vocab).state_dict()
    saved = checkpoint.Checkpoint(small_models.config(unit, layers, vocab), vocab, weights, {}, {})
    checkpoint.write(folder / "best.safetensors", saved)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {vocab.kind: write(tmp_path_factory.mktemp(vocab.kind), vocab) for vocab in (TEXT, BITS, MUSIC)}


def run(*arguments: str | Path, given: str | None = None, **environment: str) -> Result:
    runner = CliRunner(env={"NO_COLOR": None, "FORCE_COLOR": None, "COLUMNS": "80", **environment})
    return runner.invoke(cli.main, ["trace", *map(str, arguments)], input=given, prog_name="vcdeploy")


def shown(*arguments: str | Path, **more: Any) -> str:
    result = run(*arguments, **more)
    assert result.exit_code == 0, result.output
    return result.stdout


def fractions(path: Path, text: str) -> Any:
    model = load(path)
    return model.run(model.vocab.encode(text)[:, None])[2][:, 0].mean(-1)


def digits(m: Any) -> str:
    return "".join(str(int(10 * each)) for each in m)


def test_the_strip_is_the_text_and_its_m(models: dict[str, Path]) -> None:
    result = run(models["text"], "--text", SENTENCE, "--text", "on")
    m = fractions(models["text"], SENTENCE)
    assert result.stdout == f"{SENTENCE}\n{digits(m)}\n\non\n{digits(fractions(models['text'], 'on'))}\n"
    model = load(models["text"])
    a = r"mean a \d+ of 12"
    digits_are, summary = result.stderr.splitlines()
    assert digits_are == "digits: m in tenths, 4 is 0.4 to 0.5"
    assert re.fullmatch(
        rf"{model.backend}.*, f32 · 21 symbols · \d\.\d+ bits per symbol · mean m 0\.\d+ · {a}", summary
    )
    narrow = shown(models["text"], "--text", SENTENCE, COLUMNS="12").splitlines()
    assert narrow[::2] == ["the tin man", "ran on."]


def test_colours_where_there_are_some(models: dict[str, Path]) -> None:
    coloured = shown(models["text"], "--text", SENTENCE, FORCE_COLOR="1", TERM="xterm-256color")
    strip, scale = coloured.splitlines()
    assert len(re.findall(r"\x1b\[38;5;\d+;48;5;\d+m.\x1b\[0m", strip)) == len(SENTENCE)
    assert re.sub(r"\x1b\[[\d;]*m", "", strip) == SENTENCE
    assert re.sub(r"\x1b\[[\d;]*m", "", scale) == "m  0 " + " " * 20 + " 1"


def test_bits_and_tunes(models: dict[str, Path]) -> None:
    bits = shown(models["bits"], "--text", "é!").splitlines()
    # Two bytes of é and one of !, each with its buffer.
    assert bits[0] == "· 1100001100000000  é 1010100100000000  ! 0010000100000000"
    assert bits[1].split() == [digits(fractions(models["bits"], "é!")[at : at + 16]) for at in (0, 16, 32)]
    tune = shown(models["music"], "--text", TUNE).splitlines()
    assert " ".join(tune[0].split()) == TUNE
    assert tune[1].split() == list(digits(fractions(models["music"], TUNE)))


def test_files_and_standard_input(models: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "text").write_text(SENTENCE + "\n")
    strip = shown(models["text"], "--text", SENTENCE)
    assert shown(models["text"], "--file", tmp_path / "text") == f"{tmp_path / 'text'}\n{strip}"
    assert shown(models["text"], "--file", "-", given=SENTENCE) == f"standard input\n{strip}"
    assert "cannot read the text" in said(run(models["text"], "--file", tmp_path / "none"))
    (tmp_path / "strange").write_text("on\nthe Z")
    message = refused(run(models["text"], "--file", tmp_path / "text", "--file", tmp_path / "strange"))
    assert f"{tmp_path / 'strange'}: 'Z' (U+005A) at line 2, column 5, is not among" in message


def test_models_and_texts_pair_up(models: dict[str, Path], tmp_path: Path) -> None:
    other = write(tmp_path / "other", TEXT, "vcrnn")
    both = run(models["text"], other, "--text", "on", "--text", "no")
    one, two = digits(fractions(models["text"], "on")), digits(fractions(other, "no"))
    assert both.stdout == f"{models['text']}\non\n{one}\n\n{other}\nno\n{two}\n"
    said_of = [line.partition(": ")[0] for line in both.stderr.splitlines()]
    assert said_of == ["digits", str(models["text"]), str(other)]
    assert shown(models["text"], other, "--text", "on").count("\non\n") == 2
    message = refused(run(models["text"], other, "--text", "a", "--text", "a", "--text", "a"))
    assert "2 models and 3 texts don't make pairs" in message


def test_pretrained_models_go_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown("irish", "--text", "M:6/8 K:Gmaj G2 A").splitlines()[0].split() == ["M:6/8", "K:Gmaj", "G2", "A"]
    monkeypatch.setattr("vcdeploy.zoo.DEFAULT", "irish")
    assert shown("--text", "G2 A") == shown("irish", "--text", "G2 A")


def test_dimensions_in_the_terminal(models: dict[str, Path]) -> None:
    lines = shown(models["text"], "--text", SENTENCE, "--dimensions").splitlines()
    assert lines[0] == SENTENCE
    assert len(lines) == 2 + 12 + 1
    assert lines[-1].startswith("dimensions 1 (lowest row) to 12 (highest)")
    a = load(models["text"])
    m = fractions(models["text"], SENTENCE)
    assert a.config["dim"] == 12
    for place, fraction in enumerate(m):
        untouched = [row[place : place + 1] in ("", " ") for row in lines[2:14]]  # the highest dimension first
        active = int(12 * fraction + np.log(999) / 2)
        assert all(untouched[: max(0, 12 - active)]) and not untouched[-1]
    few = shown(models["text"], "--text", SENTENCE, "--dimensions", "3-5").splitlines()
    assert len(few) == 2 + 3 + 1
    for wrong in ("0-4", "3-13", "x", "5-4"):
        assert "give two numbers from 1 to 12" in refused(run(models["text"], "--text", "on", f"--dimensions={wrong}"))


def test_classes_and_words(models: dict[str, Path]) -> None:
    out = shown(models["text"], "--text", SENTENCE, "--classes", "--words", "--rise", "0.02")
    m = fractions(models["text"], SENTENCE)
    space = m[[at for at, each in enumerate(SENTENCE) if each == " "]].mean()
    assert re.search(rf"white space +4 +{space:.4f} +{space / m.mean():.2f}", out)
    word = m[8:11]
    mark = "m-an" if peaks(word, 0.02) else "man"
    assert re.search(rf"{mark} +1 +{' '.join(f'{100 * each:.0f}' for each in word)}", out)
    assert "reads music" in said(run(models["music"], "--text", TUNE, "--words"))
    short = shown(models["text"], "--text", "a", "--words").splitlines()
    assert short[-2].index("times") + len("times") == short[-1].index("  ", 10)  # right-aligned under its heading
    assert "there are no words" in shown(models["text"], "--text", ". .", "--words")
    assert "--rise is for --words" in refused(run(models["text"], "--text", "a", "--rise", "0.1"))
    assert re.search(r"note length 1/2 +2 ", shown(models["music"], "--text", TUNE, "--classes"))


def test_every_format(models: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    outputs = [tmp_path / "new" / f"trace.{suffix}" for suffix in ("png", "SVG", "html", "json")]
    arguments = ["--text", SENTENCE, "--text", "on", "--dimensions", "--classes", "--words"]
    for output in outputs:
        arguments += ["-o", str(output)]
    result = run(models["text"], *arguments)
    assert result.exit_code == 0, result.output
    assert SENTENCE not in result.stdout and "white space" in result.stdout
    assert result.stderr.count("wrote ") == 4
    png, svg, html, document = (output.read_bytes() for output in outputs)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert svg.startswith(b"<?xml") and b"<svg" in svg and b"dc:date" not in svg
    assert html.startswith(b"<!doctype html>") and html.count(b'role="option"') == len(SENTENCE) + 2
    read = json.loads(document)
    first = read["traces"][0]
    model = load(models["text"])
    logits, _, m = model.run(model.vocab.encode(SENTENCE)[:, None])
    assert first["symbols"] == list(SENTENCE)
    assert np.allclose(first["m"], m[:, 0], atol=1e-6)
    assert first["probability"][0] is None and first["entropy"][0] is None
    wide = logits[0, 0].astype(float)
    p = np.exp(wide) / np.exp(wide).sum()
    assert first["probability"][1] == pytest.approx(p[model.vocab.encode("h")[0]], rel=1e-5)
    assert np.shape(first["changes"]) == (len(SENTENCE), 1, 12)
    assert read["dimensions"] == [1, 12]
    assert read["classes"]["white space"]["symbols"] == 4
    assert {word["word"].replace("-", "") for word in read["words"]} == {"the", "tin", "man", "ran", "on"}
    again = tmp_path / "again.svg"
    arguments = ["--text", SENTENCE, "--text", "on", "--dimensions", "--words", "-o", str(again)]
    assert run(models["text"], *arguments).exit_code == 0
    assert again.read_bytes() == svg


@pytest.mark.parametrize("backend", ["native", "onnxruntime", "torch"])
def test_every_backend_traces_the_same(models: dict[str, Path], backend: str, tmp_path: Path) -> None:
    if backend == "onnxruntime":
        pytest.importorskip("onnxruntime")
    found = {}
    for each in ("torch", backend):
        output = tmp_path / f"{each}.json"
        result = run(models["text"], "--text", SENTENCE, "--dimensions", "--backend", each, "-o", output)
        assert result.exit_code == 0, result.output
        assert each in result.stderr
        found[each] = json.loads(output.read_text())["traces"][0]
    for key in ("m", "changes", "probability", "entropy"):
        one, two = (np.array(found[each][key], float) for each in ("torch", backend))
        assert np.allclose(one, two, atol=1e-4, equal_nan=True), key


def test_a_tune_of_the_corpus(models: dict[str, Path]) -> None:
    if irish_folder() is None:
        pytest.skip("needs the corpus irish: install music21")
    assert "and english reads text" in refused(run("english", "--tune", "The Kid on the Mountain"))
    message = refused(run(models["music"], "--tune", "The Kid on the Mountain"))
    assert re.search(r"'.*', symbol \d+ of tune 1, is not among the", message)
    assert "no tune of irish is called 'Kit on the Mountain'; the closest are kid on the mountain" in said(
        run(models["music"], "--tune", "Kit on the Mountain")
    )


def test_what_can_not_be_traced(models: dict[str, Path], tmp_path: Path) -> None:
    text = models["text"]
    assert "'Z' (U+005A) at line 1, column 3, is not among the 24 symbols" in refused(run(text, "--text", "onZ"))
    assert "no symbol in the text" in said(run(text, "--text", ""))
    assert "no model at" in said(run(tmp_path / "none", "--text", "on"))
    assert "has to end in .png, .svg, .html, .json" in refused(run(text, "--text", "on", "-o", tmp_path / "a.gif"))
    assert "backend can't change the precision of a file" in refused(
        run(text, "--text", "on", "--backend", "torch", "--precision", "int8")
    )
    (tmp_path / "file").touch()
    assert "could not write" in said(run(text, "--text", "on", "-o", tmp_path / "file" / "a.html"))
    dense = write(tmp_path / "dense", TEXT, "gru")
    assert "is a gru, which updates all of its state at every step" in said(run(dense, "--text", "on"))


def test_a_missing_library_names_the_extra(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = said(run(models["text"], "--text", "on", "-o", tmp_path / "a.png"))
    assert 'a .png file needs matplotlib, which is not installed; run: pip install "matplotlib>=3.8"' in message
    assert run(models["text"], "--text", "on", "-o", tmp_path / "a.html").exit_code == 0


def test_without_a_text_an_example_is_shown(models: dict[str, Path]) -> None:
    assert shown().splitlines()[0] == "The prime minister said that the European Union has to change."
    assert shown("irish").splitlines()[0].split()[:2] == ["M:6/8", "K:Gmaj"]
    for path in models.values():  # these lack most of the symbols of the examples
        assert len(shown(path).splitlines()) >= 2
