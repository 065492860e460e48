"""Stored weights in f32, f16, bf16 or int8, and the standard ops that convert them to float32.

Matrices are stored in the chosen precision. Vectors stay float32: they are small, and an error in the scheduler's
u, v, b would shift m, which is multiplied by D. int8 has one scale per row: `layers.0.U` [R, C] int8,
`layers.0.U.scale` [R, 1]. It also quantizes the vectors a matrix is multiplied by (docs/design.md, section 2;
format/steps.py).
"""

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from vcdeploy.errors import VcdeployError
from vcdeploy.format.nodes import Nodes
from vcdeploy.spec import INT8_LEVELS

Array = NDArray[np.float32]
SCALE = ".scale"

# The tanh of int8 models: x P(x²) / Q(x²) up to ±TANH_END, where it is 1; accurate to TANH_ERROR and never above 1.
# Coefficients from the highest power down, as in plugins/cpu/kernels/activations.h: a test compares them.
TANH_END, TANH_ERROR = 6.7452478, 2.8e-6
TANH_NUMERATOR = (4.215812e-6, 2.33741e-3, 1.23704e-1, 1.0)
TANH_DENOMINATOR = (1.489102e-4, 2.135481e-2, 4.570328e-1, 1.0)
LEAST_RANGE = 2.0**-40  # smallest range of an input or a row of weights, to avoid division by zero


def activation_levels(dim: int) -> int:
    """Levels of the largest activation in int8: a power of two, as in plugins/cpu/weights/quantization.h.

    2^14, or less if needed to keep a sum of D products with weights of up to 127 within int32.

    >>> [activation_levels(dim) for dim in (256, 1024, 2048)]
    [16384, 16384, 8192]
    """
    levels = 2**14
    while INT8_LEVELS * levels * dim > 2**31 - 1:
        levels //= 2
    return levels


def row_scale(array: Array) -> Array:
    """The scale of each row of a matrix, [R, 1]: 1/127 of its largest magnitude, rounded to drop the last seven bits.

    A level times its scale is then exact in float32, so scale and levels can be recovered from the products.
    """
    largest = np.abs(array).max(-1, keepdims=True)
    exact = np.maximum(largest, np.float32(LEAST_RANGE)) / np.float32(INT8_LEVELS)
    scaled = exact * np.float32(2**7 + 1)
    return np.asarray(scaled - (scaled - exact), np.float32)


class Weights:
    """The initializers of a graph, stored in one precision and read as float32."""

    def __init__(self, nodes: Nodes, precision: str) -> None:
        self.nodes, self.precision = nodes, precision
        self.initializers: list[TensorProto] = []
        self._wide: dict[str, str] = {}

    def add(self, name: str, array: Array) -> str:
        """Store an array; returns its name."""
        if not np.isfinite(array).all():
            raise VcdeployError(
                f"the weights {name} hold NaN or infinity: training diverged; export another checkpoint"
            )
        if array.ndim < 2 or self.precision == "f32":
            self.initializers.append(numpy_helper.from_array(array, name))
        elif self.precision == "f16":
            if (largest := float(np.abs(array).max())) >= 65520:  # rounds to infinity in f16
                raise VcdeployError(f"the weights {name} reach {largest:.3g}, beyond f16: use --precision bf16")
            self.initializers.append(numpy_helper.from_array(array.astype(np.float16), name))
        elif self.precision == "bf16":
            self.initializers.append(_bfloat16(array, name))
        else:
            scale = row_scale(array)
            self.initializers.append(numpy_helper.from_array(np.rint(array / scale).astype(np.int8), name))
            self.initializers.append(numpy_helper.from_array(scale, name + SCALE))
        return name

    def whole(self, name: str) -> str:
        """A stored array as a float32 value. The ops have constant inputs, so a runtime runs them once, at load."""
        if name not in self._wide:
            self._wide[name] = self._widen(name, name, name + SCALE)
        return self._wide[name]

    def rows(self, name: str, index: str) -> str:
        """The rows of a stored matrix at `index`, as float32."""
        scales = (each.name == name + SCALE for each in self.initializers)
        scale = self.nodes.add("Gather", name + SCALE, index) if any(scales) else ""
        return self._widen(name, self.nodes.add("Gather", name, index), scale)

    def _widen(self, name: str, value: str, scale: str) -> str:
        (kind,) = (each.data_type for each in self.initializers if each.name == name)
        if kind == TensorProto.FLOAT:
            return value
        wide = self.nodes.add("Cast", value, to=TensorProto.FLOAT)
        return self.nodes.add("Mul", wide, scale) if kind == TensorProto.INT8 else wide


def _bfloat16(array: Array, name: str) -> TensorProto:
    """Round to nearest, ties to even. Done by hand because NumPy has no bfloat16."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    upper = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype("<u2")
    return helper.make_tensor(name, TensorProto.BFLOAT16, array.shape, upper.tobytes(), raw=True)
