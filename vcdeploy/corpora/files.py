"""A user's own files: UTF-8 text and ABC tunes, plain or xz, one file or a folder of them."""

import lzma
from pathlib import Path

from vcdeploy.corpora import tunes
from vcdeploy.corpora.raw import SPLITS, RawCorpus, cut
from vcdeploy.errors import VcdeployError
from vcdeploy.files import read_limited

# Bytes of what does not say how much it holds: a device, a pipe, or an archive, which may be a bomb. enwik9 fits.
LARGEST = 1 << 30


def read_bytes(path: Path) -> bytes:
    """The contents of `path`, decompressed if it is .xz."""
    try:
        if path.suffix == ".xz":
            with lzma.open(path) as archive:
                data = read_limited(archive, LARGEST)
        elif path.is_file():
            data = path.read_bytes()
        else:
            with path.open("rb") as file:
                data = read_limited(file, LARGEST)
    except (lzma.LZMAError, EOFError) as error:
        raise VcdeployError(f"{path} cannot be decompressed ({error}); copy or download it again") from error
    except OSError as error:
        raise VcdeployError(f"{path} cannot be read: {error.strerror}") from error
    except MemoryError as error:
        raise VcdeployError(f"{path} does not fit into memory; give a shorter text") from error
    if data is None:
        raise VcdeployError(
            f"{path} holds more than {LARGEST >> 20:,} MiB of text; give a shorter one, or an uncompressed file"
        )
    return data


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without a byte order mark; line endings are kept."""
    data = read_bytes(path)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise VcdeployError(f"{path} is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8 {path.name} > utf8.txt")
    if b"\0" in data:
        raise VcdeployError(f"{path} is not text: byte {data.index(0)} is NUL; give a UTF-8 text file")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise VcdeployError(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02X} at offset {error.start} (line {line}); "
            f"convert it, for example: iconv -f ISO-8859-1 -t UTF-8 {path.name} > utf8.txt"
        ) from error
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise VcdeployError(f"{path} is empty; a corpus needs some text")
    return text


def read_path(path: Path, kind: str | None) -> RawCorpus:
    """The raw corpus at `path`, as text or music according to `kind` or, if that is None, to the file names."""
    given = _given_splits(path) if path.is_dir() else {}
    files = list(given.values()) or (_folder(path, kind) if path.is_dir() else [path])
    if kind == "music" or (kind is None and all(map(_holds_tunes, files))):
        read = [tunes.read(read_text(file), file) for file in files]
        if given:
            return tunes.given(dict(zip(given, read, strict=True)), str(path))
        return tunes.divide([tune for of_file in read for tune in of_file], str(path))
    if given:
        return RawCorpus("text", {split: read_text(file) for split, file in given.items()})
    *earlier, last = map(read_text, files)
    return cut("".join(text if text.endswith("\n") else text + "\n" for text in earlier) + last, str(path))


def _plain_name(path: Path) -> str:
    return path.name.removesuffix(".xz").lower()


def _holds_tunes(path: Path) -> bool:
    return _plain_name(path).endswith(".abc") or _plain_name(path) in tunes.DUMPS


def _given_splits(folder: Path) -> dict[str, Path]:
    """The files of a folder already split into train.txt, valid.txt and test.txt (or .abc); empty if it is not."""
    for suffix in (".txt", ".abc"):
        found = {split: _plain_or_xz(folder / f"{split}{suffix}") for split in SPLITS}
        given = {split: path for split, path in found.items() if path}
        if "train" in given and len(given) > 1:
            if missing := [f"{split}{suffix}" for split in SPLITS if split not in given]:
                raise VcdeployError(f"{folder} has train{suffix} but no {missing[0]}; all three are needed")
            return given
    return {}


def _plain_or_xz(path: Path) -> Path | None:
    return next((p for p in (path, path.with_name(path.name + ".xz")) if p.is_file()), None)


def _folder(folder: Path, kind: str | None) -> list[Path]:
    """The files of a folder that make up its corpus, sorted: tunes or .txt files, else all UTF-8 files."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.startswith(".")]
    texts = [p for p in files if _plain_name(p).endswith(".txt")]
    music = [p for p in files if _holds_tunes(p)]
    chosen = texts or music if kind in ("text", "bits") else music or texts
    chosen = chosen or [p for p in files if _reads_as_text(p)]
    if not chosen:
        raise VcdeployError(f"{folder} has no text: none of its {len(files)} files is UTF-8; add .txt or .abc files")
    return chosen


def _reads_as_text(path: Path) -> bool:
    try:
        read_text(path)
    except VcdeployError:
        return False
    return True
