"""Shared fixtures of the corpora tests: the Irish books, loaded once."""

from itertools import pairwise

import pytest

from vcdeploy.corpora import Corpus, load
from vcdeploy.corpora.catalogue import irish_folder
from vcdeploy.music import notation


@pytest.fixture(scope="session")
def irish() -> Corpus:
    if irish_folder() is None:
        pytest.skip("needs music21 and its corpus")
    return load("irish")


@pytest.fixture(scope="session")
def irish_tunes(irish: Corpus) -> dict[str, list[tuple[str, ...]]]:
    """The tunes of each split, as symbols without END."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for split, ids in irish.splits.items():
        ends = [-1, *(i for i, id_ in enumerate(ids.tolist()) if irish.vocab.symbols[id_] == notation.END)]
        assert ends[-1] == len(ids) - 1
        symbols = [irish.vocab.symbols[id_] for id_ in ids.tolist()]
        found[split] = [tuple(symbols[a + 1 : b]) for a, b in pairwise(ends)]
    return found
