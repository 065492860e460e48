"""Fetching from a local server that reproduces the usual behaviours and failures."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

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
def test_a_file_arrives_whole(server: Server, tmp_path: Path, length: bool) -> None:
    server.length = length
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "new" / "file"
    assert download(server.url(), target, digest=DIGEST, progress=lambda *at: seen.append(at)) == target
    assert target.read_bytes() == BODY
    assert not part(target).exists()
    assert seen[-1] == (len(BODY), len(BODY) if length else None)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_broken_transfer_is_told_and_taken_up_again(server: Server, tmp_path: Path) -> None:
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


def test_a_part_that_is_already_whole(server: Server, tmp_path: Path) -> None:
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
    import socket

    monkeypatch.setattr(fetch, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        with pytest.raises(VcdeployError, match=r"could not be fetched: .*timed out"):
            download(url, tmp_path / "file", digest=DIGEST)


def test_a_folder_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file where a folder should be")
    with pytest.raises(VcdeployError, match=r"file.part cannot be written: .*set VCDEPLOY_DATA"):
        download(server.url(), tmp_path / "folder" / "file", digest=DIGEST)
