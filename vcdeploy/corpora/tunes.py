"""Collections of tunes from ABC files or The Session's dump, split so that no tune is in two splits."""

import csv
import hashlib
import io
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vcdeploy.corpora.raw import SPLITS, RawCorpus
from vcdeploy.errors import VcdeployError
from vcdeploy.music import notation

# Public-domain folders of music21's corpus; its Essen songs are not free for all uses.
IRISH_BOOKS = ("oneills1850", "ryansMammoth", "airdsAirs")
DUMPS = ("tunes.csv", "tunes.json")  # file names of The Session's dump
RARE = 5  # named collections leave out tunes with a symbol found in fewer tunes than this


@dataclass(frozen=True)
class Tune:
    """One setting of a tune; settings of the same tune share a key. symbols is empty if it could not be read."""

    key: str
    symbols: tuple[str, ...]


def title_key(title: str) -> str:
    """A title without case, accents, punctuation, article and setting number: "The Foo, No. 2" is "foo"."""
    plain = unicodedata.normalize("NFKD", title.casefold())
    words = re.sub(r"[^\w\s]", " ", "".join(c for c in plain if not unicodedata.combining(c))).split()
    if len(words) > 1 and words[0] == "the":
        words = words[1:]
    while len(words) > 1 and (words[-1].isdigit() or words[-1] in ("no", "the")):
        words = words[:-1]
    return " ".join(words)


def read(text: str, path: Path) -> list[Tune]:
    """The tunes of an ABC file or, depending on the file name, of The Session's tunes.csv or tunes.json."""
    name = path.name.removesuffix(".xz").lower()
    if name not in DUMPS:
        return [_tune(abc) for abc, _ in notation.blocks(text) if re.search(r"^X:", abc, re.MULTILINE)]
    try:
        rows = json.loads(text) if name.endswith(".json") else list(csv.DictReader(io.StringIO(text)))
        return [_session_tune(row) for row in rows]
    except (json.JSONDecodeError, csv.Error) as error:
        raise VcdeployError(f"{path} cannot be read: {error}") from error
    except (KeyError, TypeError) as error:
        raise VcdeployError(
            f"{path} is not a dump of The Session's tunes: a row lacks {error}; "
            "expected columns tune_id, setting_id, name, type, meter, mode, abc"
        ) from error


def titled(text: str) -> list[tuple[str, str]]:
    """The titled tunes of an ABC text, unparsed, each with its title."""
    return [(abc, title.strip()) for abc, _ in notation.blocks(text) if (title := _title(abc))]


def _title(abc: str) -> str:
    titles = re.findall(r"^T:(.*)$", abc, re.MULTILINE)
    return titles[0] if titles else ""


def _tune(abc: str) -> Tune:
    key = title_key(_title(abc))
    return _parsed(key or hashlib.sha256(abc.encode()).hexdigest(), abc)


def _session_tune(row: Mapping[str, str | None]) -> Tune:
    head = f"X:{row['setting_id']}\nM:{row['meter']}\nL:1/8\nK:{row['mode']}\n"
    return _parsed(str(row["tune_id"]), head + str(row["abc"] or ""))


def _parsed(key: str, abc: str) -> Tune:
    try:
        symbols = notation.parse(abc)
        if not any(notation.role(s) == "key" for s in symbols[:2]):
            raise notation.UnreadableTune("no key")
    except notation.UnreadableTune:
        return Tune(key, ())
    return Tune(key, tuple(symbols))


def split_of(key: str) -> str:
    """The split of a tune by a hash of its key, the same in every run and collection: 90 / 5 / 5 %."""
    place = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
    return "train" if place < 0.90 else "valid" if place < 0.95 else "test"


def divide(tunes: Iterable[Tune], name: str, rarest: int = 1) -> RawCorpus:
    """Assign tunes to splits by key, leaving out those with a symbol found in fewer than `rarest` tunes."""
    kept, left_out = _sift(tunes, rarest)
    splits: dict[str, list[Tune]] = {split: [] for split in SPLITS}
    # Ordered by a hash, so that books are mixed and settings of one tune are not adjacent.
    for tune in sorted(kept, key=lambda tune: hashlib.sha256(repr(tune.symbols).encode()).digest()):
        splits[split_of(tune.key)].append(tune)
    return _raw_corpus(splits, left_out, name)


def given(splits: Mapping[str, Iterable[Tune]], name: str) -> RawCorpus:
    """Tunes already split by the user."""
    sifted = {split: _sift(tunes, rarest=1) for split, tunes in splits.items()}
    left_out = sum((Counter(left) for _, left in sifted.values()), Counter[str]())
    return _raw_corpus({split: kept for split, (kept, _) in sifted.items()}, left_out, name)


def _sift(tunes: Iterable[Tune], rarest: int) -> tuple[list[Tune], dict[str, int]]:
    """The tunes to keep, and the number left out by reason: unreadable, same as another, rare symbol."""
    every = list(tunes)
    readable = [tune for tune in every if tune.symbols]
    first = {tune.symbols: tune for tune in reversed(readable)}  # a melody under two titles counts once
    distinct = list(first.values())
    tunes_with = Counter(symbol for tune in distinct for symbol in set(tune.symbols))
    kept = [tune for tune in distinct if all(tunes_with[symbol] >= rarest for symbol in tune.symbols)]
    left_out = {
        "unreadable": len(every) - len(readable),
        "same as another": len(readable) - len(distinct),
        "rare symbol": len(distinct) - len(kept),
    }
    return kept, left_out


def _raw_corpus(splits: Mapping[str, list[Tune]], left_out: Mapping[str, int], name: str) -> RawCorpus:
    for split, tunes in splits.items():
        if not tunes:
            total = sum(map(len, splits.values()))
            raise VcdeployError(
                f"{name} has {total} tunes ({left_out['unreadable']} more could not be read) and none for "
                f"{split}; add tunes, or split them yourself in a folder of train.abc, valid.abc, test.abc"
            )
    return RawCorpus(
        "music",
        {split: [s for tune in tunes for s in (*tune.symbols, notation.END)] for split, tunes in splits.items()},
        left_out,
    )
