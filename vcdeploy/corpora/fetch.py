"""Fetches a file over HTTP: resumable, verified, limited in size and time, and moved into place only when complete."""

import contextlib
import fcntl
import hashlib
import http.client
import os
import queue
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from vcdeploy.errors import VcdeployError
from vcdeploy.files import sync_folder

CHUNK = 1 << 18
TIMEOUT = 30.0  # seconds without data
DEADLINE = 1800.0  # seconds for everything; the largest file of the catalogue needs 17 kB/s
LARGEST = 1 << 28  # bytes, eight times the largest file of the catalogue
WAIT = 0.1  # seconds between looks at a file that another process fetches


def download(
    url: str,
    target: Path,
    *,
    digest: str,
    progress: Callable[[int, int | None], None] | None = None,
) -> Path:
    """Fetches `url` to `target`, whose contents must match `digest` ("sha256:hex"); returns `target`.

    Data is written to `target` + ".part". An interrupted transfer leaves that file, and the next call
    resumes it if the server supports that. If another process fetches the same file, this one waits for it.
    `progress` receives the bytes done and the total, None if unknown.
    """
    part, existed = target.with_name(target.name + ".part"), target.exists()
    deadline = time.monotonic() + DEADLINE
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(part, deadline) as file:
            if not existed and target.exists():  # another process has completed it meanwhile
                part.unlink()
            else:
                try:
                    _transfer(url, file, deadline, progress)
                    file.flush()
                    os.fsync(file.fileno())
                except BaseException:
                    with contextlib.suppress(OSError):
                        file.flush()
                        if os.fstat(file.fileno()).st_size == 0:
                            part.unlink()
                    raise
                _verify(url, part, target, digest)
                part.replace(target)
                sync_folder(target.parent)
    except urllib.error.HTTPError as error:
        raise _failure(url, target, f"the server answered {error.code} {str(error.reason)[:200]}") from error
    except urllib.error.URLError as error:
        raise _failure(url, target, f"no connection ({error.reason})") from error
    except (TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException) as error:
        raise _failure(url, target, f"the connection was lost ({str(error)[:200]}); run again to resume") from error
    except OSError as error:
        raise VcdeployError(
            f"{part} cannot be written: {error.strerror}; set VCDEPLOY_DATA to a writable folder"
        ) from error
    return target


@contextlib.contextmanager
def _locked(part: Path, deadline: float) -> Iterator[BinaryIO]:
    """`part`, open to append and locked, once no other process has it."""
    while True:
        with part.open("ab") as file:
            if _lock(file) and _is_at(file, part):  # whoever had it may have renamed or removed it
                yield file
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"another process has been fetching {part} for {DEADLINE:,.0f} s")
        time.sleep(WAIT)


def _lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


class _Answer(NamedTuple):
    """The start of a response: the offset of its first byte, and the bytes it will have in all."""

    start: int
    total: int | None


def _transfer(url: str, file: BinaryIO, deadline: float, progress: Callable[[int, int | None], None] | None) -> None:
    """Appends to `file`, which may hold the start of the body, until it is complete.

    A thread reads: a server that sends a byte now and then, be it of the headers, cannot hold up the deadline.
    """
    done, total = file.tell(), None
    if done > LARGEST:
        file.truncate(0)
        done = 0
    received: queue.Queue[_Answer | bytes | Exception | None] = queue.Queue(maxsize=8)
    stop = threading.Event()
    threading.Thread(target=_receive, args=(url, done, received, stop), daemon=True).start()
    try:
        while True:
            try:
                item = received.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"not complete after {DEADLINE:,.0f} s") from None
            if item is None:
                break
            if isinstance(item, Exception):
                raise item
            if isinstance(item, _Answer):
                if item.start != done:
                    file.truncate(0)  # the server sends everything from the start
                    done = 0
                total = item.total
            else:
                file.write(item)
                done += len(item)
            if max(done, total or 0) > LARGEST:
                file.truncate(0)
                raise VcdeployError(f"{url} was not fetched: it has more than {LARGEST:,} bytes, which no corpus has")
            if progress and not isinstance(item, _Answer):
                progress(done, total)
    finally:
        stop.set()
    if total is not None and done < total:
        raise http.client.HTTPException(f"after {done:,} of {total:,} bytes")


def _receive(
    url: str, done: int, received: "queue.Queue[_Answer | bytes | Exception | None]", stop: threading.Event
) -> None:
    """Puts the answer, its body and None into the queue, or the error that ended them."""

    def put(item: _Answer | bytes | Exception | None) -> None:
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                received.put(item, timeout=WAIT)
                return

    headers = {"User-Agent": "vcdeploy", **({"Range": f"bytes={done}-"} if done else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as response:
            resumes = response.headers.get("Content-Range", "").startswith(f"bytes {done}-")
            start = done if response.status == http.client.PARTIAL_CONTENT and resumes else 0
            length = response.headers.get("Content-Length")
            if length is not None and not (length.isascii() and length.isdecimal()):
                raise http.client.HTTPException(f"Content-Length is {length[:50]!r}, not a number")
            put(_Answer(start, start + int(length) if length is not None else None))
            while not stop.is_set() and (chunk := response.read1(CHUNK)):
                put(chunk)
    except urllib.error.HTTPError as error:
        error.close()
        # With nothing more to send, the file is complete or wrong, which the digest check decides.
        put(None if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and done else error)
    except Exception as error:
        put(error if isinstance(error, (OSError, http.client.HTTPException)) else http.client.HTTPException(error))
    else:
        put(None)


def _verify(url: str, part: Path, target: Path, digest: str) -> None:
    algorithm, expected = digest.split(":")
    computed = hashlib.new(algorithm)
    with part.open("rb") as file:
        while chunk := file.read(CHUNK):
            computed.update(chunk)
    if (actual := computed.hexdigest()) != expected:
        part.unlink()
        raise VcdeployError(
            f"the download from {url} is not the file expected: its {algorithm} is {actual}, not {expected}; "
            f"it was deleted. Try again, or put the right file at {target} yourself"
        )


def _failure(url: str, target: Path, reason: str) -> VcdeployError:
    return VcdeployError(f"{url} could not be fetched: {reason}. You can also put the file at {target} yourself")
