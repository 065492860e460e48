"""Atomic file writes: a killed process leaves the old file or the new one, never a partial one."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write or replace a file atomically; an error leaves the old file and no temporary one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
