"""`vcdeploy bench serve`: load on a server of its own, next to the same work in one process.

The server, the clients and the batched session that they are compared with are three processes, the last two one at a
time. Clients are plain sockets that read server-sent events; what they cost is not the server's. On a machine with few
cores the clients take time from the server: CPU time per token is then the figure to compare.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from vcdeploy.bench import machine
from vcdeploy.errors import VcdeployError
from vcdeploy.runtime.model import load
from vcdeploy.versions import versions

PIECE = 256  # tokens of a stream per call in one process, as on the server
PATIENCE = 600  # seconds for one round


@dataclass(frozen=True)
class Task:
    """What is generated."""

    model: str
    precision: str | None
    streams: tuple[int, ...]
    tokens: int
    prompt: str
    short: int  # requests of a few tokens, for the memory


def bench(task: Task, rounds: int, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Measure; the result is one document."""
    found: list[dict[str, Any]] = []
    with _server(task) as (process, port):
        for streams in task.streams:
            for number in range(rounds):
                tell(f"{streams} streams, round {number + 1} of {rounds}")
                alone = _child("alone", task, streams)
                found.append({"streams": streams, **_served(task, streams, process, port), "alone": alone})
        memory = _memory(task, process, port, tell) if task.short else None
    return {
        "kind": "serve",
        "command": command,
        "task": asdict(task),
        "machine": machine.describe(),
        "versions": versions((*machine.PACKAGES, "starlette", "uvicorn")),
        "rounds": found,
        "summary": [_summary([each for each in found if each["streams"] == streams]) for streams in task.streams],
        "memory": memory,
    }


