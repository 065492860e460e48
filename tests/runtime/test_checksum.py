"""The checksum of model files and checkpoints: a flipped bit is refused, or changes nothing."""

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from attack import files
from exported import exported
from fuzz import write_originals

from vcdeploy.errors import VcdeployError
from vcdeploy.format import checksum, reader
from vcdeploy.runtime.backends import native_fault
from vcdeploy.runtime.model import load


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("originals")
    write_originals(folder)
    return folder


@pytest.mark.filterwarnings("ignore:.*has no checksum")  # if the flip hits the name of the checksum
def test_no_flipped_bit_changes_a_result(originals: Path) -> None:
    if (fault := native_fault()) is not None:
        pytest.skip(f"needs the native module: {fault}")
    assert files.flips_in_models(originals, 400) == []


def test_no_flipped_bit_changes_a_checkpoint(originals: Path) -> None:
    assert files.flips_in_headers(originals, 500) == []


def test_every_word_and_every_bit_counts() -> None:
    """In whole rows and after them; parts are told apart."""
    draw = random.Random(0)
    size = 3 * 8 * checksum.WORDS + 1234
    content = bytearray(draw.randbytes(size))
    wanted = checksum.checksum(bytes(content))
    for place in [*range(64), *(draw.randrange(size) for _ in range(300)), size - 1]:
        for bit in (1, 0x80):
            content[place] ^= bit
            assert checksum.checksum(bytes(content)) != wanted, place
            content[place] ^= bit
    assert checksum.checksum(bytes(content)) == wanted
    assert checksum.checksum(bytes(content[:100]), bytes(content[100:])) != wanted
    assert checksum.checksum(memoryview(content)[8:]) != wanted
    assert checksum.checksum() != checksum.checksum(b"")


def test_the_checksum_of_a_known_content() -> None:
    """Files must stay readable: the checksum of a content never changes."""
    content = np.arange(5000, dtype="<u8").tobytes()
    assert checksum.checksum(content) == "ff21cfeeeceb1108f9653da4056127c0dc8e65b9f24e9858b7299e981f5971c1"


def test_a_file_without_checksum_loads_with_a_warning(tmp_path: Path) -> None:
    """As written by version 0.2 and earlier."""
    model = exported()
    assert model.metadata_props[-1].key == checksum.KEY
    del model.metadata_props[-1]
    onnx.save(model, tmp_path / "old.onnx")
    with pytest.warns(UserWarning, match=r"old\.onnx has no checksum, so damage to it can't be detected"):
        load(tmp_path / "old.onnx", "torch")


def test_an_edited_file_is_refused_until_it_is_sealed_again(tmp_path: Path) -> None:
    model = exported()
    model.graph.doc_string = "edited"
    onnx.save(model, tmp_path / "edited.onnx")
    with pytest.raises(VcdeployError, match="doesn't match its checksum: it was damaged or edited"):
        load(tmp_path / "edited.onnx", "onnxruntime")
    onnx.save(checksum.seal(model), tmp_path / "edited.onnx")
    assert load(tmp_path / "edited.onnx", "onnxruntime").config["unit"] == "vcgru"
    assert [each.key for each in model.metadata_props].count(checksum.KEY) == 1
    assert reader.read(model.SerializeToString()).sealed
