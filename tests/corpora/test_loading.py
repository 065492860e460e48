"""Loading a user's own files: what is read, how it is split, and the error message for each mistake."""

import contextlib
import lzma
import os
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from vcdeploy.corpora import Corpus, files, load
from vcdeploy.errors import VcdeployError
from vcdeploy.vocabulary import Vocabulary

LINES = "".join(f"line {i} of the text, with é\n" for i in range(100))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.txt"
    path.write_text(LINES, encoding="utf-8")
    return path


def texts(corpus: Corpus) -> dict[str, str]:
    return {split: corpus.vocab.decode(ids) for split, ids in corpus.splits.items()}


def test_a_file_is_cut_at_line_ends(own: Path) -> None:
    corpus = load(str(own))
    assert corpus.kind == "text"
    assert corpus.vocab.symbols == tuple(sorted(set(LINES)))
    assert {ids.dtype for ids in corpus.splits.values()} == {np.dtype(np.uint8)}
    parts = texts(corpus)
    assert list(parts) == ["train", "valid", "test"]
    assert "".join(parts.values()) == LINES
    assert parts["train"].endswith("\n")
    assert parts["valid"].endswith("\n")
    assert [len(part.splitlines()) for part in parts.values()] == [91, 4, 5]
    assert corpus.unknown_dropped == {"train": 0, "valid": 0, "test": 0}


