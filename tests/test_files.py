"""Atomic file writes: either the old or the new file, with no leftovers."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vcdeploy.files import write_atomically


def test_writes_into_a_folder_it_makes(tmp_path: Path) -> None:
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


def test_it_imports_nothing_heavy() -> None:
    code = "import sys, vcdeploy.files; print(sorted({'torch', 'numpy', 'onnx'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
