"""Fetches a file over HTTP: resumable, verified, and moved into place only when complete."""

import contextlib
import hashlib
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from vcdeploy.errors import VcdeployError

CHUNK = 1 << 18
TIMEOUT = 30.0  # seconds without data


def download(
    url: str,
    target: Path,
    *,
    digest: str,
    progress: Callable[[int, int | None], None] | None = None,
) -> Path:
    """Fetches `url` to `target`, whose contents must match `digest` ("sha256:hex"); returns `target`.

    Data is written to `target` + ".part". An interrupted transfer leaves that file, and the next call
    resumes it if the server supports that. `progress` receives the bytes done and the total, None if unknown.
    """
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab") as file:
            _transfer(url, file, progress)
    except urllib.error.HTTPError as error:
        raise _failure(url, target, f"the server answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise _failure(url, target, f"no connection ({error.reason})") from error
    except (TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException) as error:
        raise _failure(url, target, f"the connection was lost ({error}); run again to resume") from error
    except OSError as error:
        raise VcdeployError(
            f"{part} cannot be written: {error.strerror}; set VCDEPLOY_DATA to a writable folder"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            if part.stat().st_size == 0:
                part.unlink()
    algorithm, expected = digest.split(":")
    actual = hashlib.new(algorithm, part.read_bytes()).hexdigest()
    if actual != expected:
        part.unlink()
        raise VcdeployError(
            f"the download from {url} is not the file expected: its {algorithm} is {actual}, not {expected}; "
            f"it was deleted. Try again, or put the right file at {target} yourself"
        )
    part.replace(target)
    return target


def _transfer(url: str, file: BinaryIO, progress: Callable[[int, int | None], None] | None) -> None:
    """Appends to `file`, which may hold the start of the body, until it is complete."""
    done = file.tell()
    headers = {"User-Agent": "vcdeploy", **({"Range": f"bytes={done}-"} if done else {})}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE or not done:
            raise
        # The server has nothing more to send: the file is complete or wrong, which the digest check decides.
        return
    with response:
        resumes = response.headers.get("Content-Range", "").startswith(f"bytes {done}-")
        if done and not (response.status == http.client.PARTIAL_CONTENT and resumes):
            file.truncate(0)  # the server sends everything from the start
            done = 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        while chunk := response.read(CHUNK):
            file.write(chunk)
            done += len(chunk)
            if progress:
                progress(done, total)
        if total is not None and done < total:
            raise http.client.HTTPException(f"after {done:,} of {total:,} bytes")


def _failure(url: str, target: Path, reason: str) -> VcdeployError:
    return VcdeployError(f"{url} could not be fetched: {reason}. You can also put the file at {target} yourself")
