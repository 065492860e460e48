"""The rounds: every contender in a process of its own, one at a time, each scenario once a round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from vcdeploy.bench.contenders import Absent, Contender
from vcdeploy.errors import VcdeployError

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PAUSE = 0.003  # seconds after a chunk: threads of the process that has just run may still spin
UNDISTURBED = 1.1  # of the least time of a probe
PATIENCE = 5.0  # seconds a process may take to end when asked to
SHOWN = 20  # lines of a dead process's standard error


@dataclass
class Chunk:
    """One scenario of one contender in one round."""

    times: list[int]  # ns a call
    steps: int  # of a call
    bandwidth: float | None  # bytes a second, measured beside it
    device_times: list[int] | None = None  # ns a call by a GPU's own clock
    joules: float | None = None  # a step, of all the processor
    probe: int = 0  # ns of fixed work before and after: longer where the core is disturbed
    process: int = 0  # which of the contender's processes made it


@dataclass
class Record:
    """What was seen of a contender."""

    contender: Contender
    runs: str
    chunks: dict[str, list[Chunk]] = field(default_factory=dict)  # by scenario, a chunk a round
    summary: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """threads: of every contender. steps: of a sequence. seconds: of a chunk, about.

    amount: calls of a chunk, where it is not the time that decides. cores: those that contenders keep to.
    bandwidth_seconds: to measure the machine's in beside each chunk, or 0. tries: for a chunk that is undisturbed;
    from two on, each waits a while for the core to become calm. processes: of each contender, one after another, which
    share the rounds: one is some percent faster than the next, by where its memory happens to lie.
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
    tries: int = 1
    processes: int = 1


class Process:
    """A worker and the pipes to it. It has a session of its own: Ctrl-C reaches this program alone, which ends it."""

    def __init__(self, name: str, threads: int, worker: str = "vcdeploy.bench.worker") -> None:
        self.name = name
        # A file, since a pipe that nobody reads would fill up.
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
        """The answer to a request; an error of the worker, or its death, is an error here."""
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
        said = "; its last words:\n" + "\n".join(lines) if lines else ", and it said nothing"
        return f"the process of {self.name} ended with {how} when asked to {do}{said}"

    def stop(self) -> None:
        """Ask it to end, without waiting."""
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
    contenders: Sequence[Contender], folder: Path, settings: Settings, tell: Callable[[str], None]
) -> tuple[list[Record], dict[str, str]]:
    """A record of each contender, and the reasons of those that turned out not to run here.

    folder: holds the contenders' files and streams.npy. tell: gets a line about what happens now.
    """
    records: dict[str, Record] = {}
    absent: dict[str, str] = {}
    least = sys.maxsize  # of all probes so far
    share = -(-settings.rounds // settings.processes)
    for generation, begin in enumerate(range(0, settings.rounds, share)):
        with ExitStack() as open_processes:
            running: list[tuple[Process, Record, dict[str, int]]] = []
            for contender in contenders:
                if contender.name in absent:
                    continue
                tell(f"loading {contender.name}")
                process = open_processes.enter_context(Process(contender.name, settings.threads))
                try:
                    record, amounts = _load(process, contender, folder, settings)
                except Absent as reason:
                    absent[contender.name] = str(reason)
                    records.pop(contender.name, None)
                    process.stop()
                    continue
                running.append((process, records.setdefault(contender.name, record), amounts))
            for number in range(begin, min(begin + share, settings.rounds)):
                tell(f"round {number + 1} of {settings.rounds}")
                first = number % max(len(running), 1)  # so that nobody always comes after the same one
                for process, record, amounts in running[first:] + running[:first]:
                    for name, amount in amounts.items():
                        how: dict[str, Any] = {"amount": amount, "seconds": settings.bandwidth_seconds}
                        for _ in range(settings.tries):
                            how["calm"] = UNDISTURBED * least if settings.tries > 1 and number else 0
                            chunk = Chunk(**process.ask("measure", scenario=name, **how), process=generation)
                            least = min(least, chunk.probe)
                            if chunk.probe <= UNDISTURBED * least:
                                break
                        record.chunks[name].append(chunk)
                        time.sleep(PAUSE)
            for process, record, amounts in running:
                record.summary = {name: process.ask("summarise", scenario=name) for name in amounts}
    return list(records.values()), absent


def _load(process: Process, contender: Contender, folder: Path, settings: Settings) -> tuple[Record, dict[str, int]]:
    """An empty record of a contender, and how much a chunk of each scenario is; raises Absent."""
    refused = {name: why for name in settings.scenarios if (why := contender.refuses(name))}
    names = [name for name in settings.scenarios if name not in refused]
    answer = process.ask(
        "load", contender=contender.to_json(), folder=str(folder), threads=settings.threads, names=names,
        steps=settings.steps, seed=settings.seed, cores=settings.cores,
    )  # fmt: skip
    if "absent" in answer:
        raise Absent(answer["absent"])
    asked = {"seconds": settings.seconds, "amount": settings.amount}
    amounts = {name: int(process.ask("calibrate", scenario=name, **asked)["amount"]) for name in names}
    return Record(contender, answer["runs"], {name: [] for name in names}, refused=refused), amounts
