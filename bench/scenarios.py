"""Scenarios: what is timed, in chunks of calls through the public interface of a model."""

from __future__ import annotations

import gc
from time import perf_counter_ns
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vcdeploy.runtime import Model

SCENARIOS = {
    "step": "one symbol/call, the state carried from call to call",
    "sequence": "many symbols/call",
    "generate": "a loop that reads each symbol it chose, one sequence",
}
# Measured in full reports only, since each call costs a sweep through memory.
COLD = "cold"
DESCRIPTIONS = {**SCENARIOS, COLD: "one symbol/call, everything evicted from the caches before"}
COLD_CALLS = 2  # of a chunk
LONG = 50  # steps of a call whose first ones warm up for the rest
SWEPT = 2.0  # of the largest cache: what a sweep between cold calls goes through
SETTLED = 0.02  # the spread of medians that counts as stable
SETTLING = 25  # chunks to wait for it at most


class Watch(Protocol):
    """A clock of the device: vcdeploy.gpu.cuda.Stopwatch."""

    def begin(self) -> None: ...
    def end(self) -> None: ...
    def nanoseconds(self) -> int: ...


class Scenario(Protocol):
    """fractions: m [steps, B, layers] of every step that was timed. amount: of a chunk, where it is no matter of time.

    watch: on a GPU, its own clock; device_times: what it showed for each call of the last chunk.
    """

    fractions: list[NDArray[np.float32]]
    amount: int | None
    watch: Watch | None
    device_times: list[int]

    def warm_up(self, amount: int) -> int:
        """Calls (or symbols) before a chunk that are not timed."""

    def run(self, amount: int) -> tuple[list[int], int]:
        """A chunk: the nanoseconds of each call, and the steps of a call."""


def make(
    name: str,
    model: Model,
    streams: NDArray[np.int64],
    steps: int,
    seed: int,
    watch: Watch | None = None,
    cache: int = 0,
) -> Scenario:
    """The scenario of that name over streams [length, B]; steps: those of a sequence; cache: bytes of the largest."""
    scenario: Scenario
    if name == "generate":
        scenario = Generating(model, streams[:1, 0], seed)
    elif name == COLD:
        scenario = Reading(model, streams, 1, np.zeros(int(SWEPT * cache) // 8, np.int64))
    else:
        scenario = Reading(model, streams, steps if name == "sequence" else 1)
    scenario.watch = watch
    return scenario


class Reading:
    """Calls of run() on `steps` symbols each, with the state of the call before.

    ballast: where given, all of it is rewritten before each call, untimed, so that nothing else is left in a cache.
    """

    def __init__(
        self, model: Model, streams: NDArray[np.int64], steps: int, ballast: NDArray[np.int64] | None = None
    ) -> None:
        self._model, self._steps, self._ballast = model, steps, ballast
        self.amount = None if ballast is None else COLD_CALLS
        self._streams = np.tile(streams, (-(-steps // len(streams)), 1))
        self._place = 0
        self._state: NDArray[np.float32] | None = None
        self.fractions: list[NDArray[np.float32]] = []
        self.watch: Watch | None = None
        self.device_times: list[int] = []

    def warm_up(self, amount: int) -> int:
        others_have_used_the_caches = self._steps < LONG and self._ballast is None
        return amount // 10 + (1 if others_have_used_the_caches else 0)

    def run(self, amount: int) -> tuple[list[int], int]:
        for _ in range(self.warm_up(amount)):
            self._call()
        times = []
        self.device_times = []
        for _ in range(amount):
            took, m = self._call()
            times.append(took)
            self.fractions.append(m)
        self.device_times = self.device_times[-amount:]  # without those of the warm-up
        return times, self._steps

    def _call(self) -> tuple[int, NDArray[np.float32]]:
        if self._place + self._steps > len(self._streams):
            self._place = 0
        tokens = self._streams[self._place : self._place + self._steps]
        self._place += self._steps
        if self._ballast is not None:
            self._ballast += 1
        if self.watch is not None:
            self.watch.begin()
        begin = perf_counter_ns()
        _, self._state, m = self._model.run(tokens, self._state)
        took = perf_counter_ns() - begin
        if self.watch is not None:
            self.watch.end()
            self.device_times.append(self.watch.nanoseconds())
        return took, m


class Generating:
    """One call of generate() a chunk, which writes the same each time; m comes from reading it, afterwards."""

    def __init__(self, model: Model, prime: NDArray[np.int64], seed: int) -> None:
        self._model, self._prime, self._seed = model, prime, seed
        self.amount: int | None = None
        self.fractions: list[NDArray[np.float32]] = []
        self.watch: Watch | None = None
        self.device_times: list[int] = []

    def warm_up(self, amount: int) -> int:
        return 1 + amount // 10

    def run(self, amount: int) -> tuple[list[int], int]:
        list(self._model.generate(self._prime, self.warm_up(amount), seed=self._seed))
        if self.watch is not None:
            self.watch.begin()
        begin = perf_counter_ns()
        made = list(self._model.generate(self._prime, amount, seed=self._seed))
        took = perf_counter_ns() - begin
        if self.watch is not None:
            self.watch.end()
            self.device_times = [self.watch.nanoseconds()]
        read = np.array([*self._prime.tolist(), *made[:-1]], np.int64).reshape(-1, 1)
        self.fractions.append(self._model.run(read)[2])
        return [took], amount


def measure(scenario: Scenario, amount: int) -> tuple[list[int], int]:
    """A chunk with the garbage collector off, as timeit does."""
    gc.collect()
    gc.disable()
    try:
        return scenario.run(amount)
    finally:
        gc.enable()


def calibrate(scenario: Scenario, seconds: float) -> int:
    """The amount whose chunk lasts about so long, where nothing disturbs it."""
    if scenario.amount is not None:
        measure(scenario, scenario.amount)
        return scenario.amount
    amount = 1
    while True:
        tries = [measure(scenario, amount)[0] for _ in range(2)]
        took = min(float(np.median(times)) * len(times) for times in tries) / 1e9
        if took >= seconds / 4:
            return max(1, round(amount * seconds / took))
        amount *= 4


def settle(scenario: Scenario, amount: int) -> bool:
    """Run chunks until three in a row take the same time: a GPU raises its clocks under load. Whether they did."""
    medians: list[float] = []
    for _ in range(SETTLING):
        times, _ = measure(scenario, amount)
        medians = [*medians[-2:], float(np.median(times))]
        if len(medians) == 3 and max(medians) <= (1 + SETTLED) * min(medians):
            return True
    return False
