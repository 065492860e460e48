"""What every attack prints: one line `NAME: N tries, F failures, S s` per kind."""

import sys
import time


class Summary:
    """Prints the lines, each with the time since the one before, and knows whether anything has failed."""

    def __init__(self) -> None:
        self._failed, self._start = False, time.monotonic()

    def line(self, name: str, tries: int, failures: int) -> None:
        now = time.monotonic()
        print(f"{name}: {tries:,} tries, {failures:,} failures, {now - self._start:.0f} s", flush=True)
        self._failed |= failures > 0
        self._start = now

    def exit(self) -> None:
        """End the program: with 1 if anything has failed."""
        sys.exit(self._failed)
