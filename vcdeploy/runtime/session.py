"""Sessions: sequences that are read and generated token by token, on every backend, and their bytes when saved.

A saved session is a header, what each sequence read, and the arrays, with a checksum of everything.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.runtime.backends import Check, Drawn, Event, Past, Sequences, check_of
from vcdeploy.runtime.sampling import MOST_HISTORY, Allowed, Draws, Sampling, Token
from vcdeploy.vocabulary import Vocabulary

MOST_SEQUENCES = 2**16  # of a session
MOST_TOKENS = 2**22  # of one call of generate, which keeps them all in memory

MAGIC = b"vcdeploy session 1\n"  # of a saved session
DIGEST = 32


class Generating(Protocol):
    """Any backend."""

    def sequences(self, batch: int) -> Sequences: ...


def generate(model: Generating, prime: NDArray[np.int64], length: int, sampling: Sampling) -> Iterator[Token]:
    """Generate tokens after the prime with any backend."""
    return chain.from_iterable(generate_pieces(model.sequences(1), prime, length, sampling))


def generate_pieces(
    sequences: Sequences,
    prime: NDArray[np.int64],
    length: int,
    sampling: Sampling,
    allowed: Allowed | None = None,
    check: Check | None = None,
) -> Iterator[list[Token]]:
    """Generate `length` tokens after the prime (at least one) with new sequences of batch 1; fewer at a stop sequence.

    allowed: restricts the symbols that may follow; the others get probability 0, before all other options.
    """
    if length <= 0:
        return
    sequences.feed(np.asarray(prime, np.int64).reshape(-1, 1), check)
    draws, ids = Draws([0]), np.asarray(prime).tolist()
    while length > 0:
        if check is not None:
            check()
        mask = None if allowed is None else array_of(allowed(ids), "allowed", bool)[None]
        at_once = min(length, sequences.at_once if allowed is None else 1)
        drawn = sequences.generate(draws.take([sampling.seed], at_once), [sampling], mask, check)
        ((piece,), (count,)) = tokens_of(drawn), drawn.lengths.tolist()
        if piece:
            yield piece
        if count < at_once:
            return
        draws.used([count])
        length -= count
        if allowed is not None:
            ids += [token.id for token in piece]


_token = partial(tuple.__new__, Token)  # of a tuple of its fields; faster than calling Token for each


@dataclass(frozen=True)
class Piece:
    """Tokens of one sequence by columns, which take a fraction of the time that Tokens take to make.

    Attributes:
        ids: [n].
        m: [n], means over layers.
        log_probabilities: [n].
        others: [n, alternatives]: the most likely symbols.
        other_log_probabilities: [n, alternatives].
    """

    ids: list[int]
    m: NDArray[np.float64]
    log_probabilities: NDArray[np.float64]
    others: NDArray[np.int64]
    other_log_probabilities: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: slice) -> Piece:
        return Piece(*(each[part] for each in self._columns()))

    def _columns(self) -> tuple[Any, ...]:
        return self.ids, self.m, self.log_probabilities, self.others, self.other_log_probabilities

    @staticmethod
    def joined(pieces: Sequence[Piece]) -> Piece:
        """The tokens of all pieces, at least one, in order."""
        if len(pieces) == 1:
            return pieces[0]
        ids, *columns = zip(*(each._columns() for each in pieces), strict=True)
        return Piece(list(chain.from_iterable(ids)), *map(np.concatenate, columns))

    def tokens(self) -> list[Token]:
        """One by one."""
        others: Iterable[tuple[tuple[int, float], ...]] = repeat((), len(self))
        if self.others.size:
            pairs = zip(self.others.tolist(), self.other_log_probabilities.tolist(), strict=True)
            others = (tuple(zip(*each, strict=True)) for each in pairs)
        columns = self.ids, self.m.tolist(), self.log_probabilities.tolist(), others
        return list(map(_token, zip(*columns, strict=True)))


def pieces_of(drawn: Drawn) -> list[Piece]:
    """What each sequence generated."""
    m = np.add.reduce(drawn.m, -1, np.float64) / drawn.m.shape[-1]  # m.mean takes several times as long
    columns = (m, drawn.log_probabilities, drawn.others, drawn.other_log_probabilities)
    rows = zip(drawn.tokens.T.tolist(), *(each.swapaxes(0, 1) for each in columns), strict=True)
    return [
        Piece(ids[:length], *(each[:length] for each in more))
        for (ids, *more), length in zip(rows, drawn.lengths.tolist(), strict=True)
    ]


def tokens_of(drawn: Drawn) -> list[list[Token]]:
    """The tokens of each sequence."""
    return [piece.tokens() for piece in pieces_of(drawn)]


def array_of(values: Any, what: str, dtype: DTypeLike | None = None) -> NDArray[Any]:
    try:
        return np.asarray(values, dtype)
    except (TypeError, ValueError) as error:  # rows of different lengths, or no numbers
        raise VcdeployError(f"{what} can't be made an array: {error}") from error


def check_ids(ids: NDArray[Any], vocab: Vocabulary, name: str) -> None:
    """Raise unless all ids are symbols of the vocabulary."""
    low, high = (ids.min(), ids.max()) if ids.size > 1 else (ids.item(), ids.item())
    if low < 0 or high >= len(vocab):
        outside = low if low < 0 else high
        raise VcdeployError(f"there is no symbol {outside}; the ids of {name} are 0 to {len(vocab) - 1}")


def settled(sampling: Sampling | None, options: dict[str, Any], vocab: Vocabulary) -> Sampling:
    """Sampling with options replaced, and its stop strings as ids."""
    if not isinstance(sampling, Sampling | None):
        raise BadValue(f"sampling must be a vcdeploy.Sampling, not {sampling!r:.100}")
    try:
        sampling = replace(sampling or Sampling(), **options) if options or not sampling else sampling
    except TypeError as error:
        raise VcdeployError(f"the sampling options are invalid ({error}); see vcdeploy.Sampling") from error
    if not sampling.stop:
        return sampling
    if vocab.kind == "bits":
        raise BadValue("stop strings are for models of text and music: generate bits, and search their text")
    stop = tuple(tuple(vocab.encode(each).tolist()) if isinstance(each, str) else each for each in sampling.stop)
    for each in stop:
        if not all(0 <= id_ < len(vocab) for id_ in each):
            raise BadValue(f"a stop sequence holds an id that is not one of the symbols, 0 to {len(vocab) - 1}: {each}")
    return sampling if stop == sampling.stop else replace(sampling, stop=stop)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view for callers, who must not change what the session samples from."""
    view = array.view()
    view.flags.writeable = False
    return view


