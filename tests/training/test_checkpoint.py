"""Checkpoints: round trips, damaged files and full disks."""

import errno
import json
import os
import pickle
import resource
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from vcdeploy.errors import VcdeployError
from vcdeploy.training import checkpoint
from vcdeploy.training.checkpoint import Checkpoint
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary


def make(dim: int = 8, seed: int = 0) -> Checkpoint:
    torch.manual_seed(seed)
    model = LanguageModel("vcgru", 5, dim, layers=2, sharpness=0.3)
    config = {
        "unit": "vcgru", "dim": dim, "layers": 2, "sharpness": 0.3, "epsilon": 1e-3, "precision": "f32",
        "kind": "text", "buffer": 0, "dropout": 0.0, "corpus": "demo",
    }  # fmt: skip
    training = {
        "state": torch.randn(2, 3, dim),
        "rng": torch.get_rng_state(),
        "adam.x.step": torch.tensor(4.0),
    }
    vocab = Vocabulary(["\n", " ", "é", "𝄞", "z"])
    return Checkpoint(config, vocab, model.state_dict(), training, {"step": 7, "best": [0.0, -0.3, 2.5]})


def test_round_trip_keeps_every_bit(tmp_path: Path) -> None:
    saved = make()
    checkpoint.write(tmp_path / "last.safetensors", saved)
    loaded = checkpoint.read(tmp_path / "last.safetensors")
    assert loaded.config == saved.config
    assert loaded.vocab == saved.vocab
    assert loaded.progress == saved.progress
    for one, other in ((saved.model, loaded.model), (saved.training, loaded.training)):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    model = loaded.build()
    assert model.sharpness == 0.3
    assert all(torch.equal(each, saved.model[name]) for name, each in model.named_parameters())
    assert os.listdir(tmp_path) == ["last.safetensors"]


def test_sharpness_is_in_the_description_only(tmp_path: Path) -> None:
    """A unit's state_dict repeats it: the two must not differ, and the file keeps one."""
    saved = make()
    assert set(saved.model) == {name for name, _ in saved.build().named_parameters()}
    whole = saved.build().state_dict()
    assert set(whole) - set(saved.model) == {"unit._extra_state"}
    for config in ({**saved.config, "sharpness": 0.4}, {**saved.config, "epsilon": 2e-3}):
        with pytest.raises(VcdeployError, match="describe the model as it is"):
            Checkpoint(config, saved.vocab, whole, {}, {})
    checkpoint.write(tmp_path / "last.safetensors", Checkpoint(saved.config, saved.vocab, whole, {}, {}))
    loaded = checkpoint.read(tmp_path / "last.safetensors")
    assert set(loaded.model) == set(saved.model)
    assert loaded.build().state_dict()["unit._extra_state"].tolist() == [0.3, 1e-3]


def test_every_truncation_and_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    checkpoint.write(path, make(dim=2))
    whole = path.read_bytes()
    for length in [0, 1, 7, 8, 100, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(VcdeployError, match="not a complete vcdeploy checkpoint"):
            checkpoint.read(path)
    header = int.from_bytes(whole[:8], "little")
    for place in range(8 + header, len(whole), 37):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with pytest.raises(VcdeployError, match="checksum"):
            checkpoint.read(path)


def test_a_pickle_is_refused_and_not_executed(tmp_path: Path) -> None:
    touched = tmp_path / "touched"

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(touched),)

    (tmp_path / "best.safetensors").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(VcdeployError, match="not a complete vcdeploy checkpoint"):
        checkpoint.read(checkpoint.find(tmp_path))
    assert not touched.exists()


def test_foreign_safetensors_and_garbled_headers_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"w": torch.zeros(3)}, path)
    with pytest.raises(VcdeployError, match="not a checkpoint of this version"):
        checkpoint.read(path)
    tensors = {"model.w": torch.zeros(3)}
    header = {"vcdeploy.format": checkpoint.FORMAT, "vcdeploy.config": json.dumps({"kind": "text"})}
    path.write_bytes(checkpoint.sealed(tensors, header))
    with pytest.raises(VcdeployError, match=r"missing or invalid in its header: 'vcdeploy.vocab'"):
        checkpoint.read(path)


def test_weights_that_do_not_fit_their_description_are_named(tmp_path: Path) -> None:
    saved = make()
    saved.config["dim"] = 9
    checkpoint.write(tmp_path / "best.safetensors", saved)
    with pytest.raises(VcdeployError, match="weights do not match its description"):
        checkpoint.read(tmp_path / "best.safetensors").build()


