"""Text as bits: eight per UTF-8 byte, most significant first, then a buffer of zeros as extra compute steps."""

import codecs

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import VcdeployError

# Buffer sizes of the paper's bit-level experiments: none, one byte, three bytes.
BUFFERS = (0, 8, 24)


def check_buffer(buffer: int) -> None:
    if buffer not in BUFFERS:
        raise VcdeployError(f"buffer is {buffer}; the zeros after each byte may be 0, 8 or 24 bits")


def from_text(text: str, buffer: int = 0) -> NDArray[np.uint8]:
    """Bits of the UTF-8 bytes of `text`, [bytes * (8 + buffer)]."""
    data = np.frombuffer(text.encode(), np.uint8)
    rows = np.zeros((len(data), 8 + buffer), np.uint8)
    rows[:, :8] = np.unpackbits(data).reshape(-1, 8)
    return rows.ravel()


def to_text(ids: NDArray[np.int64], buffer: int = 0) -> str:
    """The text of a bit sequence; invalid UTF-8 becomes U+FFFD, an incomplete last byte is dropped."""
    period = 8 + buffer
    whole = len(ids) // period + (len(ids) % period >= 8)
    rows = np.zeros(whole * period, np.uint8)
    rows[: len(ids)] = ids[: whole * period]
    return np.packbits(rows.reshape(whole, period)[:, :8]).tobytes().decode("utf-8", errors="replace")


def characters(ids: NDArray[np.int64], buffer: int = 0) -> list[str]:
    """The text each byte of a bit sequence completes: a character, or "" for all but the last byte of one."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rows = [ids[at : at + 8] for at in range(0, len(ids) - 7, 8 + buffer)]
    return [decoder.decode(np.packbits(row.astype(np.uint8)).tobytes()) for row in rows]
