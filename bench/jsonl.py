"""JSON Lines files: one compact document per line, changed under a lock and replaced as a whole.

A killed process leaves the old file or the new one. Processes that change a file at the same time lose nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from vcdeploy.errors import VcdeployError
from vcdeploy.files import write_atomically

Documents = list[dict[str, Any]]


def read(file: Path) -> Documents:
    """The documents of a file; empty if it does not exist."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise VcdeployError(f"cannot read {file} ({error}): restore it, or remove it and run again") from error
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            raise VcdeployError(
                f"{file}, line {number}: invalid JSON ({error}): remove the line and rerun the command it came from"
            ) from error
    return found


def write(file: Path, documents: Iterable[dict[str, Any]]) -> None:
    """Replace the whole file."""
    lines = (json.dumps(each, ensure_ascii=False, separators=(",", ":")) + "\n" for each in documents)
    write_atomically(file, "".join(lines).encode())


def change(file: Path, how: Callable[[Documents], Iterable[dict[str, Any]]]) -> None:
    """Replace the documents by the result of `how`, one process at a time.

    The lock is on the folder, so that no lock file remains; the system releases it when a process is killed.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        write(file, how(read(file)))
    finally:
        os.close(descriptor)


def append(file: Path, document: dict[str, Any]) -> None:
    change(file, lambda documents: [*documents, document])


def save(file: Path, document: dict[str, Any]) -> None:
    """Append the document to a .jsonl file; replace any other file."""
    if file.suffix == ".jsonl":
        append(file, document)
    else:
        write_atomically(file, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())
