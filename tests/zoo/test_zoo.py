"""The pretrained models: files that run on every backend, cards that match them, and loading by name."""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import vcdeploy
from vcdeploy import zoo
from vcdeploy.bench.zoo_entry import FREE, LOSS
from vcdeploy.cli import main
from vcdeploy.corpora import CATALOGUE
from vcdeploy.errors import VcdeployError
from vcdeploy.extras import EXTRAS
from vcdeploy.runtime.backends import FUNCTION_BODY, native_fault
from vcdeploy.runtime.sampling import Reader
from vcdeploy.runtime.sources import open_source

NAMES = ["english", "irish"]
PRIMES = {"english": "The prime min", "irish": "M:6/8 K:Gmaj |:"}


def test_both_are_here() -> None:
    assert zoo.names() == NAMES
    assert zoo.DEFAULT in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_card_fits_the_file(name: str) -> None:
    card, content, source = zoo.card(name), zoo.model_file(name).read_bytes(), open_source(name)
    assert card["name"] == name
    assert card["file"] == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert len(content) <= zoo.LARGEST
    model = card["model"]
    assert model["symbols"] == len(source.vocab)
    assert model["weights"] == sum(each.values.size for each in source.weights().values())
    for key in ("unit", "dim", "layers", "precision", "sharpness", "kind"):
        assert model[key] == source.config[key], key
    entry = CATALOGUE[source.config["corpus"]]
    assert entry.name in FREE
    assert card["data"] == {
        "corpus": entry.name, "title": entry.title, "page": entry.page, "licence": entry.licence, "split": entry.split,
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_card_has_every_required_entry(name: str) -> None:
    card = zoo.card(name)
    words = shlex.split(card["training"]["command"])
    assert words[:3] == ["vcdeploy", "train", card["data"]["corpus"]]
    assert not re.search(r"[\s\"'=]/\w", json.dumps(card)), "a local path"
    file, run = (card["quality"][each] for each in ("file", "run"))
    assert (file["precision"], run["backend"], run["precision"]) == (card["model"]["precision"], "torch", "f32")
    assert file["symbols"] == run["symbols"] > 10_000
    assert file["bits"] <= run["bits"] * (1 + LOSS)
    for measured in (file, run):
        assert 0 < measured["m"] < 1 and measured["rnn_d"] > 0 and measured["macs"] > 0
    speed = card["speed"]
    assert speed["command"].startswith(f"vcdeploy bench {name} ")
    assert speed["tokens_per_second"] > 0 and speed["machine"] and speed["date"]


def test_the_figures_of_a_card_are_reproduced() -> None:
    """For irish, whose test split is small and comes with music21."""
    pytest.importorskip("music21")
    result = CliRunner().invoke(main, ["eval", "irish", "--json"])
    assert result.exit_code == 0, result.stderr
    found, card = json.loads(result.stdout), zoo.card("irish")["quality"]["file"]
    assert found["symbols"] == card["symbols"]
    assert found["bits"] == pytest.approx(card["bits"], abs=1e-4)
    for key in ("m", "rnn_d", "macs"):
        assert found[key] == pytest.approx(card[key], rel=1e-3)


@cache
def written(name: str, backend: str) -> list[int]:
    """A few symbols generated after the prime."""
    model = vcdeploy.load(name, backend)
    assert (model.backend, model.precision) == (backend.partition(":")[0], zoo.card(name)["model"]["precision"])
    return list(model.generate(model.vocab.encode(PRIMES[name]), 25, seed=1))


@pytest.mark.parametrize("backend", ["native", "onnxruntime", FUNCTION_BODY])
@pytest.mark.parametrize("name", NAMES)
def test_every_backend_generates_the_same(name: str, backend: str) -> None:
    if backend == "native" and (fault := native_fault()) is not None:
        pytest.skip(f"needs the native module: {fault}")
    if backend.startswith("onnxruntime"):
        pytest.importorskip("onnxruntime")
    assert written(name, backend) == written(name, "torch")


def test_prime_minister() -> None:
    """The most likely letters after "The prime min", and m on them compared with m on first letters."""
    model = vcdeploy.load("english")
    text = "The prime min"
    made = model.vocab.decode(list(model.generate(model.vocab.encode(text), 5, temperature=0)))
    assert made == "ister"
    text += "ister of this country has said that the European Parliament must now take a decision."
    _, m = Reader(model).read(model.vocab.encode(text))
    first = np.array([at for at in range(len(text)) if text[at].isalpha() and (at == 0 or text[at - 1] == " ")])
    inside = np.arange(text.index("ister"), text.index("ister") + 5)
    assert len(first) == 17
    assert m[inside].mean() < m[first].mean()
    assert m[inside].max() < np.median(m[first])


def test_a_name_comes_before_a_file_and_a_path_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("english").write_bytes(zoo.model_file("irish").read_bytes())
    assert vcdeploy.load("english").vocab.kind == "text"
    for path in ("./english", Path("english")):
        assert vcdeploy.load(path).vocab.kind == "music"
    assert sample("./english", "--length", "5").startswith("X:1\n")
    assert sample("--length", "5") == sample("english", "--length", "5")


def sample(*words: str) -> str:
    result = CliRunner().invoke(main, ["sample", *words])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(VcdeployError, match=r"did you mean english\?.*a pretrained model: english, irish"):
        vcdeploy.load("englsh")
    for command in ("sample", "eval", "bench", "zoo"):
        result = CliRunner().invoke(main, [command, "irisch"])
        assert result.exit_code == 1
        assert "did you mean irish?" in result.stderr and "english, irish" in result.stderr


def test_a_fresh_install_samples_with_the_base_packages_only(tmp_path: Path) -> None:
    code = (
        f"import sys\nfor module in {sorted(EXTRAS)}: sys.modules[module] = None\n"
        "from vcdeploy.cli import main; main(['sample', '--prime', 'The prime min', '--length', '50'])"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("The prime min")
    assert result.stderr.startswith("native")


@pytest.mark.parametrize("command", ["sample", "eval", "bench", "zoo"])
def test_names_complete_and_so_do_files(command: str) -> None:
    words = {"COMP_WORDS": f"vcdeploy {command} i", "COMP_CWORD": "2", "_VCDEPLOY_COMPLETE": "bash_complete"}
    result = subprocess.run(
        [sys.executable, "-m", "vcdeploy"], env=os.environ | words, capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[0] == "plain,irish"
    assert "file,i" in result.stdout.splitlines()


def test_the_list_and_the_card_are_shown() -> None:
    shown = CliRunner().invoke(main, ["zoo"]).stdout
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert {"english", "irish"} <= lines.keys()
    assert f"perplexity {zoo.card('irish')['quality']['file']['perplexity']:.2f}" in lines["irish"]
    assert f"{zoo.card('english')['quality']['file']['bits']:.3f} bits" in lines["english"]
    card = " ".join(CliRunner().invoke(main, ["zoo", "english"]).stdout.split())
    for said in (zoo.card("english")["training"]["command"], zoo.card("english")["file"]["sha256"], "Apache-2.0"):
        assert said in card
    assert json.loads(CliRunner().invoke(main, ["zoo", "english", "--json"]).stdout) == zoo.card("english")
    every: list[Any] = json.loads(CliRunner().invoke(main, ["zoo", "--json"]).stdout)
    assert every == [zoo.card(name) for name in NAMES]


def test_the_readme_has_the_figures_of_the_cards() -> None:
    root = Path(__file__).parents[2]
    readme, page = (
        " ".join((root / file).read_text(encoding="utf-8").split()) for file in ("README.md", "docs/pretrained.md")
    )
    for name in NAMES:
        card = zoo.card(name)
        model, file = card["model"], card["quality"]["file"]
        test = f"perplexity {file['perplexity']:.2f}" if name == "irish" else f"{file['bits']:.3f} bits/char"
        cells = [
            f"`{name}`", f"{model['unit'].upper()}-{model['dim']}, {model['precision']}", card["data"]["corpus"],
            f"{card['file']['bytes'] / 1e6:.1f} MB", test, f"{file['m']:.2f}", f"{file['rnn_d']:.0f}",
            f"{card['speed']['tokens_per_second']:,.0f}",
        ]  # fmt: skip
        row = f"| {' | '.join(cells)} |"
        assert row in readme and row in page
    m = zoo.card("english")["quality"]["file"]["m_by_class"]
    caption = "{start of word:.2f} on first letters of words, {inside word:.2f} inside words and {white space:.2f} on"
    assert caption.format(**m) in page
    faster = " and ".join(f"{zoo.card(name)['speed']['times_the_baseline']:.1f}" for name in NAMES)
    assert f"{faster} times the tokens/s of a dense GRU" in page


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_of_a_card_are_accepted(name: str) -> None:
    """Click rejects an unknown option before it acts on --help."""
    card = zoo.card(name)
    for part in ("training", "quality", "speed"):
        program, *words = shlex.split(card[part]["command"])
        assert program == "vcdeploy"
        result = CliRunner().invoke(main, [*words, "--help"])
        assert result.exit_code == 0, result.output
