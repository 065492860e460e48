"""Reads the corpora of the catalogue from the data folder, fetching public files that are missing."""

import hashlib
import io
import zipfile
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from vcdeploy.corpora import tunes
from vcdeploy.corpora.catalogue import CATALOGUE, TEXT8, TEXT8_PREFIX, DataFile, Entry, data_folder, find, irish_folder
from vcdeploy.corpora.fetch import download
from vcdeploy.corpora.files import read_bytes, read_text
from vcdeploy.corpora.raw import SPLITS, RawCorpus, cut
from vcdeploy.errors import VcdeployError

Progress = Callable[[int, int | None], None]


def read_named(entry: Entry, data_dir: Path | None = None, progress: Progress | None = None) -> RawCorpus:
    """The three splits of a catalogue corpus."""
    if entry.name == "demo":
        return _demo()
    if entry.name == "irish":
        return _irish(entry)
    found = [_obtain(entry, part, data_folder(data_dir), progress) for part in entry.parts]
    if entry.name == "thesession":
        path = found[0][1]
        return tunes.divide(tunes.read(read_text(path), path), str(path), tunes.RARE)
    if entry.name == "ptb":
        return RawCorpus("text", {split: _ptb(*file) for split, file in zip(SPLITS, found, strict=True)})
    if entry.name.startswith("europarl"):
        return _europarl(entry, _checked(*found[0]), _checked(*found[1]))
    return _text8(entry, *found[0])


def _demo() -> RawCorpus:
    """Whole help topics, ordered by a hash of their names: test and valid get up to 5 % each, train the rest."""
    from pydoc_data.topics import topics

    room = sum(map(len, topics.values())) // 20
    splits: dict[str, list[str]] = {split: [] for split in SPLITS}
    for topic in sorted(topics, key=lambda name: hashlib.sha256(name.encode()).digest()):
        fits = (s for s in ("test", "valid") if sum(map(len, splits[s])) + len(topics[topic]) <= room)
        splits[next(fits, "train")].append(topics[topic])
    return RawCorpus("text", {split: "\n".join(texts) for split, texts in splits.items()})


def _irish(entry: Entry) -> RawCorpus:
    files = _irish_books(entry)
    return tunes.divide([tune for p in files for tune in tunes.read(read_text(p), p)], "irish", tunes.RARE)


def _irish_books(entry: Entry) -> list[Path]:
    folder = irish_folder()
    if folder is None:
        raise VcdeployError(f"irish is not on this machine. {entry.needs}")
    files = [p for book in tunes.IRISH_BOOKS for p in sorted((folder / book).glob("*.abc"))]
    if not files:
        raise VcdeployError(f"{folder} lacks the ABC collections of a full music21. {entry.needs}")
    return files


def irish_tune(title: str) -> str:
    """The ABC of the first tune of irish with this title, ignoring case, accents, article and number."""
    titles: list[str] = []
    for path in _irish_books(CATALOGUE["irish"]):
        for abc, named in tunes.titled(read_text(path)):
            if tunes.title_key(named) == tunes.title_key(title):
                return abc
            titles.append(named)
    near = get_close_matches(title.casefold(), {each.casefold(): each for each in titles}, n=3, cutoff=0.5)
    raise VcdeployError(
        f"no tune of irish is called {title!r}" + (f"; the closest are {', '.join(near)}" if near else "")
    )


def _ptb(file: DataFile, path: Path) -> str:
    # The usual way to count its characters: no spaces at the ends of lines, one newline after each.
    return "\n".join(line.strip() for line in _checked(file, path).split("\n"))


def _europarl(entry: Entry, text: str, table: str) -> RawCorpus:
    """Cut by whole proceedings; the table has one row for each, with its number of characters in cs, de and en."""
    column = {"cs": 4, "de": 5, "en": 6}[entry.name[-2:]]
    ends = [0]
    for row in table.splitlines():
        ends.append(ends[-1] + int(row.split("\t")[column]) + 1)  # plus a newline
    count = len(ends) - 1
    first, second = ends[count * 90 // 100], ends[count * 95 // 100]
    return RawCorpus("text", {"train": text[:first], "valid": text[first:second], "test": text[second:]})


def _text8(entry: Entry, file: DataFile, path: Path) -> RawCorpus:
    text = _checked(file, path)
    if entry.name == "text8-prefix" and file != TEXT8_PREFIX:
        text = text[: entry.size]
        _check(TEXT8_PREFIX, path, text.encode())
    return cut(text, entry.name, at_lines=False)


def _obtain(entry: Entry, part: tuple[DataFile, ...], folder: Path, progress: Progress | None) -> tuple[DataFile, Path]:
    """The file of a part and its path, fetched if necessary."""
    if found := find(part, folder):
        return found
    for file in part:
        if file.url and file.digest:
            return file, download(file.url, folder / file.path, digest=file.digest, progress=progress)
    places = " or ".join(str(folder / file.path) for file in part)
    raise VcdeployError(
        f"{entry.name} is not on this machine: there is no {places} (plain or .xz). {entry.needs} "
        f"See {entry.page}; VCDEPLOY_DATA sets the data folder"
    )


def _checked(file: DataFile, path: Path) -> str:
    """The text of a file, with its digest checked so that a name means the same characters everywhere."""
    data = read_bytes(path)
    _check(file, path, data)
    if path.suffix == ".zip":
        try:
            data = zipfile.ZipFile(io.BytesIO(data)).read("text8")
        except (zipfile.BadZipFile, KeyError) as error:
            raise VcdeployError(f"{path} holds no text8 ({error}); delete it to fetch it again") from error
        _check(TEXT8, path, data)
    return data.decode()


def _check(file: DataFile, path: Path, data: bytes) -> None:
    if file.digest is None:
        return
    algorithm, expected = file.digest.split(":")
    actual = hashlib.new(algorithm, data).hexdigest()
    if actual != expected:
        raise VcdeployError(
            f"{path} is not the {file.path} this name stands for: its {algorithm} is {actual}, not "
            f"{expected}; replace it, or pass its path instead of the name to use it anyway"
        )
