"""Collections of tunes: title keys, splits that share no tune, and The Session's two formats."""

import csv
import json
from collections import defaultdict
from pathlib import Path

import pytest

from vcdeploy.corpora import Corpus, load, tunes
from vcdeploy.corpora.catalogue import CATALOGUE, irish_folder
from vcdeploy.corpora.files import read_text
from vcdeploy.corpora.tunes import Tune, split_of, title_key
from vcdeploy.errors import VcdeployError
from vcdeploy.music import notation


def abc(number: int, title: str, notes: str) -> str:
    return f"X:{number}\nT:{title}\nM:6/8\nL:1/8\nK:G\n{notes}|\n\n"


@pytest.mark.parametrize(
    "title",
    [
        "The Kesh Jig",
        "Kesh Jig",
        "KESH JIG, The",
        "Kesh Jig No. 2",
        "The Kesh Jig (3)",
        "Kêsh -- Jig",
        " kesh jig 1.",
    ],
)
def test_settings_of_a_tune_share_a_key(title: str) -> None:
    assert title_key(title) == "kesh jig"


@pytest.mark.parametrize(("title", "key"), [("The", "the"), ("42", "42"), ("No. 1", "no"), ("The 42nd", "42nd")])
def test_a_title_keeps_something(title: str, key: str) -> None:
    assert title_key(title) == key


def test_splits_follow_a_hash_that_does_not_change() -> None:
    # Known answers: a change here moves tunes between the splits of models already trained.
    assert [split_of(key) for key in ("kesh jig", "0", "5", "20")] == ["train", "train", "valid", "test"]
    shares = [split_of(str(i)) for i in range(20_000)]
    assert shares.count("train") == pytest.approx(18_000, abs=200)
    assert shares.count("valid") == pytest.approx(1_000, abs=120)


def test_no_tune_of_the_irish_books_is_in_two_splits(
    irish: Corpus, irish_tunes: dict[str, list[tuple[str, ...]]]
) -> None:
    assert sum(map(len, irish.splits.values())) == CATALOGUE["irish"].size
    assert len(irish.vocab) == CATALOGUE["irish"].symbols
    split_with = {tune: split for split, found in irish_tunes.items() for tune in found}
    assert len(split_with) == sum(map(len, irish_tunes.values()))  # no tune twice, in one split or two
    # Read the books again for the titles, which the corpus does not keep.
    folder = irish_folder()
    assert folder
    paths = [path for book in tunes.IRISH_BOOKS for path in sorted((folder / book).glob("*.abc"))]
    collection = [tune for path in paths for tune in tunes.read(read_text(path), path)]
    assert len(collection) == len(split_with) + sum(irish.left_out.values())
    key_of: dict[tuple[str, ...], str] = {}
    for tune in collection:
        key_of.setdefault(tune.symbols, tune.key)
    settings = defaultdict(list)
    for symbols, split in split_with.items():
        settings[key_of[symbols]].append(split)
    assert sum(len(splits) > 1 for splits in settings.values()) > 100
    assert not [key for key, splits in settings.items() if len(set(splits)) > 1]


def test_tunes_that_are_left_out_are_counted() -> None:
    common, rare = ("M:4/4", "K:Cmaj", "A"), ("M:4/4", "K:Cmaj", "^^b''7")
    collection = [Tune(str(i), (*common, "|" * (i % 2 + 1), *["A"] * i)) for i in range(60)]
    collection += [collection[3], Tune("odd", rare), Tune("broken", ())]
    raw = tunes.divide(collection, "some", rarest=2)
    assert raw.left_out == {"unreadable": 1, "same as another": 1, "rare symbol": 1}
    symbols = [s for split in raw.splits.values() for s in split]
    assert symbols.count(notation.END) == 60
    assert "^^b''7" not in symbols