def _summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the rounds; ratios are taken within a round."""

    def median(of: Callable[[dict[str, Any]], float]) -> float:
        return statistics.median(map(of, rounds))

    return {
        "streams": rounds[0]["streams"],
        "tokens_per_second": median(lambda each: each["tokens"] / each["seconds"]),
        "alone_tokens_per_second": median(lambda each: each["alone"]["tokens"] / each["alone"]["seconds"]),
        "cpu_us_per_token": median(lambda each: 1e6 * each["cpu_seconds"] / each["tokens"]),
        "alone_cpu_us_per_token": median(lambda each: 1e6 * each["alone"]["cpu_seconds"] / each["alone"]["tokens"]),
        "share_of_alone": median(
            lambda each: (
                (each["tokens"] / each["cpu_seconds"]) / (each["alone"]["tokens"] / each["alone"]["cpu_seconds"])
            )
        ),
        "first_token_ms": {name: median(lambda each, n=name: each["first_token_ms"][n]) for name in ("p50", "p99")},  # type: ignore[misc]
        "gap_p99_ms": median(lambda each: each["gap_p99_ms"]),
    }


def show(document: dict[str, Any], console: Console) -> None:
    task = document["task"]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("streams", "tokens/s", "alone", "CPU µs", "alone", "ratio", "first p50", "p99 ms", "gap p99 ms"):
        table.add_column(name, justify="right")
    for each in document["summary"]:
        first = each["first_token_ms"]
        table.add_row(
            f"{each['streams']:,}", f"{each['tokens_per_second']:,.0f}", f"{each['alone_tokens_per_second']:,.0f}",
            f"{each['cpu_us_per_token']:.1f}", f"{each['alone_cpu_us_per_token']:.1f}", f"{each['share_of_alone']:.0%}",
            f"{first['p50']:.0f}", f"{first['p99']:.0f}", f"{each['gap_p99_ms']:.0f}",
        )  # fmt: skip
    console.print(f"{task['model']} {task['precision'] or ''}, {task['tokens']} tokens per stream, one instance")
    console.print(table)
    console.print(
        "alone: one session in a process; CPU: of the server per token; ratio: alone's CPU time to it; first: time to "
        "the first token; gap: between pieces of a stream"
    )
    if memory := document["memory"]:
        console.print(
            f"{memory['requests']:,} requests of 1 token, {memory['per_second']:,.0f}/s: resident memory "
            f"{memory['before_mb']:.1f} MB after the first tenth, {memory['after_mb']:.1f} MB at the end"
        )


# The server and its clients


@contextmanager
def _server(task: Task) -> Iterator[tuple[subprocess.Popen[str], int]]:
    most = max(*task.streams, 16)
    command = [sys.executable, "-m", "vcdeploy", "serve", task.model, "--port", "0", "--streams", str(most), "--queue",
               str(most), "--max-connections", "8192", "--max-tokens", str(max(task.tokens, 64))]  # fmt: skip
    command += ["--precision", task.precision] if task.precision else []
    environment = {name: value for name, value in os.environ.items() if name != "VCDEPLOY_TOKEN"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if match := re.match(r"http://.*:(\d+) ", line):
                break
        else:
            raise VcdeployError(f"the server did not start: {said.strip()}")
        reader = threading.Thread(target=lambda: [None for _ in process.stderr or ()], daemon=True)
        reader.start()  # the log would fill the pipe
        yield process, int(match[1])
        process.terminate()
        reader.join()
    finally:
        process.terminate()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def _served(task: Task, streams: int, process: subprocess.Popen[str], port: int) -> dict[str, Any]:
    before = _cpu_seconds(process.pid)
    made = _child("clients", task, streams, port)
    return {**made, "cpu_seconds": _cpu_seconds(process.pid) - before}


def _memory(task: Task, process: subprocess.Popen[str], port: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Short requests over a few connections; the resident memory after a tenth of them, and at the end."""
    begin, sizes = time.perf_counter(), []
    for part in range(10):
        tell(f"short requests, {part} of 10 parts")
        _child("short", task, task.short // 10, port)
        sizes.append(_resident_mb(process.pid))
    seconds = time.perf_counter() - begin
    return {"requests": task.short // 10 * 10, "per_second": task.short / seconds, "before_mb": sizes[0],
            "after_mb": sizes[-1], "sizes_mb": sizes}  # fmt: skip


def _cpu_seconds(pid: int) -> float:
    """Of all its threads; /proc/PID/stat counts in hundredths of a second."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text(encoding="ascii").split()[0]) for each in files) / 1e9


def _resident_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _child(work: str, task: Task, count: int, port: int = 0) -> dict[str, Any]:
    """Run a function below in a process of its own."""
    given = json.dumps([work, asdict(task), count, port])
    done = subprocess.run([sys.executable, "-m", "vcdeploy.bench.serving"], input=given, capture_output=True,
                          text=True, timeout=PATIENCE)  # fmt: skip
    if done.returncode:
        raise VcdeployError(f"bench serve: {work} failed: {done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def alone(task: Task, streams: int, port: int) -> dict[str, Any]:
    """The same tokens by one session in this process, in pieces as on the server."""
    model = load(task.model, precision=task.precision)
    prompt = model.vocab.encode(task.prompt)
    session = model.session(streams)
    session.feed(prompt[:, None].repeat(streams, axis=1))
    session.generate(PIECE)  # warm
    begin, cpu, made = time.perf_counter(), time.process_time(), 0
    while made < task.tokens:
        made += len(session.generate(min(PIECE, task.tokens - made))[0])
    return {"tokens": made * streams, "seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu}


def clients(task: Task, streams: int, port: int) -> dict[str, Any]:
    """Streams that begin together: tokens, seconds, time to the first token, gaps between pieces."""
    return asyncio.run(_clients(task, streams, port))


async def _clients(task: Task, streams: int, port: int) -> dict[str, Any]:
    places = asyncio.Semaphore(256)  # connections that are made at the same time
    begun = asyncio.Event()
    connected = 0

    async def one(seed: int) -> tuple[float, float, int, list[float]]:
        nonlocal connected
        async with places:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        connected += 1
        if connected == streams:
            begun.set()
        await begun.wait()
        body = json.dumps({"prompt": task.prompt, "max_tokens": task.tokens, "seed": seed, "stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        sent = time.perf_counter()
        writer.write(head.encode() + body)
        times, content = list[float](), bytearray()
        while b"[DONE]" not in content[-64:]:
            more = await reader.read(1 << 16)
            if not more:
                raise VcdeployError(f"the server closed the connection: {bytes(content[:300])!r}")
            if b'"text":"' in more:
                times.append(time.perf_counter())
            content += more
        writer.close()
        text = re.findall(rb'"text":("(?:[^"\\]|\\.)*")', bytes(content))
        return sent, times[0] - sent, sum(len(json.loads(each)) for each in text), times

    results = await asyncio.gather(*(one(seed) for seed in range(streams)))
    first = sorted(1000 * each[1] for each in results)
    gaps = sorted(1000 * (b - a) for each in results for a, b in zip(each[3], each[3][1:], strict=False))
    begin, end = min(each[0] for each in results), max(each[3][-1] for each in results)
    return {
        "tokens": sum(each[2] for each in results),
        "seconds": end - begin,
        "first_token_ms": {"p50": _quantile(first, 0.5), "p99": _quantile(first, 0.99)},
        "gap_p99_ms": _quantile(gaps, 0.99),
    }


def short(task: Task, count: int, port: int) -> dict[str, Any]:
    """Requests of one token, one after another on a few connections."""
    body = json.dumps({"prompt": task.prompt, "max_tokens": 1, "seed": 0}).encode()
    connections = [http.client.HTTPConnection("127.0.0.1", port) for _ in range(8)]
    for n in range(0, count, len(connections)):
        for connection in connections[: count - n]:
            connection.request("POST", "/v1/completions", body)
        for connection in connections[: count - n]:
            answer = connection.getresponse()
            if answer.status != 200:
                raise VcdeployError(f"a request failed: {answer.read()!r}")
            answer.read()
    return {}


def _quantile(values: list[float], part: float) -> float:
    return values[min(len(values) - 1, int(part * len(values)))] if values else 0.0


if __name__ == "__main__":
    work, task, count, port = json.load(sys.stdin)
    task["streams"] = tuple(task["streams"])
    print(json.dumps({"alone": alone, "clients": clients, "short": short}[work](Task(**task), count, port)))
