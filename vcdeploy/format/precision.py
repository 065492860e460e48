"""Weights as stored in each precision. `nodes.Weights` has the standard ops that read them as float32.

Matrices are stored in the chosen precision. Vectors stay float32: they are small, and an error in the scheduler's
u, v, b would shift m, which is multiplied by D. int8 and w8a8 have one scale per row: `layers.0.U` [R, C] int8,
`layers.0.U.scale` [R, 1]. They also quantize the vectors a matrix is multiplied by (docs/design.md, section 2;
format/steps.py).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy.errors import VcdeployError
from vcdeploy.spec import PRECISIONS, WEIGHT_LEVELS

Array = NDArray[np.float32]
SCALE = ".scale"

# The tanh of int8 and w8a8: x P(x²) / Q(x²) up to ±TANH_END, where it is 1; accurate to TANH_ERROR and never above 1.
# Coefficients from the highest power down, as in plugins/cpu/kernels/activations.h: a test compares them.
TANH_END, TANH_ERROR = 6.7452478, 2.8e-6
TANH_NUMERATOR = (4.215812e-6, 2.33741e-3, 1.23704e-1, 1.0)
TANH_DENOMINATOR = (1.489102e-4, 2.135481e-2, 4.570328e-1, 1.0)
LEAST_RANGE = 2.0**-40  # smallest range of an input or a row of weights, to avoid division by zero


def activation_levels(precision: str, dim: int) -> int:
    """Levels of the largest activation in a quantized precision, as in plugins/cpu/weights/quantization.h.

    Halved until a sum of D products with weights of up to 127 fits an int32.

    >>> [activation_levels("int8", dim) for dim in (256, 1024, 2048)]
    [16384, 16384, 8192]
    >>> activation_levels("w8a8", 2048)
    127
    """
    levels = PRECISIONS[precision].levels
    while WEIGHT_LEVELS * levels * dim > 2**31 - 1:
        levels //= 2
    return levels


def row_scale(array: Array) -> Array:
    """The scale of each row of a matrix, [R, 1]: 1/127 of its largest magnitude, rounded to drop the last seven bits.

    A level times its scale is then exact in float32, so scale and levels can be recovered from the products.
    """
    largest = np.abs(array).max(-1, keepdims=True)
    exact = np.maximum(largest, np.float32(LEAST_RANGE)) / np.float32(WEIGHT_LEVELS)
    scaled = exact * np.float32(2**7 + 1)
    return np.asarray(scaled - (scaled - exact), np.float32)


def packed(name: str, array: Array, precision: str) -> list[tuple[str, NDArray[Any]]]:
    """The stored arrays of one weight and their names, as `nodes.Weights` declares them; bf16 as its 16 bits."""
    if not np.isfinite(array).all():
        raise VcdeployError(f"the weights {name} hold NaN or infinity: training diverged; export another checkpoint")
    if array.ndim < 2 or precision == "f32":
        return [(name, array)]
    if precision == "f16":
        if (largest := float(np.abs(array).max())) >= 65520:  # rounds to infinity in f16
            raise VcdeployError(f"the weights {name} reach {largest:.3g}, beyond f16: use --precision bf16")
        return [(name, array.astype(np.float16))]
    if precision == "bf16":
        return [(name, _bfloat16(array))]
    scale = row_scale(array)
    return [(name, np.rint(array / scale).astype(np.int8)), (name + SCALE, scale)]


def _bfloat16(array: Array) -> NDArray[np.uint16]:
    """Round to nearest, ties to even. Done by hand because NumPy has no bfloat16."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