def test_an_abc_file_is_music(tmp_path: Path) -> None:
    path = tmp_path / "tunes.abc"
    path.write_text("".join(abc(i, f"Tune {'abcdefghij'[i % 10]}{i // 10}x", "GAB cde" + "f" * i) for i in range(90)))
    corpus = load(str(path))
    assert corpus.kind == "music"
    assert corpus.left_out == {"unreadable": 0, "same as another": 0, "rare symbol": 0}
    assert corpus.vocab.symbols == tuple(sorted(["M:6/8", "K:Gmaj", "|", notation.END, *"GABcdef"]))
    (tmp_path / "README.txt").write_text("words about the tunes")
    folder = load(str(tmp_path))
    assert all((folder.splits[split] == corpus.splits[split]).all() for split in corpus.splits)
    assert load(str(path), kind="text").kind == "text"
    with pytest.raises(VcdeployError, match=r"'f', symbol 9 of tune \d+, which"):
        load(str(path), vocab=type(corpus.vocab)([s for s in corpus.vocab.symbols if s != "f"], "music"))


def test_a_few_tunes_need_explicit_splits(tmp_path: Path) -> None:
    path = tmp_path / "one.abc"
    path.write_text(abc(1, "One", "GAB") + abc(2, "Two", "G=20"))
    with pytest.raises(VcdeployError, match=r"has 1 tunes \(1 more could not be read\) and none for"):
        load(str(path))
    path.unlink()
    for split, notes in [("train", "GAB"), ("valid", "Bcd"), ("test", "def")]:
        (tmp_path / f"{split}.abc").write_text(abc(1, "One", notes))
    corpus = load(str(tmp_path))
    assert corpus.kind == "music"
    assert "Bcd |" in corpus.vocab.decode(corpus.splits["valid"])


ROWS = [
    {
        "tune_id": str(i // 3),
        "setting_id": str(i),
        "name": "Written For This Test",
        "type": "jig",
        "meter": "6/8",
        "mode": "Gmajor",
        "abc": f"|:{''.join('Gc'[int(bit)] for bit in f'{i:09b}')}A c>de|\r\n\r\nd2B AFD:|",  # the bits of i as notes
    }
    for i in range(300)
]
ROWS += [{**ROWS[0], "mode": "no key"}, {**ROWS[0], "abc": ""}, {**ROWS[0], "abc": "^^g'17"}, ROWS[0]]


def pieces(abc_text: str) -> list[tuple[str, ...]]:
    return [tuple(notation.parse(block)) for block, _ in notation.blocks(abc_text)]


@pytest.fixture(params=["tunes.csv", "tunes.json"])
def dump(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "thesession" / request.param
    path.parent.mkdir()
    if path.suffix == ".json":
        path.write_text(json.dumps(ROWS))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(ROWS[0]))
            writer.writeheader()
            writer.writerows(ROWS)
    return path


def test_a_dump_of_the_session(dump: Path) -> None:
    corpus = load("thesession", data_dir=dump.parent.parent)
    assert corpus.left_out == {"unreadable": 2, "same as another": 1, "rare symbol": 1}
    found = {split: pieces(corpus.vocab.decode(ids)) for split, ids in corpus.splits.items()}
    assert sum(map(len, found.values())) == 300
    assert list(found["test"][0][:3]) == ["M:6/8", "K:Gmaj", "|:"]
    assert found["test"][0][12:] == ("A", "c3/2", "d/2", "e", "|", "d2", "B", "A", "F", "D", ":|")
    settings = {
        split: {sum((note == "c") << i for i, note in enumerate(tune[11:2:-1])) for tune in of_split}
        for split, of_split in found.items()
    }
    tune_ids = {split: {i // 3 for i in numbers} for split, numbers in settings.items()}
    assert all(settings[split] for split in settings)
    assert len(set.union(*tune_ids.values())) == sum(map(len, tune_ids.values()))  # in one split each
    by_path = load(str(dump))  # a user's own collection keeps its rare symbols
    assert by_path.left_out == {"unreadable": 2, "same as another": 1, "rare symbol": 0}
    assert "^^g'17" in by_path.vocab.symbols


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tunes.json", "[{", "cannot be read"),
        ("tunes.json", '[{"tune_id": "1"}]', "a row lacks 'setting_id'"),
        (
            "tunes.csv",
            "tune_id,name\n1,One\n",
            "a row lacks 'setting_id'; expected columns tune_id, setting_id",
        ),
    ],
)
def test_a_dump_that_is_none(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(VcdeployError, match=message):
        load(str(tmp_path / name))
