"""Text input of commands: a file or standard input."""

import sys
from pathlib import Path

from vcdeploy.errors import VcdeployError


def read_given(name: str, what: str) -> str:
    """Read UTF-8 text from a file, or from standard input for -; `what` names it in errors, such as "the prime"."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return data.decode().removeprefix("\ufeff")
    except OSError as error:
        raise VcdeployError(f"cannot read {what} {name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise VcdeployError(
            f"{what} {'of standard input' if name == '-' else name} is not UTF-8: "
            f"byte 0x{data[error.start]:02X} at offset {error.start}"
        ) from error
