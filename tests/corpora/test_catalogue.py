"""The named corpora: their sizes if the data is present, and the error messages if it is not."""

import hashlib
import lzma
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vcdeploy.corpora import CATALOGUE, Corpus, catalogue, load, readers
from vcdeploy.corpora.catalogue import DataFile, data_folder
from vcdeploy.errors import VcdeployError


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str, *_: object, **__: object) -> None:
        raise AssertionError(f"would fetch {url}")

    monkeypatch.setattr(readers, "download", refuse)


def sizes(corpus: Corpus) -> tuple[int, ...]:
    """Symbols of train, valid and test, once they agree with the catalogue."""
    found = tuple(len(corpus.splits[split]) for split in ("train", "valid", "test"))
    entry = CATALOGUE[corpus.name]
    assert (sum(found), len(corpus.vocab)) == (entry.size, entry.symbols)
    return found


def needs(path: Path) -> None:
    if not (path.exists() or path.with_name(path.name + ".xz").exists()):
        pytest.skip(f"needs {path}")


def test_ptb_has_the_published_numbers(data_dir: Path) -> None:
    needs(data_dir / "ptb/ptb.train.txt")
    assert sizes(load("ptb", data_dir=data_dir)) == (5_017_482, 393_042, 442_423)


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("cs", (18_580_611, 1_679_803, 1_835_108)),
        ("de", (22_467_504, 1_998_226, 2_248_716)),
        ("en", (19_835_542, 1_764_459, 1_987_085)),
    ],
)
def test_europarl_is_cut_between_proceedings(data_dir: Path, language: str, expected: tuple[int, ...]) -> None:
    needs(data_dir / f"europarl/europarl.{language}.txt")
    corpus = load(f"europarl-{language}", data_dir=data_dir)
    assert sizes(corpus) == expected
    for split in corpus.splits:
        assert corpus.vocab.symbols[corpus.splits[split][-1]] == "\n"


def test_text8_prefix_is_cut_by_characters(data_dir: Path) -> None:
    needs(data_dir / "text8/text8_prefix.txt")
    assert sizes(load("text8-prefix", data_dir=data_dir)) == (6_728_180, 373_788, 373_788)


def test_demo_is_all_of_pythons_own_topics() -> None:
    from pydoc_data.topics import topics

    corpus = load("demo")
    parts = {split: corpus.vocab.decode(ids) for split, ids in corpus.splits.items()}
    for text in topics.values():
        assert sum(text in part for part in parts.values()) >= 1
    total = sum(map(len, topics.values()))
    assert sum(map(len, parts.values())) == pytest.approx(total, rel=1e-3)
    for split in ("valid", "test"):
        assert 0.03 * total < len(parts[split]) <= 0.051 * total
    again = load("demo")
    assert all((again.splits[split] == corpus.splits[split]).all() for split in corpus.splits)


@pytest.fixture
def text8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A text8 of 4,000 characters; the catalogue's digests are patched to match."""
    text = "".join(np.random.default_rng(0).choice(list(" abcdefghijklmnopqrstuvwxyz"), 4000))
    whole = replace(catalogue.TEXT8, digest="sha1:" + hashlib.sha1(text.encode()).hexdigest())
    prefix = replace(catalogue.TEXT8_PREFIX, digest="sha256:" + hashlib.sha256(text[:1000].encode()).hexdigest())
    (tmp_path / "text8").mkdir()
    with zipfile.ZipFile(tmp_path / "text8/text8.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("text8", text)
    packed = hashlib.sha256((tmp_path / "text8/text8.zip").read_bytes()).hexdigest()
    archive_file = replace(catalogue.TEXT8_ZIP, digest="sha256:" + packed)
    monkeypatch.setattr(readers, "TEXT8", whole)
    monkeypatch.setattr(readers, "TEXT8_PREFIX", prefix)
    entries = {
        "text8": replace(CATALOGUE["text8"], parts=((whole, archive_file),)),
        "text8-prefix": replace(CATALOGUE["text8-prefix"], size=1000, parts=((prefix, whole, archive_file),)),
    }
    monkeypatch.setattr("vcdeploy.corpora.loading.CATALOGUE", entries)
    return text


def test_text8_is_read_from_its_archive_or_plain(text8: str, tmp_path: Path) -> None:
    for _ in range(2):
        corpus = load("text8", data_dir=tmp_path)
        parts = [corpus.vocab.decode(ids) for ids in corpus.splits.values()]
        assert [len(part) for part in parts] == [3600, 200, 200]
        assert "".join(parts) == text8
        (tmp_path / "text8/text8.zip").unlink(missing_ok=True)
        (tmp_path / "text8/text8").write_text(text8)


def test_text8_prefix_comes_from_text8(text8: str, tmp_path: Path) -> None:
    corpus = load("text8-prefix", data_dir=tmp_path)
    assert "".join(corpus.vocab.decode(ids) for ids in corpus.splits.values()) == text8[:1000]


def test_an_archive_without_text8(text8: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "text8/text8.zip", "w") as archive:
        archive.writestr("text9", text8)
    monkeypatch.setattr(readers, "_check", lambda *_: None)
    with pytest.raises(VcdeployError, match=r"text8.zip holds no text8"):
        load("text8", data_dir=tmp_path)


def test_other_contents_under_a_known_name(tmp_path: Path) -> None:
    (tmp_path / "ptb").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / f"ptb/ptb.{split}.txt.xz").write_bytes(lzma.compress(b"not the treebank\n" * 100))
    with pytest.raises(VcdeployError, match=r"ptb.train.txt.xz is not the ptb/ptb.train.txt .* sha256 is"):
        load("ptb", data_dir=tmp_path)
    assert load(str(tmp_path / "ptb/ptb.train.txt.xz")).kind == "text"  # as the error message suggests


