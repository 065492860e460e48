"""Fetching from a local server that reproduces the usual behaviours and failures."""

import fcntl
import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

import pytest

from vcdeploy.corpora import fetch
from vcdeploy.corpora.fetch import download
from vcdeploy.errors import VcdeployError

BODY = bytes(range(256)) * 4000
DIGEST = "sha256:" + hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """`ranges` and `length`: whether it supports them; `cut`: it closes the connection after this many bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges, self.length, self.cut = True, True, len(BODY)
        self.asked: list[str | None] = []

    def url(self, path: str = "/file") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        if self.path != "/file":
            return self.send_error(404)
        start = int(asked[6:-1]) if asked and self.server.ranges else 0
        if start >= len(BODY):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(BODY) - 1}/{len(BODY)}")
        if self.server.length:
            self.send_header("Content-Length", str(len(BODY) - start))
        self.end_headers()
        self.wfile.write(BODY[start : start + self.server.cut])
        return None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


@pytest.mark.parametrize("length", [True, False])
def test_a_file_arrives_complete(server: Server, tmp_path: Path, length: bool) -> None:
    server.length = length
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "new" / "file"
    assert download(server.url(), target, digest=DIGEST, progress=lambda *at: seen.append(at)) == target
    assert target.read_bytes() == BODY
    assert not part(target).exists()
    assert seen[-1] == (len(BODY), len(BODY) if length else None)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_broken_transfer_is_reported_and_resumed(server: Server, tmp_path: Path) -> None:
    server.cut = 300_000
    target = tmp_path / "file"
    with pytest.raises(VcdeployError, match=r"was lost \(after 300,000 of 1,024,000 bytes\); run again to resume"):
        download(server.url(), target, digest=DIGEST)
    assert not target.exists()
    assert part(target).read_bytes() == BODY[:300_000]
    server.cut = len(BODY)
    seen: list[tuple[int, int | None]] = []
    download(server.url(), target, digest=DIGEST, progress=lambda *at: seen.append(at))
    assert server.asked == [None, "bytes=300000-"]
    assert seen[0][0] > 300_000
    assert {total for _, total in seen} == {len(BODY)}
    assert target.read_bytes() == BODY


def test_a_server_that_ignores_ranges_starts_over(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    target = tmp_path / "file"
    part(target).write_bytes(BODY[:5000])
    download(server.url(), target, digest=DIGEST)
    assert server.asked == ["bytes=5000-"]
    assert target.read_bytes() == BODY


def test_a_part_that_is_already_complete(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "file"
    part(target).write_bytes(BODY)
    download(server.url(), target, digest=DIGEST)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("beginning", [b"", b"something else", BODY + b"too much"])
def test_wrong_contents_are_deleted(server: Server, tmp_path: Path, beginning: bytes) -> None:
    target = tmp_path / "file"
    if beginning:
        part(target).write_bytes(beginning)
    wrong = "sha256:" + "0" * 64 if not beginning else DIGEST
    with pytest.raises(VcdeployError, match=r"not the file expected: its sha256 is \w{64}, not .*deleted"):
        download(server.url(), target, digest=wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there(server: Server, tmp_path: Path) -> None:
    with pytest.raises(VcdeployError, match=r"/none could not be fetched: the server answered 404 Not Found"):
        download(server.url("/none"), tmp_path / "file", digest=DIGEST)
    assert list(tmp_path.iterdir()) == []


def test_no_server_at_all(server: Server, tmp_path: Path) -> None:
    url = server.url()
    server.shutdown()
    server.server_close()
    with pytest.raises(VcdeployError, match=r"no connection \(.*refused.*put the file at .*file yourself"):
        download(url, tmp_path / "file", digest=DIGEST)


def test_a_silent_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        with pytest.raises(VcdeployError, match=r"could not be fetched: .*timed out"):
            download(url, tmp_path / "file", digest=DIGEST)


def test_a_folder_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file where a folder should be")
    with pytest.raises(VcdeployError, match=r"file.part cannot be written: .*set VCDEPLOY_DATA"):
        download(server.url(), tmp_path / "folder" / "file", digest=DIGEST)


@contextmanager
def hostile(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of a server that gives this answer to everyone."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    connection.recv(65536)
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/file"
        listener.shutdown(socket.SHUT_RDWR)


def send(*parts: bytes, forever: bytes = b"", pause: float = 0.0) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)
        end = time.monotonic() + 3
        while forever and time.monotonic() < end:
            connection.sendall(forever)
            time.sleep(pause)

    return answer


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (send(OK + b"Content-Length: abc\r\n\r\nbody"), r"Content-Length is 'abc', not a number"),
        (send(OK + b"Content-Length: -5\r\n\r\nbody"), r"Content-Length is '-5', not a number"),
        (send(OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n"), r"could not be fetched"),
        (send(OK + b"Content-Length: 99999999999\r\n\r\n"), r"more than 1,000,000 bytes"),
        (send(OK + b"\r\n", forever=b"x" * 100_000), r"more than 1,000,000 bytes"),
        (send(OK + b"Transfer-Encoding: chunked\r\n\r\n", forever=b"4000\r\n" + b"x" * 0x4000 + b"\r\n"), r"more than"),
        (send(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"), r"the connection was lost"),
        (send(OK, forever=b"X-Header: x\r\n"), r"could not be fetched: .*headers"),
        (send(OK + b"X: " + b"x" * 100_000), r"could not be fetched: .*header line"),
        (send(b"not HTTP at all\r\n\r\n"), r"the connection was lost"),
        (send(b""), r"could not be fetched"),
        (send(b"HTTP/1.1 404 " + b"\x1b]0;owned\x07" * 3000 + b"\r\n\r\n"), r"answered 404"),
        (send(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n"), r"could not be fetched"),
        (send(b"HTTP/1.1 302 Found\r\nLocation: /file\r\n\r\n"), r"could not be fetched"),
    ],
)
def test_hostile_answers_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[socket.socket], None], message: str
) -> None:
    monkeypatch.setattr(fetch, "LARGEST", 1_000_000)
    monkeypatch.setattr(fetch, "DEADLINE", 20.0)
    with hostile(answer) as url, pytest.raises(VcdeployError, match=message) as caught:
        download(url, tmp_path / "file", digest=DIGEST)
    assert len(str(caught.value)) < 1000
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 1_000_000
    assert not (tmp_path / "file").exists()


def test_a_redirection_to_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("Invalid IPv6 URL")  # what urllib raises for http://[::bad, without closing the connection

    monkeypatch.setattr("urllib.request.urlopen", fail)
    with pytest.raises(VcdeployError, match=r"could not be fetched: .*Invalid IPv6 URL"):
        download("http://127.0.0.1/file", tmp_path / "file", digest=DIGEST)


@pytest.mark.parametrize("begin", [b"", OK, OK + b"\r\n"], ids=["status", "headers", "body"])
def test_a_server_that_sends_a_byte_now_and_then_meets_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr(fetch, "DEADLINE", 0.6)
    with hostile(send(begin, forever=b"H", pause=0.05)) as url:
        start = time.monotonic()
        with pytest.raises(VcdeployError, match=r"not complete after 1 s\); run again to resume"):
            download(url, tmp_path / "file", digest=DIGEST)
        assert time.monotonic() - start < 10


def test_a_part_that_is_too_large_is_fetched_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "LARGEST", len(BODY))
    part(tmp_path / "file").write_bytes(b"x" * (len(BODY) + 1))
    assert download(server.url(), tmp_path / "file", digest=DIGEST).read_bytes() == BODY
    assert server.asked == [None]


FETCH = """
import sys
from pathlib import Path
from vcdeploy.corpora.fetch import download
for round in range(int(sys.argv[4])):
    target = Path(sys.argv[2]) / str(round) / "file"
    download(sys.argv[1], target, digest=sys.argv[3])