class Session:
    """Sequences that a model reads and generates token by token; `Model.session` makes one.

    Use a session from one thread at a time. The weights are shared and the working memory is the session's own, so
    sessions of one native model run at the same time, each with the model's number of threads. A call that ends early,
    by an exception, leaves the sequences somewhere in between: reset or restore them.
    """

    def __init__(
        self, sequences: Sequences, layout: Layout, vocab: Vocabulary, name: str, drawn: Sequence[int] = ()
    ) -> None:
        self._sequences, self._layout, self._vocab, self._name = sequences, layout, vocab, name
        self._draws = Draws(drawn or [0] * layout.batch)
        self._step, self._logits = sequences.step, self._kept_logits()

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return self._layout.batch

    def step(self, tokens: int | ArrayLike) -> NDArray[np.float32]:
        """Read one token of each sequence: [B] ids, or an int if there is one sequence.

        Returns the logits that follow, [B, vocab]: a read-only view, valid until the next call. An int or an int64
        array is the fastest; the call then allocates nothing.
        """
        try:
            if self._step(tokens):
                return self._logits  # type: ignore[return-value]
        except ValueError as error:
            check_ids(array_of(tokens, "tokens"), self._vocab, self._name)  # the same message on every backend
            raise VcdeployError(f"the session can't step: {error}") from error
        ids = array_of(tokens, "tokens")
        if ids.size != self.batch or ids.ndim > 1:
            raise VcdeployError(f"a step takes one token of each sequence, [{self.batch}], not {list(ids.shape)}")
        self.feed(ids.reshape(1, -1))
        return self.logits

    def feed(
        self,
        tokens: ArrayLike,
        *,
        rows: Sequence[int] | None = None,
        timeout: float | None = None,
        cancel: Event | None = None,
    ) -> None:
        """Read tokens [T, B], or [T] if there is one sequence, without logits.

        rows: the numbers of the sequences that read, by default all; B is their number, and the others stay as they
        are. timeout and cancel: as for Model.run.
        """
        rows = self._rows(rows)
        batch = self.batch if rows is None else len(rows)
        ids = array_of(tokens, "tokens")
        if ids.ndim == 1 and batch == 1:
            ids = ids.reshape(-1, 1)
        if ids.ndim != 2 or ids.shape[1] != batch or not len(ids) or ids.dtype.kind not in "iu":
            raise VcdeployError(
                f"the tokens of this session must be integers of shape [T, {batch}], T at least 1, "
                f"not {ids.dtype} {list(ids.shape)}"
            )
        check_ids(ids, self._vocab, self._name)
        self._sequences.feed(np.ascontiguousarray(ids, np.int64), check_of(timeout, cancel), rows)

    @property
    def logits(self) -> NDArray[np.float32]:
        """Logits of the next token, [B, vocab]: a view, valid until the next call. Zeros before the first token."""
        self._sequences.observe()
        if self._logits is None:
            self._logits = self._kept_logits()
        return _read_only(self._layout.zeros("logits")) if self._logits is None else self._logits

    @property
    def m(self) -> NDArray[np.float32]:
        """m of the last step, [B, layers]: a view, valid until the next call."""
        self._sequences.observe()
        return _read_only(self._layout.zeros("m") if self._sequences.m is None else self._sequences.m)

    @property
    def state(self) -> NDArray[np.float32]:
        """The state after everything read and generated, [S, B, D]: a copy, which Model.run takes."""
        state = self._sequences.save()[0]
        return self._layout.zeros("state") if state is None else state

    def generate(
        self,
        length: int | Sequence[int],
        sampling: Sampling | Sequence[Sampling] | None = None,
        *,
        rows: Sequence[int] | None = None,
        allowed: ArrayLike | None = None,
        alternatives: int = 0,
        timeout: float | None = None,
        cancel: Event | None = None,
        **options: Any,
    ) -> list[list[Token]]:
        """Generate `length` tokens of each sequence, going on from what it has read, which must be something.

        Args:
            length: Number of tokens, one for all sequences or one for each; a sequence has fewer if it reaches a stop
                string, which its tokens then include. It generates no more until it is given another token.
            sampling: How to sample: for all sequences, the n-th with `seed + n`, or one for each.
            rows: The numbers of the sequences that generate, by default all; the others stay as they are. Everything
                else that is for each sequence is for these, in this order.
            allowed: The symbols to choose from, a mask [vocab] or [B, vocab], for all tokens of this call.
            alternatives: How many of the most likely symbols to return with each token.
            timeout: As for Model.run.
            cancel: As for Model.run.
            **options: Fields of Sampling, to override those of `sampling`.

        Several calls with the same seeds give the same tokens as one. The same seed gives the same tokens in any batch
        and on any backend.
        """
        pieces = self.pieces(
            length, sampling, rows=rows, allowed=allowed, alternatives=alternatives, timeout=timeout, cancel=cancel,
            **options,
        )  # fmt: skip
        return [piece.tokens() for piece in pieces]

    def pieces(
        self,
        length: int | Sequence[int],
        sampling: Sampling | Sequence[Sampling] | None = None,
        *,
        rows: Sequence[int] | None = None,
        allowed: ArrayLike | None = None,
        alternatives: int = 0,
        timeout: float | None = None,
        cancel: Event | None = None,
        **options: Any,
    ) -> list[Piece]:
        """Like generate, with the tokens by columns, for many sequences at a time."""
        rows = self._rows(rows)
        batch = self.batch if rows is None else len(rows)
        lengths = self._lengths(length, batch)
        if sampling is None or not isinstance(sampling, Sequence):
            one = settled(sampling, options, self._vocab)
            each, seeds = [one] * batch, [one.seed + n for n in range(batch)]
        else:
            each = [settled(one, options, self._vocab) for one in sampling]
            seeds = [one.seed for one in each]
            if len(each) != batch:
                raise VcdeployError(f"this call is for {batch} sequences, but sampling is for {len(each)}")
        mask = None
        if allowed is not None:
            shape = (batch, len(self._vocab))
            mask = array_of(allowed, "allowed", bool)
            if mask.shape not in (shape, shape[1:]):
                raise VcdeployError(f"allowed must have the shape {list(shape)}, not {list(mask.shape)}")
            mask = np.ascontiguousarray(np.broadcast_to(mask, shape))
        if not isinstance(alternatives, (int, np.integer)) or not 0 <= alternatives <= len(self._vocab):
            raise VcdeployError(f"alternatives must be from 0 to {len(self._vocab)}, not {alternatives!r:.40}")
        uniforms = self._draws.take(seeds, max(lengths, default=0), rows)
        check = check_of(timeout, cancel)
        drawn = self._sequences.generate(uniforms, each, mask, check, rows, lengths, int(alternatives))
        self._draws.used(drawn.lengths.tolist(), rows)
        return pieces_of(drawn)

    def _lengths(self, length: int | Sequence[int], batch: int) -> list[int]:
        most = MOST_TOKENS // max(1, batch)
        lengths = list(length) if isinstance(length, Sequence) else [length] * batch
        for each in lengths:
            if not isinstance(each, (int, np.integer)) or not 0 <= each <= most:
                raise VcdeployError(
                    f"length must be from 0 to {most}, not {each!r:.40}: generate more in several calls"
                )
        if len(lengths) != batch:
            raise VcdeployError(f"this call is for {batch} sequences, but there are {len(lengths)} lengths")
        return lengths

    def _rows(self, rows: Sequence[int] | None) -> list[int] | None:
        """The numbers of sequences, each once; None for all."""
        if rows is None:
            return None
        try:
            chosen = [operator.index(n) for n in rows]
        except TypeError as error:
            raise VcdeployError(f"rows must be a list of the numbers of sequences, not {rows!r:.40}") from error
        if wrong := [n for n in chosen if not 0 <= n < self.batch]:
            raise VcdeployError(f"there is no sequence {wrong[0]}: there are {self.batch}, counted from 0")
        if len(set(chosen)) < len(chosen) or not chosen:
            raise VcdeployError(f"rows must be the numbers of different sequences, at least one, not {chosen}")
        return chosen

    def fork(self) -> Session:
        """A session that goes its own way from here."""
        return Session(self._sequences.fork(), self._layout, self._vocab, self._name, self._draws.counts)

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Start sequences again, from a zero state: those with these numbers, by default all."""
        chosen = self._rows(rows) or list(range(self.batch))
        self._sequences.reset(chosen)
        for n in chosen:
            self._draws.counts[n] = 0

    def save(self, rows: Sequence[int] | None = None) -> bytes:
        """Everything needed to go on later, in another process, or on another backend.

        rows: the numbers of the sequences to save, by default all. They are restored into as many.
        """
        rows = self._rows(rows)
        self._sequences.observe(rows)
        state, m, pasts = self._sequences.save(rows)
        which = range(self.batch) if rows is None else rows
        for past, n in zip(pasts, which, strict=True):
            past.drawn = self._draws.counts[n]
        logits = self._sequences.logits
        arrays = {"state": state, "m": m, "logits": None if logits is None else logits[list(which)]}
        layout = replace(self._layout, batch=len(pasts))
        filled = {name: layout.zeros(name) if each is None else each for name, each in arrays.items()}
        return pack(layout, filled, pasts)

    def restore(self, content: bytes, rows: Sequence[int] | None = None) -> None:
        """Go on from what `save` returned, in a session of the same model.

        rows: the numbers of the sequences that go on, as many as were saved; by default all.
        """
        rows = self._rows(rows)
        which = range(self.batch) if rows is None else rows
        arrays, pasts = unpack(content, replace(self._layout, batch=len(which)))
        self._sequences.restore(arrays["state"], arrays["m"], arrays["logits"], pasts, rows)
        for past, n in zip(pasts, which, strict=True):
            self._draws.counts[n] = past.drawn
        self._logits = self._kept_logits()

    def _kept_logits(self) -> NDArray[Any] | None:
        logits = self._sequences.logits
        return None if logits is None else _read_only(logits)


@dataclass(frozen=True)
class Layout:
    """The model and the sizes of a session. model: of model_digest."""

    model: str
    batch: int
    state_rows: int
    dim: int
    layers: int
    vocab: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "state": (self.state_rows, self.batch, self.dim),
            "m": (self.batch, self.layers),
            "logits": (self.batch, self.vocab),
        }

    def zeros(self, name: str) -> NDArray[np.float32]:
        return np.zeros(self.shapes[name], np.float32)


def model_digest(config: Mapping[str, Any], symbols: Sequence[str]) -> str:
    """Identifies a model by its unit, sizes, mask and vocabulary, but not by its weights: those differ by precision."""
    described = {name: config.get(name) for name in ("unit", "dim", "layers", "sharpness", "epsilon", "kind", "buffer")}
    return hashlib.sha256(json.dumps([described, list(symbols)], sort_keys=True, default=str).encode()).hexdigest()


def pack(layout: Layout, arrays: Mapping[str, NDArray[Any]], pasts: Sequence[Past]) -> bytes:
    counts = [[past.read, past.generated, past.drawn, len(past.history)] for past in pasts]
    header = json.dumps({"model": layout.model, "batch": layout.batch, "counts": counts}).encode()
    histories = [np.array(past.history, "<i8").tobytes() for past in pasts]
    values = [np.ascontiguousarray(arrays[name], "<f4").tobytes() for name in layout.shapes]
    content = b"".join([len(header).to_bytes(8, "little"), header, *histories, *values])
    return MAGIC + hashlib.sha256(content).digest() + content


def unpack(content: bytes, layout: Layout) -> tuple[dict[str, NDArray[np.float32]], list[Past]]:
    """Raises VcdeployError unless this was packed for the same layout."""
    if not isinstance(content, (bytes, bytearray, memoryview)) or not bytes(content[: len(MAGIC)]) == MAGIC:
        raise VcdeployError("this is no saved session of this version: restore takes what Session.save returned")
    digest, body = bytes(content[len(MAGIC) :][:DIGEST]), bytes(content[len(MAGIC) + DIGEST :])
    if hashlib.sha256(body).digest() != digest:
        raise VcdeployError("the saved session is damaged: its checksum is wrong")
    try:
        size = int.from_bytes(body[:8], "little")
        header = json.loads(body[8 : 8 + size])
        model, batch, counts = header["model"], header["batch"], np.array(header["counts"], np.int64).tolist()
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise VcdeployError(f"the saved session can't be read: {error}") from error
    if model != layout.model:
        raise VcdeployError("the session was saved with another model: restore it with the model it comes from")
    if batch != layout.batch:
        raise VcdeployError(
            f"the session was saved with {batch} sequences, but this one has {layout.batch}: use model.session({batch})"
        )
    return _parts(body[8 + size :], layout, counts)


def _parts(body: bytes, layout: Layout, counts: Any) -> tuple[dict[str, NDArray[np.float32]], list[Past]]:
    pasts, at = [], 0
    fits = isinstance(counts, list) and len(counts) == layout.batch
    fits = fits and all(isinstance(row, list) and len(row) == 4 and min(row) >= 0 for row in counts)
    fits = fits and all(row[3] == min(row[0], MOST_HISTORY) and row[1] <= row[0] >= row[2] for row in counts)
    sizes = {name: int(np.prod(shape)) for name, shape in layout.shapes.items()}
    if not fits or len(body) != sum(row[3] for row in counts) * 8 + sum(sizes.values()) * 4:
        raise VcdeployError("the saved session can't be read: its parts don't match its model")
    for read, generated, drawn, length in counts:
        history = np.frombuffer(body, "<i8", length, at)
        at += history.nbytes
        if length and not (history.min() >= 0 and history.max() < layout.vocab):
            raise VcdeployError("the saved session can't be read: a token is outside the vocabulary")
        pasts.append(Past(read, generated, drawn, history.tolist()))
    arrays = {}
    for name, shape in layout.shapes.items():
        arrays[name] = np.frombuffer(body, "<f4", sizes[name], at).reshape(shape).astype(np.float32)
        at += arrays[name].nbytes
    return arrays, pasts
