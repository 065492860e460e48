"""Atomic file writes: either the old or the new file, with no leftovers."""

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from vcdeploy.files import write_atomically, write_privately


def test_creates_the_folder_it_writes_to(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize("refuses", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_keeps_the_old_file(
    refuses: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise error

    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr(os, refuses, refuse)
    with pytest.raises(type(error)):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        write_atomically(tmp_path / "file" / "new", b"")


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    content = b"tune" * 50_000  # more than a pipe holds
    write_atomically(pipe, content)
    assert pipe.is_fifo()  # else the reader waits forever
    reader.join()
    assert read == [content]
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_device_is_written_into(tmp_path: Path) -> None:
    link = tmp_path / "null"  # through a link, so that a mistake replaces the link and not the device
    link.symlink_to("/dev/null")
    write_atomically(link, b"tune")
    assert link.is_symlink()
    assert Path("/dev/null").is_char_device()
    link.unlink()
    link.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(link, b"tune")
    assert caught.value.filename == str(link)
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("name", ["link", "chain", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_is_written_in_place(tmp_path: Path, name: str) -> None:
    (tmp_path / "link").symlink_to("/proc/self/fd/1")  # as /dev/stdout is, which a mistake would replace
    (tmp_path / "chain").symlink_to("link")
    name = str(tmp_path / name)  # an absolute name stays as it is
    code = (
        "import os, sys; from pathlib import Path; from vcdeploy.files import write_atomically\n"
        "os.write(1, b'before '); write_atomically(Path(sys.argv[1]), b'tune'); os.write(1, b' after')"
    )
    with open(tmp_path / "out", "wb") as out:
        subprocess.run([sys.executable, "-c", code, name], stdout=out, check=True)
    assert (tmp_path / "out").read_bytes() == b"before tune after"
    piped = subprocess.run([sys.executable, "-c", code, name], capture_output=True, check=True)
    assert piped.stdout == b"before tune after"


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link, chain = tmp_path / "elsewhere" / "file", tmp_path / "link", tmp_path / "chain"
    link.symlink_to("elsewhere/file")
    chain.symlink_to(link)
    for path, content in ((link, b"made"), (link, b"replaced"), (chain, b"by a chain")):
        write_atomically(path, content)
        assert link.is_symlink() and chain.is_symlink()
        assert target.read_bytes() == content
    assert os.listdir(target.parent) == ["file"]
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        write_atomically(loop, b"")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755])
def test_an_existing_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_atomically(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "file", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can own files of others")
def test_an_existing_file_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    os.chown(path, 12345, 54321)
    path.chmod(0o640)
    write_atomically(path, b"new")
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (12345, 54321, 0o640)


def test_a_link_in_place_of_the_temporary_file_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda count: "0" * 2 * count)
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f".file.{os.getpid()}.00000000").symlink_to(victim)
    (tmp_path / f"vcdeploy-rescued-{'0' * 16}-file").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "file", b"new")
    with pytest.raises(FileExistsError):
        write_privately(tmp_path, "file", b"new")
    assert victim.read_bytes() == b"precious"


def test_a_private_file_is_only_for_its_owner(tmp_path: Path) -> None:
    one, other = (write_privately(tmp_path, "last.safetensors", b"state") for _ in range(2))
    assert one != other
    assert one.name.endswith("-last.safetensors")
    assert stat.S_IMODE(one.stat().st_mode) == 0o600


def test_leftovers_of_killed_processes_are_removed_and_nothing_else(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        gone = [f".file.{ended.pid}", f".file.{ended.pid}.0123abcd"]
        kept = [
            f".file.{running.pid}.0123abcd",
            f".other.{ended.pid}.0123abcd",
            f"file.{ended.pid}",
            f".file.{ended.pid}.backup",
            ".file.swp",
            f".file.{ended.pid}.aaaaaaaa",
        ]
        for name in gone + kept[:-1]:
            (tmp_path / name).write_bytes(b"part")
        (tmp_path / kept[-1]).symlink_to(tmp_path / kept[0])
        write_atomically(tmp_path / "file", b"new")
        assert sorted(os.listdir(tmp_path)) == sorted(["file", *kept])
        running.communicate(b"\n")


def test_a_file_that_is_still_written_in_another_container_is_kept(tmp_path: Path) -> None:
    """Its process has a number that means nothing here, but it holds the lock."""
    import fcntl

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    theirs = tmp_path / f".file.{ended.pid}.0123abcd"
    with open(theirs, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_atomically(tmp_path / "file", b"new")
        assert theirs.exists()
    write_atomically(tmp_path / "file", b"new")
    assert not theirs.exists()


def test_threads_do_not_meet(tmp_path: Path) -> None:
    path, contents = tmp_path / "file", [bytes([each]) * 100_000 for each in range(8)]
    threads = [threading.Thread(target=write_atomically, args=(path, each)) for each in contents for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert os.listdir(tmp_path) == ["file"]


def test_the_folder_reaches_the_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, real = list[str](), os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    write_atomically(tmp_path / "file", b"new")
    assert synced[0].startswith(f"{tmp_path}/.file.")
    assert synced[1:] == [str(tmp_path)]


def test_it_imports_nothing_heavy() -> None:
    code = "import sys, vcdeploy.files; print(sorted({'torch', 'numpy', 'onnx'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
