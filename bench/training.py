"""Training speed of one layer, forward and backward: the engines, their workers, and the rounds.

A layer of D dimensions reads T steps of B sequences and gets a gradient for every output; gradients are computed for
all of its weights and for its inputs. m is determined by the inputs, evenly spread over a range.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any

from rich.console import Console
from rich.table import Table

from vcdeploy.bench import machine
from vcdeploy.bench.interleave import PAUSE, Process
from vcdeploy.bench.report import BUSY
from vcdeploy.bench.worker import serve
from vcdeploy.spec import UNITS
from vcdeploy.versions import versions

OPS, REFERENCE, RNN, GRU, LSTM = "ops", "reference", "torch rnn", "torch gru", "torch lstm"
ENGINES = {
    OPS: "torch.ops.vcdeploy, which units train with",
    REFERENCE: "the reference: a loop in PyTorch",
    RNN: "torch.nn.RNN, dense",
    GRU: "torch.nn.GRU, dense",
    LSTM: "torch.nn.LSTM, dense",
}
EPSILON = 1e-3


@dataclass(frozen=True)
class Task:
    """What every engine computes."""

    unit: str
    dim: int
    batch: int
    steps: int
    m_range: tuple[float, float]
    sharpness: float
    threads: int
    seed: int


class Worker:
    """One engine in its process."""

    def load(self, engine: str, task: dict[str, Any]) -> dict[str, Any]:
        import torch

        from vcdeploy.kernels import native

        given = Task(**task)
        torch.set_num_threads(given.threads)
        torch.manual_seed(given.seed)
        for each in (replace(given, dim=8, batch=1, steps=1), given):
            # A small layer first, so that memory for PyTorch's lazy imports is not counted.
            self._inputs, self._run = _layer(engine, each)
            self._gradient = torch.randn(each.steps, each.batch, each.dim)
            if each is not given:
                self._pass()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        fractions = self._pass()
        self._grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        runs = native.trains() if engine == OPS else f"PyTorch {torch.__version__}"
        return {"runs": runs, "m": None if fractions is None else [fractions.mean().item(), fractions.std().item()]}

    def measure(self) -> dict[str, Any]:
        begin, begin_cpu = time.perf_counter(), time.process_time()
        self._pass()
        return {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - begin_cpu}

    def summarise(self) -> dict[str, Any]:
        return {"grown": self._grown * 1024}  # Linux reports KB

    def _pass(self) -> Any:
        for each in self._inputs:
            each.grad = None
        y, fractions = self._run()
        y.backward(self._gradient)
        return fractions


def _layer(engine: str, task: Task) -> tuple[list[Any], Callable[[], tuple[Any, Any]]]:
    """The tensors that get gradients, and the forward pass, which returns the output and, for a variable unit, m."""
    import torch

    from vcdeploy import kernels
    from vcdeploy.reference import cells

    T, B, D = task.steps, task.batch, task.dim
    x = torch.randn(T, B, D)
    dense = {RNN: torch.nn.RNN, GRU: torch.nn.GRU, LSTM: torch.nn.LSTM}
    if engine in dense:
        x.requires_grad_()
        network = dense[engine](D, D)
        return [x, *network.parameters()], lambda: (network(x)[0], None)
    low, high = task.m_range
    wanted = (low + (high - low) * torch.rand(T, B)).clamp(1e-6, 1 - 1e-6)
    x[..., 0] = torch.logit(wanted)  # the scheduler reads only this dimension
    spec = UNITS[task.unit]
    U, V = (torch.randn(len(spec.gates) * D, D) * D**-0.5 for _ in range(2))
    u, v, b = torch.zeros(D), torch.zeros(D), torch.zeros(1)
    v[0] = 1
    states = [torch.zeros(B, D) for _ in spec.state]
    inputs = [each.requires_grad_() for each in (x, states[0], U, V, u, v, b, *states[1:])]
    op = kernels.OPS[task.unit] if engine == OPS else cells.SEQUENCES[task.unit]

    def run() -> tuple[Any, Any]:
        y, _, m, *_ = op(*inputs, task.sharpness, EPSILON)
        return y, m.detach()

    return inputs, run


@dataclass
class Record:
    """The measurements of an engine; seconds, cpu_seconds: one pass per round."""

    name: str
    runs: str
    m: list[float] | None
    seconds: list[float]
    cpu_seconds: list[float]
    grown: int = 0


def measure(task: Task, rounds: int, tell: Callable[[str], None]) -> list[Record]:
    """Measure every engine once per round, one at a time, each in its own process."""
    records: list[tuple[Process, Record]] = []
    with ExitStack() as processes:
        for name in ENGINES:
            tell(f"loading {name}")
            process = processes.enter_context(Process(name, task.threads, "vcdeploy.bench.training"))
            answer = process.ask("load", engine=name, task=asdict(task))
            records.append((process, Record(name, answer["runs"], answer["m"], [], [])))
        for number in range(rounds):
            tell(f"round {number + 1} of {rounds}")
            first = number % len(records)  # so that no engine always follows the same one
            for process, record in records[first:] + records[:first]:
                answer = process.ask("measure")
                record.seconds.append(answer["seconds"])
                record.cpu_seconds.append(answer["cpu_seconds"])
                time.sleep(PAUSE)
        for process, record in records:
            record.grown = process.ask("summarise")["grown"]
    return [record for _, record in records]


def figures(records: list[Record], tokens: int) -> list[dict[str, Any]]:
    """Each engine's figures: medians, and the median speedup over the rounds vs each other engine."""
    by_name = {record.name: record for record in records}

    def times(record: Record, other: str, what: str) -> float:
        pairs = zip(getattr(by_name[other], what), getattr(record, what), strict=True)
        return round(statistics.median(theirs / own for theirs, own in pairs), 3)

    return [
        {
            "name": record.name,
            "runs": record.runs,
            "m": record.m and {"mean": round(record.m[0], 4), "spread": round(record.m[1], 4)},
            "tokens_per_second": round(tokens / statistics.median(record.seconds), 1),
            "tokens_per_cpu_second": round(tokens / statistics.median(record.cpu_seconds), 1),
            "times": {other: times(record, other, "seconds") for other in by_name},
            "cpu_times": {other: times(record, other, "cpu_seconds") for other in by_name},
            "memory": record.grown,
            "seconds": [round(each, 6) for each in record.seconds],
            "cpu_seconds": [round(each, 6) for each in record.cpu_seconds],
        }
        for record in records
    ]


