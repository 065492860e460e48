"""Wakes the tasks of an event loop when streams, which other threads advance, have made progress."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class Bridge:
    """Collects the events that threads set, so that the loop is woken once for all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._lock = loop, threading.Lock()
        self._waiting: list[asyncio.Event] = []

    def setter(self, event: asyncio.Event) -> Callable[[], None]:
        """A function that sets the event soon, from any thread."""

        def set_soon() -> None:
            with self._lock:
                self._waiting.append(event)
                first = len(self._waiting) == 1
            if first and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._set_all)

        return set_soon

    def _set_all(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for event in waiting:
            event.set()
