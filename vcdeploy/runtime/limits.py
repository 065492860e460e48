"""When a call must end early: its timeout, or an event that another thread sets."""

from __future__ import annotations

import numbers
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import Cancelled, TimedOut, VcdeployError
from vcdeploy.runtime.sampling import Runnable

Check = Callable[[], None]  # raises if the call must end

AT_ONCE = 0.01  # seconds between two checks


class Event(Protocol):
    """A threading.Event, or anything else with its is_set."""

    def is_set(self) -> bool: ...


def check_of(timeout: float | None, cancel: Event | None) -> Check | None:
    """A check for a call that begins now; None if it has no limit."""
    if timeout is None and cancel is None:
        return None
    if timeout is not None and not (isinstance(timeout, numbers.Real) and timeout > 0):
        raise VcdeployError(f"timeout must be above 0 seconds, or None for no limit, not {timeout!r}")
    if cancel is not None and not hasattr(cancel, "is_set"):
        raise VcdeployError(f"cancel must be a threading.Event, or have its is_set, not {type(cancel).__name__}")
    end = None if timeout is None else time.monotonic() + timeout

    def check() -> None:
        if cancel is not None and cancel.is_set():
            raise Cancelled("the call was cancelled: its event `cancel` is set")
        if end is not None and time.monotonic() > end:
            raise TimedOut(
                f"the call took longer than its timeout of {timeout:g} s: pass a larger one, or fewer tokens"
            )

    return check


def run_in_pieces(
    model: Runnable, tokens: NDArray[np.int64], state: Any, position: int, check: Check
) -> tuple[Any, Any, Any]:
    """What model.run returns, from as many steps at once as take about 10 ms, with a check before each piece."""
    logits, fractions, count, start = [], [], 1, 0
    while start < len(tokens):
        check()
        begin = time.monotonic()
        piece = tokens[start : start + count]
        each, state, m = model.run(piece, state, position + start)
        logits.append(each)
        fractions.append(m)
        start += len(piece)
        if time.monotonic() - begin < AT_ONCE / 2:
            count *= 2
        elif time.monotonic() - begin > AT_ONCE:
            count = max(1, count // 2)
    return np.concatenate(logits), state, np.concatenate(fractions)
