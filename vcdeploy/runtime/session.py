"""Sessions: sequences that are read and generated token by token, on every backend."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.runtime import saved
from vcdeploy.runtime.limits import Check, Event, check_of, run_in_pieces
from vcdeploy.runtime.sampling import Allowed, Draws, Runnable, Sampling, Token, draw
from vcdeploy.runtime.saved import Layout, Past
from vcdeploy.vocabulary import Vocabulary

MOST_SEQUENCES = 2**16  # of a session
MOST_TOKENS = 2**22  # of one call of generate, which keeps them all in memory

Drawn = tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float64], NDArray[np.int64]]


class Sequences(Protocol):
    """The sequences of a session on one backend. A sampled token is read with the next call.

    at_once: tokens to generate per call when streaming. logits [B, vocab] and m [B, layers] are written in place.
    """

    @property
    def at_once(self) -> int: ...

    @property
    def logits(self) -> NDArray[Any] | None: ...

    @property
    def m(self) -> NDArray[Any] | None: ...

    def step(self, tokens: object) -> bool:
        """Read a token of each sequence and compute logits; False if `tokens` has no form this takes quickly."""

    def feed(self, tokens: NDArray[np.int64], check: Check | None = None) -> None:
        """Read tokens [T, B]; logits may be left as they are."""

    def observe(self) -> None:
        """Read what was sampled last, and compute the logits."""

    def generate(
        self,
        uniforms: NDArray[np.float64],
        sampling: Sequence[Sampling],
        allowed: NDArray[np.bool_] | None = None,
        check: Check | None = None,
    ) -> Drawn:
        """uniforms [length, B], allowed [B, vocab] -> tokens [length, B], m, log-probabilities, lengths [B]."""

    def save(self) -> tuple[NDArray[Any] | None, NDArray[Any] | None, list[Past]]:
        """The state [S, B, D], m, and what each sequence read; None instead of zeros if nothing was read."""

    def restore(self, state: NDArray[Any], m: NDArray[Any], logits: NDArray[Any], pasts: Sequence[Past]) -> None: ...

    def fork(self) -> Sequences: ...

    def reset(self, rows: Sequence[int]) -> None: ...


class RunSequences:
    """Sequences of a backend that has only `run`."""

    at_once = 1

    def __init__(self, model: Runnable, batch: int) -> None:
        self._model = model
        self._states: list[Any] = [None] * batch  # [S, 1, D] each
        self._pasts = [Past() for _ in range(batch)]
        self._pending: dict[int, int] = {}  # tokens that were sampled and not yet read
        self.logits: NDArray[Any] | None = None
        self.m: NDArray[Any] | None = None

    def step(self, tokens: object) -> bool:
        return False

    def feed(self, tokens: NDArray[np.int64], check: Check | None = None) -> None:
        self._read_pending(range(len(self._pasts)))
        self._read(list(range(len(self._pasts))), tokens, check)
        for past, column in zip(self._pasts, tokens.T.tolist(), strict=True):
            past.add(column)
            past.generated = 0

    def observe(self) -> None:
        self._read_pending(range(len(self._pasts)))

    def generate(
        self,
        uniforms: NDArray[np.float64],
        sampling: Sequence[Sampling],
        allowed: NDArray[np.bool_] | None = None,
        check: Check | None = None,
    ) -> Drawn:
        for n, past in enumerate(self._pasts):
            if not past.read:
                raise VcdeployError(f"sequence {n} has read nothing to go on from: feed it at least one token")
        length, batch = uniforms.shape
        tokens, log_probabilities = np.zeros((length, batch), np.int64), np.zeros((length, batch))
        fractions = np.zeros((length, batch, 1))
        lengths = np.zeros(batch, np.int64)
        for t in range(length):
            active = [n for n, past in enumerate(self._pasts) if not sampling[n].ends(past.newest())]
            if check is not None:
                check()
            self._read_pending(active)
            assert self.logits is not None and self.m is not None
            for n in active:
                mask = None if allowed is None else allowed[n]
                past = self._pasts[n]
                token = draw(self.logits[n], self.m[n], uniforms[t, n], sampling[n], past.history, mask)
                self._pending[n] = token.id
                past.add([token.id])
                past.generated += 1
                tokens[t, n], fractions[t, n], log_probabilities[t, n] = token
                lengths[n] = t + 1
        return tokens, fractions, log_probabilities, lengths

    def save(self) -> tuple[NDArray[Any] | None, NDArray[Any] | None, list[Past]]:
        self.observe()
        return self._state(), self.m, deepcopy(self._pasts)

    def restore(self, state: NDArray[Any], m: NDArray[Any], logits: NDArray[Any], pasts: Sequence[Past]) -> None:
        self._states = [state[:, n : n + 1].copy() if past.read else None for n, past in enumerate(pasts)]
        self._pasts, self._pending = list(pasts), {}
        self._keep(range(len(pasts)), logits, m)

    def fork(self) -> Sequences:
        state, m, pasts = self.save()
        other = type(self)(self._model, len(pasts))
        if state is not None and m is not None and self.logits is not None:
            other.restore(state, m, self.logits, pasts)
        return other

    def reset(self, rows: Sequence[int]) -> None:
        for n in rows:
            self._states[n], self._pasts[n] = None, Past()
            self._pending.pop(n, None)
            for each in (self.logits, self.m):
                if each is not None:
                    each[n] = 0

    def _state(self) -> NDArray[Any] | None:
        """The states of all, [S, B, D]; None if all are zero."""
        known = next((each for each in self._states if each is not None), None)
        if known is None:
            return None
        return np.concatenate([np.zeros_like(known) if each is None else each for each in self._states], axis=1)

    def _read_pending(self, rows: Sequence[int]) -> None:
        unread = [n for n in rows if n in self._pending]
        if unread:
            tokens = np.array([[self._pending[n] for n in unread]], np.int64)
            self._read(unread, tokens, None, ahead=1)
            for n in unread:
                del self._pending[n]

    def _read(self, rows: list[int], tokens: NDArray[np.int64], check: Check | None, ahead: int = 0) -> None:
        """Run tokens [T, rows]; sequences at different places run apart. ahead: how many the past has of them."""
        places: dict[int, list[int]] = {}
        for i, n in enumerate(rows):
            places.setdefault(self._pasts[n].read - ahead, []).append(i)
        for place, columns in places.items():
            mine, piece = [rows[i] for i in columns], np.ascontiguousarray(tokens[:, columns])
            states = [self._states[n] for n in mine]
            state = None if states[0] is None else np.concatenate(states, axis=1)
            if check is None:
                logits, state, m = self._model.run(piece, state, place)
            else:
                logits, state, m = run_in_pieces(self._model, piece, state, place, check)
            for i, n in enumerate(mine):
                self._states[n] = state[:, i : i + 1]
            self._keep(mine, logits[-1], m[-1])

    def _keep(self, rows: Sequence[int], logits: NDArray[Any], m: NDArray[Any]) -> None:
        if self.logits is None or self.m is None:
            batch = len(self._pasts)
            self.logits = np.zeros((batch, logits.shape[-1]), logits.dtype)
            self.m = np.zeros((batch, m.shape[-1]), m.dtype)
        self.logits[rows], self.m[rows] = logits, m


class PythonLoop:
    """Base class of backends without sessions of their own: their sequences call `run` for each token."""

    @property
    def detail(self) -> str:
        """The variant in use; empty by default."""
        return ""

    def run(self, tokens: NDArray[np.int64], state: Any = None, position: int = 0) -> tuple[Any, Any, Any]:
        raise NotImplementedError

    def sequences(self, batch: int) -> Sequences:
        return RunSequences(self, batch)


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
        ((piece,), (count,)) = tokens_of(drawn), drawn[3].tolist()
        if piece:
            yield piece
        if count < at_once:
            return
        draws.used([count])
        length -= count
        if allowed is not None:
            ids += [token.id for token in piece]


def tokens_of(drawn: Drawn) -> list[list[Token]]:
    """The tokens of each sequence."""
    ids, m, log_probabilities, lengths = drawn
    means = m.mean(-1, dtype=np.float64)
    columns = zip(ids.T.tolist(), means.T.tolist(), log_probabilities.T.tolist(), lengths.tolist(), strict=True)
    return [list(map(Token, *(each[:length] for each in column))) for *column, length in columns]


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
        sampling = replace(sampling or Sampling(), **options)
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

    def feed(self, tokens: ArrayLike, *, timeout: float | None = None, cancel: Event | None = None) -> None:
        """Read tokens [T, B], or [T] if there is one sequence, without logits. timeout and cancel: as for Model.run."""
        ids = array_of(tokens, "tokens")
        if ids.ndim == 1 and self.batch == 1:
            ids = ids.reshape(-1, 1)
        if ids.ndim != 2 or ids.shape[1] != self.batch or not len(ids) or ids.dtype.kind not in "iu":
            raise VcdeployError(
                f"the tokens of this session must be integers of shape [T, {self.batch}], T at least 1, "
                f"not {ids.dtype} {list(ids.shape)}"
            )
        check_ids(ids, self._vocab, self._name)
        self._sequences.feed(np.ascontiguousarray(ids, np.int64), check_of(timeout, cancel))

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
        length: int,
        sampling: Sampling | Sequence[Sampling] | None = None,
        *,
        allowed: ArrayLike | None = None,
        timeout: float | None = None,
        cancel: Event | None = None,
        **options: Any,
    ) -> list[list[Token]]:
        """Generate `length` tokens of each sequence, going on from what it has read, which must be something.

        Args:
            length: Number of tokens; a sequence has fewer if it reaches a stop string, which its tokens then include.
                It generates no more until it is given another token.
            sampling: How to sample: for all sequences, the n-th with `seed + n`, or one for each.
            allowed: The symbols to choose from, a mask [vocab] or [B, vocab], for all tokens of this call.
            timeout: As for Model.run.
            cancel: As for Model.run.
            **options: Fields of Sampling, to override those of `sampling`.

        Several calls with the same seeds give the same tokens as one. The same seed gives the same tokens in any batch
        and on any backend.
        """
        most = MOST_TOKENS // self.batch
        if not isinstance(length, (int, np.integer)) or not 0 <= length <= most:
            raise VcdeployError(f"length must be from 0 to {most}, not {length!r:.40}: generate more in several calls")
        if sampling is None or not isinstance(sampling, Sequence):
            one = settled(sampling, options, self._vocab)
            each, seeds = [one] * self.batch, [one.seed + n for n in range(self.batch)]
        else:
            each = [settled(one, options, self._vocab) for one in sampling]
            seeds = [one.seed for one in each]
            if len(each) != self.batch:
                raise VcdeployError(f"this session has {self.batch} sequences, but sampling is for {len(each)}")
        mask = None
        if allowed is not None:
            shape = (self.batch, len(self._vocab))
            mask = array_of(allowed, "allowed", bool)
            if mask.shape not in (shape, shape[1:]):
                raise VcdeployError(f"allowed must have the shape {list(shape)}, not {list(mask.shape)}")
            mask = np.ascontiguousarray(np.broadcast_to(mask, shape))
        uniforms = self._draws.take(seeds, length)
        drawn = self._sequences.generate(uniforms, each, mask, check_of(timeout, cancel))
        self._draws.used(drawn[3].tolist())
        return tokens_of(drawn)

    def fork(self) -> Session:
        """A session that goes its own way from here."""
        return Session(self._sequences.fork(), self._layout, self._vocab, self._name, self._draws.counts)

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Start sequences again, from a zero state: those with these numbers, by default all."""
        try:
            chosen = list(range(self.batch)) if rows is None else [operator.index(n) for n in rows]
        except TypeError as error:
            raise VcdeployError(f"reset takes a list of the numbers of sequences, not {rows!r:.40}") from error
        if wrong := [n for n in chosen if not 0 <= n < self.batch]:
            raise VcdeployError(f"there is no sequence {wrong[0]}: there are {self.batch}, counted from 0")
        self._sequences.reset(chosen)
        for n in chosen:
            self._draws.counts[n] = 0

    def save(self) -> bytes:
        """Everything needed to go on later, in another process, or on another backend."""
        state, m, pasts = self._sequences.save()
        logits = self.logits
        for past, drawn in zip(pasts, self._draws.counts, strict=True):
            past.drawn = drawn
        arrays = {"state": state, "m": m, "logits": logits}
        filled = {name: self._layout.zeros(name) if each is None else each for name, each in arrays.items()}
        return saved.pack(self._layout, filled, pasts)

    def restore(self, content: bytes) -> None:
        """Go on from what `save` returned, in a session of as many sequences of the same model."""
        arrays, pasts = saved.unpack(content, self._layout)
        self._sequences.restore(arrays["state"], arrays["m"], arrays["logits"], pasts)
        self._draws = Draws([past.drawn for past in pasts])
        self._logits = self._kept_logits()

    def _kept_logits(self) -> NDArray[Any] | None:
        logits = self._sequences.logits
        return None if logits is None else _read_only(logits)