def bench(task: Task, rounds: int, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """The document of `vcdeploy bench train`."""
    about_machine, begun = machine.describe(), datetime.now(timezone.utc)
    records = measure(task, rounds, tell)
    return {
        "command": command,
        "date": begun.isoformat(timespec="seconds"),
        "machine": about_machine,
        "versions": versions(machine.PACKAGES),
        "settings": {
            "unit": task.unit, "dim": task.dim, "batch": task.batch, "steps": task.steps, "m_range": list(task.m_range),
            "sharpness": task.sharpness, "threads": task.threads, "rounds": rounds, "seed": task.seed,
        },
        "engines": figures(records, task.steps * task.batch),
    }  # fmt: skip


def show(document: dict[str, Any], console: Console) -> None:
    """Print the figures, speedups vs the dense unit of the same kind and vs the reference."""
    kin = f"torch {UNITS[document['settings']['unit']].dense[0]}"
    settings, ran_on = document["settings"], document["machine"]
    console.print(f"{ran_on['processor']}, {ran_on['cores']} cores; load before the run {ran_on['load']}")
    if (ran_on["load"] or 0) > BUSY:
        console.print("The machine was busy: trust the speedups in CPU time, not in wall time.")
    title = (
        f"{settings['unit']}-{settings['dim']}, T = {settings['steps']}, B = {settings['batch']}, "
        f"m {settings['m_range'][0]} to {settings['m_range'][1]}, sharpness {settings['sharpness']}, "
        f"threads: {settings['threads']}"
    )
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    times = (f"× {kin.removeprefix('torch ')}", "× reference")
    for header in ("tokens/s", *times, "CPU: tokens/s", *times, "MB"):
        table.add_column(header, justify="right")
    for each in document["engines"]:
        table.add_row(
            each["name"],
            f"{each['tokens_per_second']:,.0f}",
            *(f"{each['times'][other]:.2f}" for other in (kin, "reference")),
            f"{each['tokens_per_cpu_second']:,.0f}",
            *(f"{each['cpu_times'][other]:.2f}" for other in (kin, "reference")),
            f"{each['memory'] / 1e6:,.0f}",
        )
    console.print(table)
    for each in document["engines"]:
        console.print(f"{each['name']}: {ENGINES[each['name']]}; {each['runs']}", style="dim")
    console.print("MB: growth of the process in its first pass.", style="dim")


if __name__ == "__main__":
    serve(Worker())
