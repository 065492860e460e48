"""Reads the weights of a file with onnx, as a reference for tests of vcdeploy.format.reader."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, numpy_helper

from vcdeploy.format.precision import SCALE

Array = NDArray[np.float32]


def stored_weights(model: ModelProto) -> dict[str, Array]:
    """All initializers of a file as the float32 values that a runtime computes with."""
    raw: Mapping[str, TensorProto] = {each.name: each for each in model.graph.initializer}
    return {name: _read(tensor, raw) for name, tensor in raw.items() if not name.endswith(SCALE)}


def _read(tensor: TensorProto, raw: Mapping[str, TensorProto]) -> Array:
    if tensor.data_type == TensorProto.BFLOAT16:
        upper = np.frombuffer(tensor.raw_data, "<u2").astype(np.uint32)
        return (upper << np.uint32(16)).view(np.float32).reshape(tuple(tensor.dims))
    array: NDArray[Any] = numpy_helper.to_array(tensor)
    if tensor.data_type == TensorProto.INT8:
        return array.astype(np.float32) * numpy_helper.to_array(raw[tensor.name + SCALE])
    return array.astype(np.float32)
