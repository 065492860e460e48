"""`vcdeploy eval` on every backend: the figures of PyTorch, from checkpoints and from exported files."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner, Result
from small_models import scheduled

from vcdeploy import corpora
from vcdeploy.cli import main
from vcdeploy.export import build
from vcdeploy.format.checksum import seal
from vcdeploy.runtime import backends, model
from vcdeploy.runtime.native import NativeModel
from vcdeploy.spec import DENSE_UNITS, PRECISIONS
from vcdeploy.training import checkpoint
from vcdeploy.training.evaluate import evaluate
from vcdeploy.training.streams import Streams
from vcdeploy.units import LanguageModel

D, SHARPNESS = 24, 0.5
FIGURES = ("bits", "m", "m_spread", "rnn_d", "macs", "compute")


def need(backend: str) -> None:
    """Skip, and say so, where a backend is not here."""
    if backend == "native" and (fault := backends.native_fault()) is not None:
        pytest.skip(f"needs the native module: {fault}")
    if backend == "onnxruntime":
        pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = random.Random(2)
    path = tmp_path_factory.mktemp("text") / "small.txt"
    path.write_text("\n".join(" ".join(draw.choices(["ab", "café", "dead", "x2,"], k=9)) for _ in range(120)))
    return path


@pytest.fixture
def write(text: Path, tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """A run's folder with an untrained model, and the file exported from it."""

    def written(unit: str, layers: int = 1, precision: str = "f32", **more: Any) -> tuple[Path, Path]:
        corpus = corpora.load(str(text), **more)
        torch.manual_seed(6)
        network = scheduled(LanguageModel(unit, len(corpus.vocab), D, layers=layers, sharpness=SHARPNESS))
        config = {
            "unit": unit, "dim": D, "layers": layers, "sharpness": SHARPNESS, "epsilon": 1e-3, "precision": "f32",
            "kind": corpus.kind, "buffer": corpus.vocab.buffer, "dropout": 0.0, "corpus": str(text),
        }  # fmt: skip
        saved = checkpoint.Checkpoint(config, corpus.vocab, network.state_dict(), {}, {"step": 1})
        checkpoint.write(tmp_path / "run" / "best.safetensors", saved)
        if unit != "crnn":
            onnx.save(build(saved, precision=precision), tmp_path / "model.onnx")
        return tmp_path / "run", tmp_path / "model.onnx"

    return written


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["eval", *map(str, arguments)])


def measured(*arguments: str | Path) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.parametrize("backend", ["native", "onnxruntime"])
@pytest.mark.parametrize(("unit", "layers"), [("vcrnn", 1), ("vcgru", 2), ("vclstm", 1)])
def test_every_backend_has_the_figures_of_pytorch(
    backend: str, unit: str, layers: int, write: Callable[..., tuple[Path, Path]]
) -> None:
    need(backend)
    folder, exported = write(unit, layers)
    reference = measured(folder)
    assert (reference["backend"], reference["precision"]) == ("torch", "f32")
    for path in (folder, exported):
        figures = measured(path, "--backend", backend)
        assert (figures["backend"], figures["precision"]) == (backend, "f32")
        assert figures["symbols"] == reference["symbols"]
        assert figures["bits"] == pytest.approx(reference["bits"], abs=1e-4)
        for name in FIGURES[1:]:  # a mask that falls the other way at its edge moves a by one
            assert figures[name] == pytest.approx(reference[name], rel=1e-3)
        assert figures["classes"].keys() == reference["classes"].keys()
        for name, row in reference["classes"].items():
            assert figures["classes"][name]["m"] == pytest.approx(row["m"], abs=1e-5)


