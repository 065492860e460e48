"""The rounds of a benchmark: every engine has its own process, one runs at a time, each scenario once per round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from vcdeploy.bench.engines import CUDA, Absent, Engine
from vcdeploy.errors import VcdeployError

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PAUSE = 0.003  # seconds after a chunk: threads of the previous process may still spin
PATIENCE = 5.0  # seconds a process may take to exit when asked to
SHOWN = 20  # lines shown of a dead process's standard error


@dataclass
class Chunk:
    """One scenario of one engine in one round."""

    times: list[int]  # ns/call
    steps: int  # per call
    bandwidth: float | None  # bytes/s, measured right after it
    device_times: list[int] | None = None  # ns/call by the GPU's clock
    joules: float | None = None  # per step, of the whole processor


@dataclass
class Record:
    """The measurements of an engine."""

    engine: Engine
    runs: str
    chunks: dict[str, list[Chunk]] = field(default_factory=dict)  # by scenario, one chunk per round
    summary: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """How engines are measured. threads: per engine. steps: per sequence. seconds: approximate length of a chunk.

    amount: calls per chunk, instead of seconds. cores: those that engines are pinned to. bandwidth_seconds: how long to
    measure the machine's bandwidth after each chunk, or 0.
    """

    scenarios: Sequence[str]
    threads: int
    steps: int
    rounds: int
    seconds: float
    seed: int
    amount: int | None = None
    cores: Sequence[int] | None = None
    bandwidth_seconds: float = 0.003


class Process:
    """A worker and its pipes. It has its own session: Ctrl-C reaches only this program, which then stops the worker."""

    def __init__(self, name: str, threads: int, worker: str = "vcdeploy.bench.worker") -> None:
        self.name = name
        # A file, since a pipe that is not read would fill up.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", worker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))},
            start_new_session=True,
        )

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer; raises if the worker reports an error or dies."""
        assert self._process.stdin is not None and self._process.stdout is not None
        line = ""
        with suppress(BrokenPipeError):
            print(json.dumps({"do": do, **request}), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        if not line:
            raise VcdeployError(self._last_words(do))
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise VcdeployError(f"{self.name}: {answer['error']}")
        return answer

    def _last_words(self, do: str) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").rstrip().splitlines()[-SHOWN:]
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        said = "; its last output:\n" + "\n".join(lines) if lines else ", without any output"
        return f"the process of {self.name} ended with {how} when asked to {do}{said}"

    def stop(self) -> None:
        """Ask the worker to exit, without waiting."""
        self._process.terminate()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        self._errors.close()


def measure(
    engines: Sequence[Engine], folder: Path, settings: Settings, tell: Callable[[str], None]
) -> tuple[list[Record], dict[str, str]]:
    """Measure the engines; returns a record of each, and why the others can't run here.

    folder: holds the engines' files and streams.npy. tell: gets progress lines.
    """
    absent: dict[str, str] = {}
    running: list[tuple[Process, Record, dict[str, int]]] = []
    with ExitStack() as open_processes:
        loading = [(each, open_processes.enter_context(Process(each.name, settings.threads))) for each in engines]
        for (engine, process), record in zip(loading, _load(loading, folder, settings, tell), strict=True):
            if isinstance(record, Absent):
                absent[engine.name] = str(record)
                process.stop()
                continue
            tell(f"calibrating {engine.name}")
            asked = {"seconds": settings.seconds, "amount": settings.amount}
            amounts = {name: int(process.ask("calibrate", scenario=name, **asked)["amount"]) for name in record.chunks}
            running.append((process, record, amounts))
        for number in range(settings.rounds):
            tell(f"round {number + 1} of {settings.rounds}")
            first = number % max(len(running), 1)  # so that no engine always follows the same one
            for process, record, amounts in running[first:] + running[:first]:
                for name, amount in amounts.items():
                    how: dict[str, Any] = {"amount": amount, "seconds": settings.bandwidth_seconds}
                    record.chunks[name].append(Chunk(**process.ask("measure", scenario=name, **how)))
                    time.sleep(PAUSE)
        for process, record, amounts in running:
            record.summary = {name: process.ask("summarise", scenario=name) for name in amounts}
    return [record for _, record, _ in running], absent


def _load(
    loading: Sequence[tuple[Engine, Process]], folder: Path, settings: Settings, tell: Callable[[str], None]
) -> Iterator[Record | Absent]:
    """Yield an empty record of each engine, or why it can't run; one engine per core loads at a time."""

    def load(engine: Engine, process: Process) -> Record | Absent:
        tell(f"loading {engine.name}")
        refused = {name: why for name in settings.scenarios if (why := engine.refuses(name))}
        names = [name for name in settings.scenarios if name not in refused]
        answer = process.ask(
            "load", engine=engine.to_json(), folder=str(folder), threads=settings.threads, names=names,
            steps=settings.steps, seed=settings.seed, cores=settings.cores,
        )  # fmt: skip
        if "absent" in answer:
            return Absent(answer["absent"])
        return Record(engine, answer["runs"], {name: [] for name in names}, refused=refused)

    # TensorRT times kernels while it builds an engine: nothing else may run meanwhile.
    on_gpu = any(engine.device == CUDA for engine, _ in loading)
    pool = ThreadPoolExecutor(1 if on_gpu else os.cpu_count())
    try:
        futures = [pool.submit(load, *each) for each in loading]
        wait(futures)
        yield from (each.result() for each in futures)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