"""


def test_processes_and_threads_can_fetch_one_file_together(server: Server, tmp_path: Path) -> None:
    rounds = 10
    command = [sys.executable, "-c", FETCH, server.url(), str(tmp_path), DIGEST, str(rounds)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for each in running:
        _, errors = each.communicate(timeout=120)
        assert each.returncode == 0, errors
    threads = [
        threading.Thread(target=download, args=(server.url(), tmp_path / "threads" / "file"), kwargs={"digest": DIGEST})
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in (*map(str, range(rounds)), "threads"):
        assert [each.name for each in (tmp_path / name).iterdir()] == ["file"]
        assert (tmp_path / name / "file").read_bytes() == BODY


def test_what_another_process_has_completed_meanwhile_is_not_fetched_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, waits, lock = tmp_path / "file", threading.Event(), fetch._lock

    def watched(file: BinaryIO) -> bool:
        waits.set()
        return lock(file)

    monkeypatch.setattr(fetch, "_lock", watched)
    with part(target).open("ab") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        ours = threading.Thread(target=download, args=(server.url(), target), kwargs={"digest": DIGEST})
        ours.start()
        waits.wait()
        target.write_bytes(BODY)
    ours.join()
    assert server.asked == []
    assert list(tmp_path.iterdir()) == [target]


def test_the_file_and_its_folder_reach_the_disk(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, target, real = list[tuple[str, bool]](), tmp_path / "file", os.fsync

    def note(descriptor: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), target.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    download(server.url(), target, digest=DIGEST)
    assert synced == [(str(part(target)), False), (str(tmp_path), True)]
