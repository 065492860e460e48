"""A server in a process of its own, and a client that needs nothing but the standard library."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

TOKEN = "a secret"


@dataclass
class Running:
    """A server of `vcdeploy serve`."""

    process: subprocess.Popen[str]
    port: int
    log: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 30)

    def ask(
        self, path: str, body: Any = None, method: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer; a body that is not bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            sent = {"Authorization": f"Bearer {TOKEN}", **(headers or {})}
            connection.request(method or ("GET" if body is None else "POST"), path, content, sent)
            answer = connection.getresponse()
            return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def json(self, path: str, body: Any = None, status: int = 200) -> Any:
        got, _, content = self.ask(path, body)
        assert got == status, content
        return json.loads(content)

    def events(self, body: Any) -> Iterator[Any]:
        """The events of a completion, parsed; the last one is checked and left out."""
        lines = [each for each in self.ask("/v1/completions", {**body, "stream": True})[2].split(b"\n\n") if each]
        assert lines.pop() == b"data: [DONE]"
        for line in lines:
            assert line.startswith(b"data: ")
            yield json.loads(line[6:])

    def begin(self, body: Any) -> socket.socket:
        """Send a completion and leave it: the socket to read from, or to close."""
        content, connection = json.dumps(body).encode(), self.connect()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(content) + content)
        return connection

    def metric(self, name: str, **labels: str) -> float:
        """A figure of /metrics, summed over the labels that are not given."""
        found = 0.0
        for line in self.ask("/metrics")[2].decode().splitlines():
            match = re.fullmatch(rf"vcdeploy_{name}(?:{{(.*)}})? (\S+)", line)
            if match and all(f'{key}="{value}"' in (match[1] or "") for key, value in labels.items()):
                found += float(match[2])
        return found

    def stop(self) -> int:
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        """The exit code, once the process and its log have ended."""
        code = self.process.wait(60)
        if self.reader is not None:
            self.reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


def start(*arguments: str, token: bool = True) -> Running:
    """Start a server on a free port, and wait until it answers."""
    environment = {**os.environ, "VCDEPLOY_TOKEN": TOKEN if token else ""}
    command = [sys.executable, "-m", "vcdeploy", "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    running = Running(process, 0)
    for line in process.stderr:
        running.log.append(line)
        if match := re.match(r"http://.*:(\d+) ", line):
            break
    else:
        running.wait()
        raise AssertionError("".join(running.log))
    running.port = int(match[1])
    running.reader = threading.Thread(target=lambda: running.log.extend(process.stderr or ()), daemon=True)
    running.reader.start()
    return running


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
