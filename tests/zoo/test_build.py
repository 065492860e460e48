"""Building a zoo entry: its card, and failures that leave the zoo unchanged."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import scheduled

from vcdeploy import zoo
from vcdeploy.bench import zoo_entry as build
from vcdeploy.errors import VcdeployError
from vcdeploy.export import build as exported
from vcdeploy.training import checkpoint
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

VOCAB = Vocabulary("\n abcdef")
MEASURED = {
    "backend": "native", "precision": "f16", "symbols": 999, "bits": 2.123456789, "m": 0.3, "m_spread": 0.1,
    "rnn_d": 9.0, "macs": 500.0, "compute": 0.1, "classes": {"letter": {"symbols": 9, "m": 0.25}},
}  # fmt: skip
TIMED = {
    "machine": {"processor": "P", "cores": 2, "system": "S", "load": 0.1}, "baseline": "onnxruntime gru",
    "settings": {"threads": 1}, "date": "2026-01-01", "engines": [
        {"name": "onnxruntime gru", "scenarios": {}},
        {"name": "native f16 + table", "scenarios": {
            "generate": {"symbols_per_second": 1e5, "p50": 10.0, "ratio": 7.0, "m": {"mean": 0.3}}}},
    ],
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder."""
    torch.manual_seed(0)
    config = {
        "unit": "vcgru", "dim": 12, "layers": 1, "sharpness": 0.5, "epsilon": 1e-3, "precision": "f32", "kind": "text",
        "buffer": 0, "dropout": 0.0, "corpus": "demo", "epochs": 0.5,
    }  # fmt: skip
    network = scheduled(LanguageModel("vcgru", len(VOCAB), 12, sharpness=0.5))
    saved = checkpoint.Checkpoint(config, VOCAB, network.state_dict(), {}, {"step": 7, "epoch": 0.5})
    for name in ("best", "last"):
        checkpoint.write(tmp_path / "run" / f"{name}.safetensors", saved)
    about = {"command": "vcdeploy train demo --out 'my runs/it' --dim 12", "date": "2026-01-01", "machine": "M",
             "vcdeploy": "0", "torch": "2", "python": "3", "config": config}  # fmt: skip
    (tmp_path / "run" / "run.json").write_text(json.dumps(about))
    return tmp_path / "run"


@pytest.fixture
def bits() -> dict[str, float]:
    """Bits per symbol, by the name of the evaluated file or folder."""
    return {"run": 2.12, "new.onnx": 2.123456789}


@pytest.fixture(autouse=True)
def empty_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: dict[str, float]) -> Path:
    """An empty zoo, with commands replaced by fast stand-ins."""

    def vcdeploy(command: str, model: str, *words: str) -> str:
        if command == "export":
            saved = checkpoint.read(Path(model) / "best.safetensors")
            Path(words[-1]).write_bytes(exported(saved, precision=words[1]).SerializeToString())
        if command == "eval":
            return json.dumps(MEASURED | {"bits": bits[Path(model).name]})
        assert words[-2:] == ("--json", "-") or command == "export"
        return json.dumps(TIMED)

    monkeypatch.setattr(build, "_vcdeploy", vcdeploy)
    monkeypatch.setattr(zoo, "FOLDER", tmp_path / "zoo")
    return tmp_path / "zoo"


def test_an_entry_is_a_file_and_its_card(run: Path, empty_zoo: Path) -> None:
    card = build.build("new", run, "f16")
    assert zoo.names() == ["new"]
    assert zoo.card("new") == card
    assert sorted(path.name for path in empty_zoo.iterdir()) == ["new.json", "new.onnx"]
    assert card["training"]["command"] == "vcdeploy train demo --dim 12"
    assert (card["training"]["step"], card["training"]["epoch"]) == (7, 0.5)
    assert card["quality"]["file"]["bits"] == 2.12346
    assert card["quality"]["file"]["m_by_class"] == {"letter": 0.25}
    assert card["speed"]["command"].startswith("vcdeploy bench new --scenario generate --precision f16")
    assert (card["speed"]["tokens_per_second"], card["speed"]["times_the_baseline"]) == (1e5, 7.0)


def test_speed_can_be_taken_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.build("new", run, "f16")
    monkeypatch.setitem(TIMED, "date", "2027-01-01")
    after = build.timed_again("new")
    assert after["speed"]["date"] == "2027-01-01"
    assert zoo.card("new") == before | {"speed": after["speed"]}
    with pytest.raises(VcdeployError, match="the zoo has no old, only new: give the run"):
        build.timed_again("old")


def test_what_is_refused_leaves_the_zoo_as_it_was(
    run: Path, empty_zoo: Path, bits: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(message: str) -> None:
        with pytest.raises(VcdeployError, match=message):
            build.build("new", run, "f16")
        assert not empty_zoo.exists()

    with monkeypatch.context() as changed:
        changed.setattr(zoo, "LARGEST", 100)
        refused("bytes in f16; the limit of an entry is 100: use a narrower --precision")
    with monkeypatch.context() as changed:
        changed.setitem(bits, "new.onnx", 2.2)
        refused(r"f16 costs too much: 2.1200 bits become 2.2000")
    about: dict[str, Any] = json.loads((run / "run.json").read_text())
    about["config"]["epochs"] = 0.6
    (run / "run.json").write_text(json.dumps(about))
    refused("is at epoch 0.5 of 0.6: let it finish first")
    about["config"]["epochs"] = 0.5
    about["command"] = "vcdeploy train --resume runs/x"
    (run / "run.json").write_text(json.dumps(about))
    refused("does not say how the run began")
    for corpus, why in (("ptb", r"not open \(LDC\)"), ("my-book.txt", "its licence is not known")):
        about["config"]["corpus"] = corpus
        (run / "run.json").write_text(json.dumps(about))
        refused(f"the zoo takes no models of {corpus}.*{why}")
    (run / "run.json").unlink()
    refused("is this the folder of a finished run")
