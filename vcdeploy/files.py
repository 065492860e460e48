"""Writing files so that a killed program leaves either the old one or the new one."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """The old file or the new one, whatever happens in between; an OSError leaves no temporary file."""
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