@pytest.mark.parametrize("kind", ["text", "bits"])
@pytest.mark.parametrize("batch", [1, 7])
def test_a_crnn_knows_its_boundaries(kind: str, batch: int, write: Callable[..., tuple[Path, Path]]) -> None:
    """As evaluation in training does, which is given them."""
    folder, _ = write("crnn", kind=kind, **({"buffer": 8} if kind == "bits" else {}))
    saved = checkpoint.read(folder / "best.safetensors")
    corpus = corpora.load(saved.config["corpus"], vocab=saved.vocab)
    boundaries, period = corpus.boundaries("valid"), corpus.vocab.period
    streams = Streams(corpus.splits["valid"], batch, 100, boundaries=boundaries, exact=True, period=period)
    tally, _ = evaluate(saved.build(), streams)
    wanted = tally.summary("crnn", D, corpus.vocab)
    figures = measured(folder, "--split", "valid", "--batch", str(batch))
    assert figures["backend"] == "torch"
    for name in FIGURES:
        assert figures[name] == pytest.approx(wanted[name], rel=1e-6)


@pytest.mark.parametrize("unit", DENSE_UNITS)
def test_an_exported_dense_baseline(unit: str, write: Callable[..., tuple[Path, Path]]) -> None:
    need("native")
    need("onnxruntime")
    folder, exported = write(unit, 2)
    reference = measured(folder, "--backend", "torch")
    for options, backend in (((), "native"), (("--backend", "onnxruntime"), "onnxruntime")):
        figures = measured(exported, *options)
        assert figures["backend"] == backend and figures["m"] == 1
        for name in FIGURES:
            assert figures[name] == pytest.approx(reference[name], abs=1e-4)


@pytest.mark.parametrize("precision", [each for each in PRECISIONS if each != "f32"])
def test_precision(precision: str, write: Callable[..., tuple[Path, Path]]) -> None:
    """Asked for or stored, it is what runs and what is said; and it is near f32, but not the same."""
    need("native")
    folder, exported = write("vcgru", 2, precision)
    whole = measured(folder, "--backend", "native")["bits"]
    for path, option, value in ((folder, "--precision", precision), (exported, "--backend", "native")):
        figures = measured(path, option, value)
        assert (figures["backend"], figures["precision"]) == ("native", precision)
        assert 0 < abs(figures["bits"] - whole) < 0.02
    refused = run(folder, "--backend", "torch", "--precision", precision)
    assert refused.exit_code == 2
    reason = f"is f32, and the torch backend can't change the precision of a file: create one in {precision}"
    assert reason in refused.stderr


def test_what_ran_is_said(write: Callable[..., tuple[Path, Path]], tmp_path: Path) -> None:
    need("native")
    folder, exported = write("vcgru")
    assert "torch backend, f32" in run(folder).stdout
    assert "native backend, f32" in run(exported).stdout
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    exported.rename(bundle / "model.onnx")
    shown = run(bundle, "--backend", "auto", "--split", "valid")
    assert "native backend, f32" in shown.stdout
    assert "bits per character" in shown.stdout


def test_the_requested_threads_are_used(
    write: Callable[..., tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    need("native")
    asked: list[int] = []
    real = NativeModel.__init__

    def noted(self: NativeModel, *arguments: Any, threads: int, **options: Any) -> None:
        asked.append(threads)
        real(self, *arguments, threads=threads, **options)

    monkeypatch.setattr(NativeModel, "__init__", noted)
    folder, _ = write("vcgru")
    measured(folder, "--backend", "native")
    measured(folder, "--backend", "native", "--threads", "2")
    assert asked == [1, 2]


def test_a_file_that_names_no_corpus(write: Callable[..., tuple[Path, Path]], text: Path) -> None:
    _, exported = write("vcgru")
    model = onnx.load(exported)
    for each in model.metadata_props:
        if each.key == "vcdeploy.config":
            each.value = json.dumps({k: v for k, v in json.loads(each.value).items() if k != "corpus"})
    onnx.save(seal(model), exported)
    result = run(exported)
    assert result.exit_code == 1
    assert "does not say what it was trained on: name a corpus" in result.stderr
    assert measured(exported, text)["symbols"] > 0


def test_a_model_that_answers_nan_is_an_error(
    write: Callable[..., tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = write("vcgru")
    real = model.Model.run

    def diverged(self: model.Model, *arguments: Any) -> Any:
        logits, state, m = real(self, *arguments)
        return logits * np.float32("nan"), state, m

    monkeypatch.setattr(model.Model, "run", diverged)
    result = run(folder, "--json")
    assert result.exit_code == 1
    assert "a probability of 0 or NaN (torch, f32)" in result.stderr
    assert result.stdout == ""
