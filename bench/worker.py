"""The process of one engine: JSON requests on standard input, JSON answers on standard output, one per line.

| request | answer |
|---|---|
| load: engine, folder, threads, names (of scenarios), steps, seed, cores (to pin to, or null) | runs: a description of the backend |
| calibrate: scenario, seconds, amount (or null) | amount |
| measure: scenario, amount, seconds (to measure the bandwidth for, or 0) | times [ns], steps (per call), bandwidth (bytes/s, or null), device_times [ns] (by the GPU's clock, or null), joules (per step, or null) |
| summarise: scenario | m and what follows from it |

An answer with the key `error` is a message for the user, one with `absent` says why the engine can't run here.
The process exits when standard input closes, so that it never outlives the one that started it.
"""  # noqa: E501

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from vcdeploy.bench import energy, engines, machine, scenarios, traffic
from vcdeploy.cost import active
from vcdeploy.errors import VcdeployError
from vcdeploy.runtime import backends

TASKS = Path("/proc/self/task")  # the threads of this process


class Worker:
    """A loaded engine and the scenarios it takes part in."""

    def load(
        self,
        engine: dict[str, Any],
        folder: str,
        threads: int,
        names: list[str],
        steps: int,
        seed: int,
        cores: list[int] | None = None,
    ) -> dict[str, Any]:
        self._engine, self._threads, self._steps = engines.Engine(**engine), threads, steps
        streams = np.load(Path(folder) / "streams.npy")
        self._model = engines.load(self._engine, Path(folder), threads, steps, streams.shape[1])
        watch = self._watch() if self._engine.device == engines.CUDA else None
        if cores is not None:  # not earlier: other engines load at the same time
            for thread in TASKS.iterdir():
                os.sched_setaffinity(int(thread.name), cores)
        cache = machine.largest_cache()
        self._scenarios = {
            name: scenarios.make(name, self._model, streams, steps, seed, watch, cache) for name in names
        }
        gc.freeze()  # loaded objects stay: the collection before each chunk need not scan them
        self._settled = dict.fromkeys(names, True)
        self._working_set = dict.fromkeys(names, 0)
        detail = self._model.detail
        return {"runs": f"{self._model.backend}, {detail}" if detail else self._model.backend}

    def _watch(self) -> scenarios.Watch:
        from vcdeploy.gpu.cuda import Stopwatch

        return Stopwatch(engines.stream_of(self._model))

    def calibrate(self, scenario: str, seconds: float, amount: int | None = None) -> dict[str, Any]:
        made = self._scenarios[scenario]
        if amount is None:
            amount = scenarios.calibrate(made, seconds)
        else:
            scenarios.measure(made, amount)
        if made.watch is not None:
            self._settled[scenario] = scenarios.settle(made, amount)
        self._working_set[scenario] = round(self._traffic(scenario).working_set)
        made.fractions.clear()
        return {"amount": amount}

    def measure(self, scenario: str, amount: int, seconds: float) -> dict[str, Any]:
        made = self._scenarios[scenario]
        bandwidth: float | None = None
        before = energy.joules()
        times, steps = scenarios.measure(made, amount)
        spent = energy.between(before, energy.joules())
        if made.watch is not None:
            from vcdeploy.gpu.cuda import copy_bandwidth

            bandwidth = copy_bandwidth(self._working_set[scenario], seconds)
            return {"times": times, "steps": steps, "bandwidth": bandwidth, "device_times": made.device_times}
        if seconds and backends.native_fault() is None:
            from vcdeploy._native import read_bandwidth

            bandwidth = read_bandwidth(self._working_set[scenario], seconds, threads=self._threads)
        # The energy of generate would include the pass that computes m, so it is not reported.
        calls = amount + made.warm_up(amount)
        joules = None if scenario == "generate" or spent is None else spent / steps / calls
        return {"times": times, "steps": steps, "bandwidth": bandwidth, "joules": joules}

    def summarise(self, scenario: str) -> dict[str, Any]:
        m, D = self._fractions(scenario), self._model.config["dim"]
        low, median, high = np.percentile(m, [10, 50, 90]).tolist()
        a = active(m, self._model.config) if self._engine.variable else np.full(m.shape, D)
        return {
            "m": {"mean": float(m.mean()), "spread": float(m.std()), "min": float(m.min()), "p10": low, "p50": median,
                  "p90": high, "max": float(m.max())},
            "mean_square": float((a.astype(float) ** 2).mean() / D**2),
            "bytes": self._traffic(scenario).bytes,
            "working_set": self._working_set[scenario],
            "settled": self._settled[scenario],
        }  # fmt: skip

    def _fractions(self, scenario: str) -> Any:
        return np.concatenate(self._scenarios[scenario].fractions)

    def _traffic(self, scenario: str) -> traffic.Traffic:
        steps = self._steps if scenario == "sequence" else 1
        config, vocab = self._model.config, len(self._model.vocab)
        return traffic.traffic(self._engine, config, vocab, steps, self._fractions(scenario))


def serve(worker: Any) -> None:
    """Answer requests with the worker's method of that name, until standard input closes."""
    # Output of libraries must not mix with the answers: standard output is redirected to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except engines.Absent as reason:
            answer = {"absent": str(reason)}
        except VcdeployError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve(Worker())
