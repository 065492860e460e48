"""The engine: holds many streams of one model and runs them in batched steps. It knows nothing about HTTP.

Each instance is a thread with a session, whose sequences are the places of streams. It works in slices of some
milliseconds: streams that were cancelled or whose time is over leave, waiting ones take free places, prompts are read
and tokens generated, for all streams side by side. So a stream never waits for another one to end, and what nobody
wants any more stops within one slice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from vcdeploy.errors import VcdeployError
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.session import Piece, Session, check_ids
from vcdeploy.serving.queue import Queue
from vcdeploy.serving.streams import CANCELLED, ERROR, LENGTH, STOP, TIMEOUT, Refused, Request, Stream

LOG = logging.getLogger("vcdeploy.serve")

SLICE = 0.02  # seconds of CPU time between two looks at what has changed
SLICE_PER_STREAM = 0.0002  # more for every stream, since each costs some time in every slice
LONGEST_PIECE, FIRST_PIECE = 256, 16  # tokens of a stream in a slice, and in one that has new streams
POLL = 0.1  # seconds between looks at deadlines while nothing runs


@dataclass(frozen=True)
class Limits:
    """What an engine accepts.

    Attributes:
        streams: Streams that generate at the same time, on each instance.
        queue: Streams that wait for a place.
        unread: Tokens a reader may be behind before its stream pauses.
    """

    streams: int = 128
    queue: int = 1024
    unread: int = 1024


@dataclass
class Counts:
    """What an instance has done since it began."""

    prompt_tokens: int = 0
    tokens: int = 0
    m: float = 0.0  # sum over the generated tokens
    slices: int = 0
    busy: float = 0.0  # seconds


class Engine:
    """Streams of one model. Methods may be called from any thread."""

    def __init__(
        self,
        model: Model,
        workers: int = 1,
        limits: Limits | None = None,
        on_end: Callable[[Stream], None] = lambda stream: None,
    ) -> None:
        """on_end: called for every stream when it ends, from the thread that ends it."""
        self.model, self.limits, self.on_end = model, limits or Limits(), on_end
        self.refused = 0
        self._queue = Queue()
        self._changed = threading.Condition()  # guards the queue and what follows
        self._draining = self._closed = False
        self._instances = [_Instance(self, f"{model.name}-{n}") for n in range(workers)]

    def submit(self, request: Request, on_progress: Callable[[], None] | None = None) -> Stream:
        """Accept a request; raises Refused if there is no room for it."""
        if not request.prompt and request.state is None:
            raise VcdeployError("a stream needs a prompt of at least one symbol, or a state to go on from")
        if request.prompt:
            check_ids(np.array(request.prompt), self.model.vocab, self.model.name)
        stream = Stream(request, self, on_progress)
        with self._changed:
            if self._draining:
                raise Refused("the server is shutting down: try again later, or another server", 5)
            free = sum(instance.free for instance in self._instances)
            if len(self._queue) >= self.limits.queue + free:
                self.refused += 1
                raise Refused(
                    f"{self.running} streams run and {len(self._queue)} wait, which is the limit: try again later",
                    self._retry_after(),
                )
            self._queue.add(stream)
            self._changed.notify_all()
        return stream

    def forget(self, stream: Stream) -> None:
        """Drop a stream that waits; one that runs is dropped after the current slice."""
        with self._changed:
            waiting = self._queue.remove(stream)
            self._changed.notify_all()
        if waiting:
            self.end(stream, CANCELLED)

    def wake(self) -> None:
        """Look again at what can go on; called when a reader took the tokens of a paused stream."""
        with self._changed:
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> int:
        return sum(len(instance.streams) for instance in self._instances)

    @property
    def counts(self) -> Counts:
        """The sums over all instances."""
        each = [astuple(instance.counts) for instance in self._instances]
        return Counts(*map(sum, zip(*each, strict=True)))

    def drain(self, seconds: float | None = None) -> None:
        """Accept nothing more; what runs and waits goes on, for so many seconds at most."""
        with self._changed:
            self._draining = True
            if seconds is not None:
                end = time.monotonic() + seconds
                running = [stream for each in self._instances for stream in list(each.streams.values())]
                for stream in (*running, *self._queue):
                    stream.deadline = end if stream.deadline is None else min(end, stream.deadline)
            self._changed.notify_all()

    def close(self) -> None:
        """Cancel everything and end the threads."""
        with self._changed:
            self._draining = self._closed = True
            waiting = [self._queue.next() for _ in range(len(self._queue))]
            self._changed.notify_all()
        for stream in waiting:
            self.end(stream, CANCELLED)
        for instance in self._instances:
            instance.thread.join()

    def _retry_after(self) -> float:
        """Seconds in which about one place should become free: a tenth of the mean time of a stream, at least 1."""
        ages = [time.monotonic() - stream.created for each in self._instances for stream in list(each.streams.values())]
        return min(60.0, max(1.0, sum(ages) / len(ages) / 10 if ages else 1.0))

    # For instances

    def admit(self, instance: _Instance) -> list[Stream] | None:
        """Wait until the instance has something to do; the streams that take its free places, None to end."""
        with self._changed:
            while not self._closed:
                ended = [stream for stream in self._queue if stream.due]
                for stream in ended:
                    self._queue.remove(stream)
                if ended:
                    break
                if self._queue and instance.free:
                    return [self._queue.next() for _ in range(min(instance.free, len(self._queue)))]
                if instance.ready():
                    return []
                self._changed.wait(POLL if instance.streams or self._queue else None)
            else:
                return None
        for stream in ended:
            self.end(stream, TIMEOUT)
        return []

    def release(self, stream: Stream) -> None:
        with self._changed:
            self._queue.done(stream)
            self._changed.notify_all()

    def end(self, stream: Stream, finish: str, error: VcdeployError | None = None) -> None:
        stream.close(finish, error)
        self.on_end(stream)
        if stream.on_progress is not None:
            stream.on_progress()


class _Instance:
    """A thread that advances the streams of a session."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._limits = engine, engine.limits
        self._session: Session = engine.model.session(self._limits.streams)
        self._places = list(range(self._limits.streams))[::-1]  # free ones
        self.streams: dict[int, Stream] = {}  # by place
        self.counts = Counts()
        self._reading = self._generating = 0.0001  # seconds that a token of one stream took last
        self.thread = threading.Thread(target=self._run, name=f"vcdeploy {name}", daemon=True)
        self.thread.start()

    @property
    def free(self) -> int:
        return len(self._places)

    def ready(self) -> bool:
        """Whether there is anything to do for a stream."""
        return any(not stream.paused or stream.cancelled or stream.due for stream in self.streams.values())

    def _run(self) -> None:
        while (admitted := self._engine.admit(self)) is not None:
            begin = time.monotonic()
            try:
                for stream in admitted:
                    self._begin(stream)
                self._sweep()
                self._slice()
            except Exception as error:  # a bug: without this thread every later stream would wait for ever
                LOG.exception("a slice failed")
                self._fail(list(self.streams), VcdeployError(f"the engine failed: {error!r}"))
            self.counts.slices += 1
            self.counts.busy += time.monotonic() - begin
        for place in list(self.streams):
            self._end(place, CANCELLED)

    def _begin(self, stream: Stream) -> None:
        place = self._places.pop()
        self.streams[place] = stream
        stream.started = time.monotonic()
        try:
            self._session.reset([place])
            if stream.request.state is not None:
                self._session.restore(stream.request.state, [place])
        except VcdeployError as error:
            self._end(place, ERROR, error)

    def _end(self, place: int, finish: str, error: VcdeployError | None = None) -> None:
        stream = self.streams.pop(place)
        if stream.request.keep_state and finish in (LENGTH, STOP, TIMEOUT):
            stream.state = self._session.save([place])
        self._places.append(place)
        self._engine.release(stream)
        self._engine.end(stream, finish, error)

    def _sweep(self) -> None:
        """End what nobody wants or has no time left."""
        for place, stream in list(self.streams.items()):
            if stream.cancelled:
                self._end(place, CANCELLED)
            elif stream.due:
                self._end(place, TIMEOUT)

    def _slice(self) -> None:
        """Read prompts and generate, for all streams that can go on."""
        limit = SLICE + SLICE_PER_STREAM * len(self.streams)
        self._read_prompts(time.thread_time() + limit)
        ready = [
            place
            for place, stream in self.streams.items()
            if stream.read == len(stream.request.prompt) and not stream.paused
        ]
        free = [place for place in ready if self.streams[place].request.allowed is None]
        plain = [place for place in free if not self.streams[place].request.alternatives]
        others = [place for place in free if self.streams[place].request.alternatives]
        bound = [place for place in ready if self.streams[place].request.allowed is not None]
        for group in (plain, others):
            if group:
                most = LONGEST_PIECE if all(self.streams[place].made for place in group) else FIRST_PIECE
                self._generate(group, _tokens_in(limit, self._generating * len(group), most))
        end = time.thread_time() + limit
        while bound and time.thread_time() < end:
            self._generate_allowed(bound)
            bound = [place for place in bound if place in self.streams and not self.streams[place].paused]

    def _read_prompts(self, end: float) -> None:
        """Read prompts side by side, as many tokens at once as the shortest has left, until the slice ends."""
        while (time_left := end - time.thread_time()) > 0:
            left = {
                place: len(stream.request.prompt) - stream.read
                for place, stream in self.streams.items()
                if stream.read < len(stream.request.prompt)
            }
            if not left:
                return
            places = list(left)
            count = _tokens_in(time_left, self._reading * len(places), min(left.values()))
            streams = [self.streams[place] for place in places]
            begin = time.thread_time()
            tokens = [stream.request.prompt[stream.read : stream.read + count] for stream in streams]
            try:
                self._session.feed(np.array(tokens, np.int64).T, rows=places)
            except VcdeployError as error:
                self._fail(places, error)
                continue
            for stream in streams:
                stream.read += count
            self.counts.prompt_tokens += count * len(places)
            self._reading = (time.thread_time() - begin) / (count * len(places))

    def _generate(self, places: Sequence[int], length: int) -> None:
        streams = [self.streams[place] for place in places]
        begin = time.thread_time()
        lengths = [min(length, stream.left) for stream in streams]
        try:
            drawn = self._session.pieces(
                lengths,
                [stream.request.sampling for stream in streams],
                rows=places,
                alternatives=max(stream.request.alternatives for stream in streams),
            )
        except VcdeployError as error:
            self._fail(places, error)
            return
        self._generating = (time.thread_time() - begin) / max(1, sum(map(len, drawn)))
        self._deliver(places, lengths, drawn)

    def _generate_allowed(self, places: Sequence[int]) -> None:
        """Generate one token of each stream that restricts what may follow."""
        masks, able = [], []
        for place in places:
            stream = self.streams[place]
            assert stream.request.allowed is not None
            try:
                masks.append(stream.request.allowed(stream.ids))
                able.append(place)
            except VcdeployError as error:
                self._end(place, ERROR, error)
        if not able:
            return
        streams = [self.streams[place] for place in able]
        try:
            drawn = self._session.pieces(
                1,
                [stream.request.sampling for stream in streams],
                rows=able,
                allowed=np.stack(masks),
                alternatives=max(stream.request.alternatives for stream in streams),
            )
        except VcdeployError as error:
            self._fail(able, error)
            return
        for stream, piece in zip(streams, drawn, strict=True):
            stream.ids += piece.ids
        self._deliver(able, [1] * len(able), drawn)

    def _deliver(self, places: Sequence[int], asked: Sequence[int], drawn: Sequence[Piece]) -> None:
        for place, length, piece in zip(places, asked, drawn, strict=True):
            stream = self.streams[place]
            stream.made += len(piece)
            self.counts.tokens += len(piece)
            self.counts.m += float(piece.m.sum())
            stream.push(piece)
            if len(piece) < length or stream.stopped:
                self._end(place, STOP)
            elif not stream.left:
                self._end(place, LENGTH)
            elif stream.on_progress is not None:
                stream.on_progress()

    def _fail(self, places: Sequence[int], error: VcdeployError) -> None:
        for place in places:
            self._end(place, ERROR, error)


def _tokens_in(seconds: float, each: float, most: int) -> int:
    """How many tokens to do in so many seconds: at least one."""
    return max(1, min(most, int(seconds / each)))