def test_a_file_of_one_long_line_is_cut_in_the_middle_of_it(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("ab" * 500)
    assert [len(ids) for ids in load(str(path)).splits.values()] == [900, 50, 50]


def test_xz_and_byte_order_mark_and_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "text.txt.xz"
    path.write_bytes(lzma.compress(b"\xef\xbb\xbf" + LINES.replace("\n", "\r\n").encode()))
    assert "".join(texts(load(str(path))).values()) == LINES.replace("\n", "\r\n")


def test_a_folder_is_read_in_order_and_in_depth(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "one.txt").write_text("second" * 50)
    (tmp_path / "a.txt").write_text("first" * 50 + "\n")
    (tmp_path / "c.txt.xz").write_bytes(lzma.compress(b"third" * 50))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    whole = "".join(texts(load(str(tmp_path))).values())
    assert whole == "first" * 50 + "\n" + "second" * 50 + "\n" + "third" * 50


def test_a_folder_without_txt_gives_all_that_is_text(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("print()\n" * 50)
    (tmp_path / "data.bin").write_bytes(b"\0\1\2")
    (tmp_path / ".hidden").write_text("hidden")
    assert "".join(texts(load(str(tmp_path))).values()) == "print()\n" * 50


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_that_is_already_split(tmp_path: Path, packed: bool) -> None:
    parts = {"train": "aaaa", "valid": "ab", "test": "ba"}
    for split, text in parts.items():
        if packed:
            (tmp_path / f"{split}.txt.xz").write_bytes(lzma.compress(text.encode()))
        else:
            (tmp_path / f"{split}.txt").write_text(text)
    (tmp_path / "README.txt").write_text("not of the corpus")
    assert texts(load(str(tmp_path))) == parts


def test_a_split_folder_with_one_part_missing(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text(LINES)
    (tmp_path / "test.txt").write_text(LINES)
    with pytest.raises(VcdeployError, match=r"has train.txt but no valid.txt; all three are needed"):
        load(str(tmp_path))


@pytest.mark.parametrize("buffer", [0, 8, 24])
def test_text_as_bits(own: Path, buffer: int) -> None:
    corpus = load(str(own), kind="bits", buffer=buffer)
    assert corpus.kind == "bits"
    assert corpus.vocab == Vocabulary("01", "bits", buffer)
    assert sum(map(len, corpus.splits.values())) == len(LINES.encode()) * (8 + buffer)
    assert texts(corpus) == texts(load(str(own)))
    again = load(str(own), vocab=corpus.vocab)
    assert (again.splits["train"] == corpus.splits["train"]).all()


def test_a_models_vocabulary_is_kept(own: Path) -> None:
    vocab = Vocabulary(sorted(set(LINES) | set("XYZ"), reverse=True))
    corpus = load(str(own), vocab=vocab)
    assert corpus.vocab == vocab
    assert "".join(texts(corpus).values()) == LINES


def test_a_symbol_outside_the_vocabulary_is_named(own: Path) -> None:
    vocab = Vocabulary(sorted(set(LINES) - {"é"}))
    with pytest.raises(VcdeployError) as error:
        load(str(own), vocab=vocab)
    message = str(error.value)
    assert f"the train part of {own}" in message
    assert "'é' (U+00E9) at line 1, column 26, which is not among the model's" in message
    assert "100 unknown in all" in message
    assert "--unknown drop" in message


def test_unknown_symbols_are_dropped_and_counted(own: Path) -> None:
    corpus = load(str(own), vocab=Vocabulary(sorted(set(LINES) - {"é"})), unknown="drop")
    assert corpus.unknown_dropped == {"train": 91, "valid": 4, "test": 5}
    assert "".join(texts(corpus).values()) == LINES.replace("é", "")


def test_nothing_left_after_dropping(own: Path) -> None:
    with pytest.raises(VcdeployError, match=r"train part of .* has 0 symbols \(\d+ were dropped\)"):
        load(str(own), vocab=Vocabulary("Ω"), unknown="drop")


def test_a_model_and_a_wish_that_disagree(own: Path) -> None:
    with pytest.raises(VcdeployError, match="the model reads bits with a buffer of 8, not text with a buffer of 0"):
        load(str(own), kind="text", vocab=Vocabulary("01", "bits", 8))
    with pytest.raises(VcdeployError, match="not bits with a buffer of 24"):
        load(str(own), buffer=24, vocab=Vocabulary("01", "bits", 8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "speech"}, "unknown kind 'speech'"),
        ({"buffer": 3, "kind": "bits"}, "buffer is 3; .* may be 0, 8 or 24"),
        ({"buffer": 8}, "buffer is 8, but only bits have one"),
        ({"unknown": "ignore"}, "unknown is 'ignore'"),
    ],
)
def test_options_that_make_no_sense(own: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(VcdeployError, match=message):
        load(str(own), **options)  # type: ignore[arg-type]


def test_a_name_nobody_knows() -> None:
    with pytest.raises(VcdeployError, match=r"'europarl-eng'.* Did you mean europarl-en.*`vcdeploy corpora`"):
        load("europarl-eng")
    with pytest.raises(VcdeployError, match=r"has that path\. `vcdeploy corpora` lists"):
        load("/no/such/place")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"short text", "has 10 characters; at least 200"),
        (b"good\nline \xe9t\xe9\n", r"byte 0xE9 at offset 10 \(line 2\).*iconv -f ISO-8859-1 -t UTF-8"),
        (b"ELF\0\1\2", "is not text: byte 3 is NUL"),
        ("wide".encode("utf-16"), "is UTF-16.*iconv -f UTF-16"),
    ],
)
def test_files_that_cannot_be_a_corpus(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "odd.txt"
    path.write_bytes(data)
    with pytest.raises(VcdeployError, match=message) as error:
        load(str(path))
    assert str(path) in str(error.value)


@pytest.mark.parametrize("data", [b"not xz at all", lzma.compress(LINES.encode())[:-20]])
def test_a_damaged_xz(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "damaged.txt.xz"
    path.write_bytes(data)
    with pytest.raises(VcdeployError, match=r"damaged.txt.xz cannot be decompressed"):
        load(str(path))


def test_a_folder_without_text(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"\0\1\2")
    with pytest.raises(VcdeployError, match="has no text: none of its 1 files is UTF-8"):
        load(str(tmp_path))


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.txt"
    path.write_text(LINES)

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(VcdeployError, match=r"own.txt cannot be read: Permission denied"):
        load(str(path))


def test_a_device_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", 8 << 20)
    for device in ("/dev/zero", "/dev/urandom"):
        with pytest.raises(VcdeployError, match=f"{device} holds more than 8 MiB of text"):
            load(device)


@pytest.mark.parametrize("ends", [True, False])
def test_a_pipe_is_read_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    monkeypatch.setattr(files, "LARGEST", 1 << 20)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("wb", buffering=0) as file, contextlib.suppress(BrokenPipeError):
            file.write(LINES.encode())
            while not ends:
                file.write(LINES.encode())

    writer = threading.Thread(target=write)
    writer.start()
    try:
        if ends:
            assert "".join(texts(load(str(pipe))).values()) == LINES
        else:
            with pytest.raises(VcdeployError, match="holds more than 1 MiB of text"):
                load(str(pipe))
    finally:
        writer.join()


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives one after another, 160 MiB of letters in less than 40 kB."""
    monkeypatch.setattr(files, "LARGEST", 8 << 20)
    path = tmp_path / "bomb.txt.xz"
    path.write_bytes(lzma.compress(b"a" * (8 << 20), preset=0) * 20)
    assert path.stat().st_size < 40_000
    tracemalloc.start()
    try:
        with pytest.raises(VcdeployError, match=r"bomb.txt.xz holds more than 8 MiB of text"):
            load(str(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * (8 << 20)  # the buffer, and its copy when it has to grow


def test_archives_one_after_another_are_one_text(tmp_path: Path) -> None:
    path = tmp_path / "two.txt.xz"
    path.write_bytes(lzma.compress(LINES[:1000].encode()) + lzma.compress(LINES[1000:].encode()))
    assert "".join(texts(load(str(path))).values()) == LINES