@pytest.mark.parametrize(
    ("name", "place", "source"),
    [
        ("europarl-en", "europarl/europarl.en.txt", "https://www.statmt.org/europarl/"),
        ("thesession", "thesession/tunes.csv", "permission"),
    ],
)
def test_what_cannot_be_fetched_says_where_it_goes(name: str, place: str, source: str, tmp_path: Path) -> None:
    with pytest.raises(VcdeployError) as error:
        load(name, data_dir=tmp_path)
    assert str(tmp_path / place) in str(error.value)
    assert source in str(error.value)
    assert "VCDEPLOY_DATA" in str(error.value)


@pytest.mark.parametrize("name", ["ptb", "text8", "text8-prefix"])
def test_what_can_be_fetched_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Path, str]] = []

    def fetch(url: str, target: Path, *, digest: str, progress: object) -> Path:
        asked.append((url, target, digest))
        raise VcdeployError("offline")

    monkeypatch.setattr(readers, "download", fetch)
    with pytest.raises(VcdeployError, match="offline"):
        load(name, data_dir=tmp_path)
    [(url, target, digest)] = asked
    assert url.endswith(target.name)
    assert target.parent.parent == tmp_path
    assert digest.startswith("sha256:")
    assert len(digest) == 7 + 64


def test_irish_without_music21_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(VcdeployError, match=r'pip install "music21>=9\.1"'):
        load("irish")


def test_a_kind_a_corpus_cannot_have(tmp_path: Path) -> None:
    with pytest.raises(VcdeployError, match="irish is music and cannot be read as bits"):
        load("irish", kind="bits")
    with pytest.raises(VcdeployError, match="demo is text and cannot be read as music"):
        load("demo", kind="music")


def test_demo_as_bits() -> None:
    corpus = load("demo", kind="bits", buffer=8)
    text = load("demo")
    assert corpus.vocab.decode(corpus.splits["test"]) == text.vocab.decode(text.splits["test"])


def test_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCDEPLOY_DATA", "/data")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_folder(tmp_path) == tmp_path
    assert data_folder() == Path("/data")
    monkeypatch.delenv("VCDEPLOY_DATA")
    assert data_folder() == Path("/cache/vcdeploy")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache/vcdeploy"


def test_every_entry_says_what_it_is() -> None:
    for name, entry in CATALOGUE.items():
        assert entry.name == name
        assert entry.kind in ("text", "music")
        assert entry.title
        assert entry.licence
        assert entry.split
        assert entry.page.startswith("http")
        files = [file for part in entry.parts for file in part]
        assert all(isinstance(file, DataFile) for file in files)
        assert all(file.digest for file in files if file.url)
    assert "permission" in CATALOGUE["thesession"].licence
    assert CATALOGUE["thesession"].coming == "you supply it"


def test_a_copied_data_folder_is_found_through_the_environment(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(data_dir / "text8/text8_prefix.txt")
    shutil.copytree(data_dir / "text8", tmp_path / "text8")
    monkeypatch.setenv("VCDEPLOY_DATA", str(tmp_path))
    assert len(load("text8-prefix").vocab) == 27
