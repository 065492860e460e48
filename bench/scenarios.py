"""Scenarios: what is timed, in chunks of calls through the public interface of a model."""

from __future__ import annotations

import gc
from time import perf_counter_ns
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vcdeploy.bench.defaults import SCENARIOS
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.sampling import Sampling

SAMPLING = Sampling(temperature=0.8, top_p=1.0)  # of every measurement so far; the default may change
COLD = "cold"  # measured in full reports only, since each call costs a sweep through memory
DESCRIPTIONS = {**SCENARIOS, COLD: "one symbol/call, with cold caches"}
COLD_CALLS = 2  # per chunk
LONG = 50  # steps/call from which the first steps are warm-up enough
SWEPT = 2.0  # memory rewritten before a cold call, as a multiple of the largest cache
SETTLED = 0.02  # relative spread of medians that counts as stable
SETTLING = 25  # chunks to wait for that at most


class Watch(Protocol):
    """A clock of the device: vcdeploy.gpu.cuda.Stopwatch."""

    def begin(self) -> None: ...
    def end(self) -> None: ...
    def nanoseconds(self) -> int: ...


class Scenario(Protocol):
    """What is timed. fractions: m [steps, B, layers] of every timed step. amount: calls per chunk if fixed, or None.

    watch: the GPU's clock, if there is one; device_times: its times of the calls of the last chunk.
    """

    fractions: list[NDArray[np.float32]]
    amount: int | None
    watch: Watch | None
    device_times: list[int]

    def warm_up(self, amount: int) -> int:
        """Untimed calls (or symbols) before a chunk."""

    def run(self, amount: int) -> tuple[list[int], int]:
        """Run a chunk; returns the nanoseconds of each call, and the steps per call."""


def make(
    name: str,
    model: Model,
    streams: NDArray[np.int64],
    steps: int,
    seed: int,
    watch: Watch | None = None,
    cache: int = 0,
) -> Scenario:
    """The scenario of this name over streams [length, B]; steps: per sequence; cache: bytes of the largest cache."""
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
    """Calls of run() on `steps` symbols each, with the state of the previous call.

    ballast: if given, all of it is rewritten before each call, untimed, to evict everything else from the caches.
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
        self.device_times = self.device_times[-amount:]  # without the warm-up
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
    """One call of generate() per chunk, with the same text each time; m is computed from that text afterwards."""

    def __init__(self, model: Model, prime: NDArray[np.int64], seed: int) -> None:
        self._model, self._prime, self._seed = model, prime, seed
        self.amount: int | None = None
        self.fractions: list[NDArray[np.float32]] = []
        self.watch: Watch | None = None
        self.device_times: list[int] = []

    def warm_up(self, amount: int) -> int:
        return 1 + amount // 10

    def run(self, amount: int) -> tuple[list[int], int]:
        list(self._model.generate(self._prime, self.warm_up(amount), SAMPLING, seed=self._seed))
        if self.watch is not None:
            self.watch.begin()
        begin = perf_counter_ns()
        made = list(self._model.generate(self._prime, amount, SAMPLING, seed=self._seed))
        took = perf_counter_ns() - begin
        if self.watch is not None:
            self.watch.end()
            self.device_times = [self.watch.nanoseconds()]
        read = np.array([*self._prime.tolist(), *made[:-1]], np.int64).reshape(-1, 1)
        self.fractions.append(self._model.run(read)[2])
        return [took], amount


def measure(scenario: Scenario, amount: int) -> tuple[list[int], int]:
    """Run a chunk with the garbage collector off, as timeit does."""
    gc.collect()
    gc.disable()
    try:
        return scenario.run(amount)
    finally:
        gc.enable()


def calibrate(scenario: Scenario, seconds: float) -> int:
    """The amount whose chunk takes about this long when undisturbed."""
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
    """Run chunks until three in a row take equally long, as a GPU raises its clocks under load; False if they don't."""
    medians: list[float] = []
    for _ in range(SETTLING):
        times, _ = measure(scenario, amount)
        medians = [*medians[-2:], float(np.median(times))]
        if len(medians) == 3 and max(medians) <= (1 + SETTLED) * min(medians):
            return True
    return False
