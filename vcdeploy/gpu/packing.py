"""The layout of weight matrices that the CUDA kernels read (plugins/tensorrt/call.h)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

PANEL = 8  # rows that are stored together
BYTES = 16  # of a row that are stored together: what a thread loads at once


def pack(matrix: NDArray[Any]) -> NDArray[Any]:
    """[gates * D, D] as [blocks of columns, panels, gates, rows of a panel, columns of a block], zero past D.

    Threads with neighbouring rows read neighbouring 16 bytes, and the prefix of a block of columns is contiguous.
    """
    D, columns = matrix.shape[1], BYTES // matrix.itemsize
    gates = len(matrix) // D
    size = -(-D // PANEL) * PANEL
    padded = np.zeros((gates, size, size), matrix.dtype)
    padded[:, :D, :D] = matrix.reshape(gates, D, D)
    blocks = padded.reshape(gates, size // PANEL, PANEL, size // columns, columns)
    return np.ascontiguousarray(blocks.transpose(3, 1, 0, 2, 4))