def test_find(tmp_path: Path) -> None:
    with pytest.raises(VcdeployError, match="no checkpoint at"):
        checkpoint.find(tmp_path / "nothing")
    with pytest.raises(VcdeployError, match="is it the folder of a run"):
        checkpoint.find(tmp_path)
    (tmp_path / "last.safetensors").touch()
    assert checkpoint.find(tmp_path).name == "last.safetensors"
    (tmp_path / "best.safetensors").touch()
    assert checkpoint.find(tmp_path).name == "best.safetensors"
    assert checkpoint.find(tmp_path, prefer="last").name == "last.safetensors"
    assert checkpoint.find(tmp_path / "last.safetensors").name == "last.safetensors"


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_keeps_the_old_file_and_rescues_the_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, elsewhere = tmp_path / "run" / "last.safetensors", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    checkpoint.write(path, make(seed=0))
    old = path.read_bytes()
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: full_disk() if "run" in os.readlink(f"/proc/self/fd/{file}") else real(file)
    )
    with pytest.raises(VcdeployError, match="No space left on device; the previous checkpoint is still at") as caught:
        checkpoint.write(path, make(seed=1))
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == ["last.safetensors"]
    (rescued,) = elsewhere.iterdir()
    assert str(rescued) in str(caught.value)
    assert torch.equal(checkpoint.read(rescued).model["output.weight"], make(seed=1).model["output.weight"])


def test_full_disk_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(VcdeployError, match=r"there is no previous checkpoint\. Free some space"):
        checkpoint.write(tmp_path / "last.safetensors", make())
    assert os.listdir(tmp_path) == []


def test_a_real_limit_of_the_system(tmp_path: Path) -> None:
    """The operating system refuses the write: a process limited to files of 4 KB."""
    path = tmp_path / "last.safetensors"
    checkpoint.write(path, make(dim=2))
    old = path.read_bytes()
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from test_checkpoint import checkpoint, make\n"
        "checkpoint.write(Path(sys.argv[2]), make(dim=64))\n"
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    result = subprocess.run(
        [sys.executable, "-B", "-c", code, str(Path(__file__).parent), str(path)],
        capture_output=True, text=True, preexec_fn=limit, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert result.returncode == 1
    assert "File too large; the previous checkpoint is still at" in result.stderr
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["last.safetensors"]


def test_a_damaged_checkpoint_names_another_one_only_if_there_is_one(tmp_path: Path) -> None:
    last, best = tmp_path / "last.safetensors", tmp_path / "best.safetensors"
    last.write_bytes(b"damaged")
    with pytest.raises(VcdeployError, match="restore it from a copy, or train again") as alone:
        checkpoint.read(last)
    assert str(alone.value).count("safetensors") == 1  # it does not name itself again
    checkpoint.write(best, make())
    with pytest.raises(VcdeployError, match=r"best\.safetensors beside it has the best model so far, to use but not"):
        checkpoint.read(last)
    last.write_bytes(best.read_bytes())
    best.write_bytes(b"damaged")
    with pytest.raises(VcdeployError, match=r"last\.safetensors beside it has the latest state of the run"):
        checkpoint.read(best)


def test_a_checkpoint_of_an_earlier_version_is_read_with_a_warning(tmp_path: Path) -> None:
    """Format 1: a CRC-32 of the tensors."""
    saved, path = make(), tmp_path / "best.safetensors"
    checkpoint.write(path, saved)
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    tensors = {f"model.{name}": each for name, each in saved.model.items()}
    tensors |= {f"training.{name}": each for name, each in saved.training.items()}
    crc = 0
    for name in sorted(tensors):
        crc = zlib.crc32(tensors[name].contiguous().numpy().tobytes(), zlib.crc32(name.encode(), crc))
    header |= {"vcdeploy.format": "vcdeploy.checkpoint.1", "vcdeploy.checksum": f"{crc:08x}"}
    save_file(tensors, path, header)
    with pytest.warns(UserWarning, match=r"0\.2 or earlier: its checksum doesn't cover the description"):
        read = checkpoint.read(path)
    assert read.config == saved.config and all(torch.equal(read.model[name], saved.model[name]) for name in saved.model)
    tensors[min(tensors)] = tensors[min(tensors)] + 1
    save_file(tensors, path, header)
    with pytest.raises(VcdeployError, match="its checksum is wrong"):
        checkpoint.read(path)
