"""What is asked of the engine, and the stream of tokens it answers with."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vcdeploy.errors import VcdeployError
from vcdeploy.runtime.sampling import Allowed, Sampling, StopFilter, Token
from vcdeploy.runtime.session import Piece

if TYPE_CHECKING:
    from vcdeploy.serving.engine import Engine

# How a stream ended: it has all its tokens, reached a stop string, took too long, nobody wants it, or failed.
LENGTH, STOP, TIMEOUT, CANCELLED, ERROR = FINISHES = ("length", "stop", "timeout", "cancelled", "error")


class Refused(VcdeployError):
    """The engine takes no more: try again after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Request:
    """What to generate.

    Attributes:
        prompt: Ids to read first; none only with a state.
        length: Number of tokens to generate.
        sampling: How to sample, with stop sequences as ids.
        alternatives: How many of the most likely symbols to return with each token.
        allowed: What may follow the ids so far, those of the prompt included.
        state: Of a sequence to go on from, as saved by an earlier stream.
        keep_state: Whether to save the state at the end.
        owner: Whose request it is; owners take turns.
        timeout: Seconds from now until the stream ends, whatever it has.
    """

    prompt: list[int]
    length: int
    sampling: Sampling
    alternatives: int = 0
    allowed: Allowed | None = None
    state: bytes | None = None
    keep_state: bool = False
    owner: str = ""
    timeout: float | None = None


@dataclass(eq=False)
class Stream:
    """A request and the tokens generated for it so far.

    One reader takes the tokens, from any thread; the engine writes. A reader that falls behind pauses the stream, not
    the others.

    Attributes:
        on_progress: Called from the engine's thread after every slice that gave this stream tokens or ended it.
        finish: How it ended, None before; one of FINISHES.
        error: What went wrong, if finish is "error".
        state: The state at the end, if it was asked for and the stream was not cancelled.
        started: When it left the queue, and first_token, ended; of time.monotonic.
        made: Number of tokens generated, with those of a stop string.
    """

    request: Request
    engine: Engine
    on_progress: Callable[[], None] | None = None
    finish: str | None = None
    error: VcdeployError | None = None
    state: bytes | None = None
    created: float = field(default_factory=time.monotonic)
    started: float | None = None
    first_token: float | None = None
    ended: float | None = None
    made: int = 0
    cancelled: bool = False

    def __post_init__(self) -> None:
        timeout = self.request.timeout
        self.deadline = None if timeout is None else self.created + timeout
        self.read = 0  # tokens of the prompt
        self.unread = 0  # tokens that the reader has not taken
        self.ids = list(self.request.prompt) if self.request.allowed else []  # all so far, for `allowed`
        self.filter = StopFilter(self.request.sampling) if self.request.sampling.stop else None
        self._held = list[Piece]()  # what may belong to a stop sequence
        self._pieces = deque[Piece]()
        self._progress = threading.Condition()

    @property
    def due(self) -> bool:
        """Whether its time is over."""
        return self.deadline is not None and time.monotonic() > self.deadline

    @property
    def left(self) -> int:
        """Tokens still to generate."""
        return self.request.length - self.made

    # The reader's side

    def take(self) -> tuple[Piece | None, bool]:
        """The tokens since the last call, if any, and whether that is all."""
        with self._progress:
            ended, paused = self.finish is not None, self.paused
            piece = Piece.joined(list(self._pieces)) if self._pieces else None
            self._pieces.clear()
            self.unread = 0
        if paused:
            self.engine.wake()
        return piece, ended

    def __iter__(self) -> Iterator[list[Token]]:
        """The tokens in pieces, as they come; raises the error that ended the stream."""
        ended = False
        while not ended:
            with self._progress:
                self._progress.wait_for(lambda: self._pieces or self.finish is not None)
            piece, ended = self.take()
            if piece:
                yield piece.tokens()
        if self.error is not None:
            raise self.error

    def cancel(self) -> None:
        """End the stream: nothing is generated for it after the current slice. Does nothing if it has ended."""
        self.cancelled = True
        self.engine.forget(self)

    # The engine's side

    @property
    def paused(self) -> bool:
        """Whether it waits for its reader."""
        return self.unread >= self.engine.limits.unread

    @property
    def stopped(self) -> bool:
        """Whether the tokens so far end with a stop sequence."""
        return self.filter is not None and self.filter.stopped

    def push(self, piece: Piece) -> None:
        """Add what was generated; what may belong to a stop sequence waits for the next piece."""
        if self.filter is not None:
            held = Piece.joined([*self._held, piece])
            ready = self.filter.push(piece.ids)
            piece, self._held = held[:ready], [held[ready:]]
        self._add(piece)

    def _add(self, piece: Piece) -> None:
        if not piece:
            return
        with self._progress:
            if self.first_token is None:
                self.first_token = time.monotonic()
            self._pieces.append(piece)
            self.unread += len(piece)
            self._progress.notify_all()

    def close(self, finish: str, error: VcdeployError | None = None) -> None:
        if self.filter is not None and self._held:
            self._add(self._held[0][: self.filter.end()])
        with self._progress:
            self.finish, self.error, self.ended = finish, error, time.monotonic()
            self._progress.notify_all()
