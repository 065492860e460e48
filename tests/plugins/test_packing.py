"""Weights packed for the CUDA kernels (vcdeploy/gpu/packing.py); plugins/emulator reads them as the kernels do."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vcdeploy.gpu.packing import pack


@pytest.mark.parametrize(("dtype", "columns"), [(np.float32, 4), (np.float16, 8)])
@pytest.mark.parametrize(("gates", "D"), [(1, 1), (3, 7), (4, 24), (3, 33)])
def test_every_weight_has_its_place(gates: int, D: int, dtype: type, columns: int) -> None:
    matrix: NDArray[Any] = (np.arange(gates * D * D) % 2039 + 1).astype(dtype).reshape(gates * D, D)
    size = (D + 7) // 8 * 8
    packed = pack(matrix)
    assert packed.shape == (size // columns, size // 8, gates, 8, columns)
    assert packed.flags.c_contiguous and packed.dtype == dtype
    for row, column in np.ndindex(*matrix.shape):
        gate, i = divmod(row, D)
        assert packed[column // columns, i // 8, gate, i % 8, column % columns] == matrix[row, column]
    assert np.count_nonzero(packed) == matrix.size  # the rest is 0
