"""Files that are expensive for a careless reader: sizes and counts are limited before they are used."""

from pathlib import Path

import pytest
from attack import files

from vcdeploy.errors import VcdeployError
from vcdeploy.format import nodes, reader
from vcdeploy.runtime.backends import native_fault
from vcdeploy.runtime.model import load
from vcdeploy.training import checkpoint


def test_hostile_files_neither_hang_nor_exhaust_memory(tmp_path: Path) -> None:
    """1 MB each; `python tests/attack/files.py` tries 100 MB."""
    if (fault := native_fault()) is not None:
        pytest.skip(f"needs the native module: {fault}")
    assert files.hostile_files(tmp_path, 2**20, timed=False) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (nodes.part(7, nodes.part(5, nodes.whole(1, 2**62) * 9)), "more than 8 dimensions"),
        (nodes.part(7, nodes.part(5, nodes.part(1, b"\1" * 9))), "more than 8 dimensions"),
        (nodes.part(7, nodes.part(5, nodes.part(8, "x" * 201))), "a name has 201 bytes, more than 200"),
        (nodes.part(7, nodes.part(1, b"") * (reader.MOST_FIELDS + 1)), "more than 100,000 fields"),
        (nodes.part(7, nodes.part(5, nodes.part(3, b""))), "the field 3, which no weight has"),
        (b"", "it is empty"),
        (nodes.whole(1, 8), "it has no graph"),
    ],
)
def test_limits_are_named(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        reader.read(content)


def test_packed_dimensions_are_read_only_up_to_the_limit() -> None:
    """A list of all of them would take many times the file's size."""
    assert reader._varints(memoryview(b"\1" * 1000), reader.MOST_DIMENSIONS) == [1] * (reader.MOST_DIMENSIONS + 1)


@pytest.mark.parametrize(
    ("key", "most"), [(reader.CONFIG_KEY, reader.LONGEST_CONFIG), (reader.VOCAB_KEY, reader.LONGEST_VOCABULARY)]
)
def test_long_metadata_is_not_parsed(key: str, most: int) -> None:
    metadata = {reader.CONFIG_KEY: "{}", reader.VOCAB_KEY: "[]", key: "[" * (most + 1)}
    with pytest.raises(VcdeployError, match=rf"the {key} of it has {most + 1:,} characters, more than {most:,}"):
        reader.read_config(metadata, "it")


@pytest.mark.parametrize("name", ["model.onnx", "model", "model.safetensors"])
def test_an_empty_file_is_called_empty(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(VcdeployError, match=r"is not a complete .*\(it is empty\)") as caught:
        load(tmp_path / name)
    assert "is an ONNX file" not in str(caught.value)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"[" * 100_000, "maximum recursion depth"),
        (b"[]", "its header is not a JSON object"),
        (b'{"w": 3}', "a tensor in its header has no shape"),
        (b'{"w": {"dtype": "F32", "shape": [' + b"1," * 50_000 + b'1], "data_offsets": [0, 4]}}', "more than 8 dim"),
        (b'{"__metadata__": []}', "its metadata is not a JSON object"),
    ],
)
def test_hostile_headers_of_checkpoints(header: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "best.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)
    with pytest.raises(VcdeployError, match=said) as caught:
        checkpoint.read(path)
    assert len(str(caught.value)) < 1000


def test_a_long_header_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "best.safetensors"
    path.write_bytes((2**40).to_bytes(8, "little") + b"{}")
    with pytest.raises(VcdeployError, match=r"its header has 1,099,511,627,776 bytes, more than"):
        checkpoint.read(path)
