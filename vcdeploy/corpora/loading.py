"""Loads a corpus by name or path and encodes it as ids."""

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy.corpora.catalogue import CATALOGUE
from vcdeploy.corpora.corpus import Corpus
from vcdeploy.corpora.files import read_path
from vcdeploy.corpora.raw import RawCorpus
from vcdeploy.corpora.readers import read_named
from vcdeploy.errors import VcdeployError
from vcdeploy.vocabulary import KINDS, Vocabulary, bits, describe_unknown


def load(
    source: str,
    *,
    kind: str | None = None,
    buffer: int = 0,
    vocab: Vocabulary | None = None,
    unknown: str = "error",
    data_dir: Path | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Corpus:
    """The corpus named `source` in the catalogue, or else the file or folder at that path.

    `kind` None selects the natural kind: music for tunes, otherwise text; "bits" turns text into bits with
    `buffer` zeros after each byte. The vocabulary is the sorted set of symbols of all three splits, as
    usual for character models. With the `vocab` of a trained model, its ids are used instead, and a
    symbol outside it is an error or, with `unknown` "drop", left out and counted. Data is read from
    `data_dir` (see `catalogue.data_folder`); `progress` receives the byte counts of a download.
    """
    if kind is not None and kind not in KINDS:
        raise VcdeployError(f"unknown kind {kind!r}; a corpus is {', '.join(KINDS)}")
    if unknown not in ("error", "drop"):
        raise VcdeployError(f"unknown is {unknown!r}; for symbols outside the vocabulary use 'error' or 'drop'")
    bits.check_buffer(buffer)
    kind, buffer = _agree(kind, buffer, vocab)
    raw = _read(source, kind, data_dir, progress)
    kind = kind or raw.kind
    if buffer and kind != "bits":
        raise VcdeployError(f"buffer is {buffer}, but only bits have one; use kind 'bits', not {kind!r}")

    dropped = dict.fromkeys(raw.splits, 0)
    splits: dict[str, NDArray[np.unsignedinteger[Any]]]
    if kind == "bits":
        vocab = vocab or Vocabulary("01", "bits", buffer)
        splits = {split: bits.from_text(str(text), buffer) for split, text in raw.splits.items()}
    else:
        vocab = vocab or Vocabulary(sorted(set().union(*raw.splits.values())), kind)
        found = {split: vocab.lookup(symbols) for split, symbols in raw.splits.items()}
        dropped = {split: int((ids < 0).sum()) for split, ids in found.items()}
        if unknown == "error":
            _refuse_unknown(source, raw, vocab, found, sum(dropped.values()))
        narrow = np.min_scalar_type(len(vocab) - 1)
        splits = {split: ids[ids >= 0].astype(narrow) for split, ids in found.items()}
    for split, kept in splits.items():
        if len(kept) < 2:
            raise VcdeployError(
                f"the {split} part of {source} has {len(kept)} symbols ({dropped[split]} were dropped); "
                "prediction needs at least two"
            )
    return Corpus(source, kind, vocab, splits, dropped, raw.left_out)


def _refuse_unknown(
    source: str, raw: RawCorpus, vocab: Vocabulary, found: Mapping[str, NDArray[Any]], total: int
) -> None:
    for split, ids in found.items():
        if (ids < 0).any():
            raise VcdeployError(
                f"the {split} part of {source} has {describe_unknown(raw.splits[split], ids)}, which is "
                f"not among the model's {len(vocab)} symbols; {total} unknown in all. "
                "--unknown drop leaves them out and reports their number"
            )


def _agree(kind: str | None, buffer: int, vocab: Vocabulary | None) -> tuple[str | None, int]:
    """Kind and buffer, taken from the vocabulary if there is one."""
    if vocab is None:
        return kind, buffer
    if kind not in (None, vocab.kind) or buffer not in (0, vocab.buffer):
        raise VcdeployError(
            f"the model reads {vocab.kind} with a buffer of {vocab.buffer}, not {kind or vocab.kind} with "
            f"a buffer of {buffer}; leave kind and buffer out to use the model's"
        )
    return vocab.kind, vocab.buffer


def _read(
    source: str,
    kind: str | None,
    data_dir: Path | None,
    progress: Callable[[int, int | None], None] | None,
) -> RawCorpus:
    if source in CATALOGUE:
        entry = CATALOGUE[source]
        if kind is not None and (kind == "music") != (entry.kind == "music"):
            raise VcdeployError(f"{source} is {entry.kind} and cannot be read as {kind}; leave the kind out")
        return read_named(entry, data_dir, progress)
    path = Path(source).expanduser()
    if path.exists():
        return read_path(path, kind)
    close = difflib.get_close_matches(source, CATALOGUE)
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    raise VcdeployError(
        f"no corpus is called {source!r}, and no file or folder has that path.{meant} "
        "`vcdeploy corpora` lists the names; the path of your own text works too"
    )
