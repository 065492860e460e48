"""The queue of streams that wait for a place. Owners take turns."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator

from vcdeploy.serving.streams import Stream


class Queue:
    """Streams in order of arrival for each owner; next is one of the owner that has the fewest running."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Stream]] = OrderedDict()  # the owner served last is at the end
        self._running = Counter[str]()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Stream]:
        for streams in self._waiting.values():
            yield from streams

    def add(self, stream: Stream) -> None:
        self._waiting.setdefault(stream.request.owner, deque()).append(stream)
        self._length += 1

    def remove(self, stream: Stream) -> bool:
        """Take a stream out; False if it is not in the queue."""
        streams = self._waiting.get(stream.request.owner)
        if not streams or stream not in streams:
            return False
        streams.remove(stream)
        self._left(stream)
        return True

    def next(self) -> Stream:
        """Take the next stream out; its owner has one more running until `done`."""
        owner = min(self._waiting, key=lambda each: self._running[each])  # the first of equals
        stream = self._waiting[owner].popleft()
        self._waiting.move_to_end(owner)
        self._left(stream)
        self._running[owner] += 1
        return stream

    def done(self, stream: Stream) -> None:
        owner = stream.request.owner
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]

    def _left(self, stream: Stream) -> None:
        self._length -= 1
        if not self._waiting[stream.request.owner]:
            del self._waiting[stream.request.owner]
