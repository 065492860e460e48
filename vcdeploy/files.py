"""Atomic file writes: a killed process or a power cut leaves the old file or the new one, never a partial one."""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, content: bytes) -> None:
    """Write or replace a file atomically; an error leaves the old file and no temporary one.

    A link is followed, and an existing file keeps its mode and owner. A device, a pipe or an open descriptor
    (/dev/stdout) is written into. An OSError names `path`.
    """
    try:
        if (descriptor := _descriptor(path)) is not None:
            _write(os.dup(descriptor), content)
        elif (old := _status(path)) is not None and not stat.S_ISREG(old.st_mode):
            _write(os.open(path, os.O_WRONLY), content)
        else:
            _replace(Path(os.path.realpath(path)), content, old)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def write_privately(folder: Path, name: str, content: bytes) -> Path:
    """Write a new file only its owner can read, whose path nobody can guess; returns the path, which ends in `name`."""
    path = folder / f"vcdeploy-rescued-{secrets.token_hex(8)}-{name}"
    _create(path, content, 0o600)
    return path


def is_standard_output(path: Path) -> bool:
    """Whether a path such as /dev/stdout or /dev/fd/1 names standard output."""
    return _descriptor(path) == 1


def read_limited(file: BinaryIO | BufferedIOBase, limit: int) -> bytes | None:
    """The rest of a file, or None if that is more than `limit` bytes: some devices, pipes and archives never end."""
    content = bytearray()
    while len(content) <= limit:
        if not (chunk := file.read(1 << 20)):
            return bytes(content)
        content += chunk
    return None


def _replace(path: Path, content: bytes, old: os.stat_result | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    _create(temporary, content, 0o666 if old is None else 0o600, old)
    try:
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _create(path: Path, content: bytes, mode: int, like: os.stat_result | None = None) -> None:
    """Write a file that does not exist yet, to the disk; an error removes it. `like`: the owner and mode to give it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:
            with contextlib.suppress(OSError):  # some network file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not stale: see _remove_stale
            if like is not None:
                own = os.fstat(file.fileno())
                if (own.st_uid, own.st_gid) != (like.st_uid, like.st_gid):
                    with contextlib.suppress(PermissionError):  # only root can give a file away
                        os.fchown(file.fileno(), like.st_uid, like.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _write(descriptor: int, content: bytes) -> None:
    """Write to an open descriptor, and close it."""
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # it may be written but not read: there is no way to
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # the file system has no such thing
            raise
    finally:
        os.close(descriptor)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _descriptor(path: Path) -> int | None:
    """The descriptor of this process that a path such as /dev/stdout or /dev/fd/3 names, None for other paths."""
    folders = {os.path.realpath(each) for each in ("/proc/self/fd", "/proc/thread-self/fd")}
    for _ in range(40):  # the longest chain of links that Linux follows
        path = Path(os.path.realpath(path.parent), path.name)
        if str(path.parent) in folders and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / os.readlink(path)
    return None


def _remove_stale(path: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote `path`.

    A file is stale if it is ours, no process has its number, and nobody holds its lock: a process in another container
    has numbers of its own.
    """
    pattern = re.compile(re.escape(f".{path.name}.") + r"(\d+)(\.[0-9a-f]{8})?")
    names: list[str] = []
    with contextlib.suppress(PermissionError):  # a folder that may be written but not read
        names = os.listdir(path.parent)
    for name in names:
        match = pattern.fullmatch(name)
        if match is None or _runs(int(match[1])):
            continue
        with contextlib.suppress(OSError):
            stale = path.with_name(name)
            with open(os.open(stale, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                found = os.fstat(file.fileno())
                if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    stale.unlink()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it belongs to somebody else
        return True
    return True
