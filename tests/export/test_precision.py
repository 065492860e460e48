"""Stored weights: their size, their accuracy, and their use in a runtime."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from onnx import TensorProto
from stored import stored_weights

from vcdeploy.errors import VcdeployError
from vcdeploy.export import build
from vcdeploy.format.precision import packed
from vcdeploy.spec import PRECISIONS, QUANTIZED_PRECISIONS
from vcdeploy.training.checkpoint import Checkpoint

MakeCheckpoint = Callable[..., Checkpoint]
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1, "w8a8": 1}


@pytest.mark.parametrize("unit", ["vcgru", "lstm"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_file_shrinks_with_the_precision(unit: str, precision: str, make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint(unit, dim=256, layers=1)
    numbers = sum(each.numel() for each in checkpoint.model.values())
    model = build(checkpoint, precision=precision)
    stored = sum(len(each.raw_data) for each in model.graph.initializer)
    assert numbers * BYTES[precision] <= stored <= numbers * BYTES[precision] * 1.05
    assert model.ByteSize() - stored < 24_000  # named nodes, function body, metadata


@pytest.mark.parametrize("precision", PRECISIONS)
def test_matrices_are_rounded_and_vectors_are_not(precision: str, make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint("vclstm", dim=40)
    model = build(checkpoint, precision=precision)
    stored = stored_weights(model)
    for name, wanted in checkpoint.model.items():
        array = wanted.numpy()
        got = stored[name.removeprefix("unit.").replace("embedding.weight", "embedding")]
        if array.ndim == 1:
            assert np.array_equal(got, array)
            continue
        scale = np.abs(array).max(-1, keepdims=True) if precision in QUANTIZED_PRECISIONS else np.abs(array)
        assert (np.abs(got - array) <= PRECISIONS[precision].rounding * scale * (1 + 1e-6) + 2.0**-25).all()
        assert np.array_equal(got, array) == (precision == "f32")
    kinds = {each.name: each.data_type for each in model.graph.initializer}
    matrix = {
        "f32": TensorProto.FLOAT,
        "f16": TensorProto.FLOAT16,
        "bf16": TensorProto.BFLOAT16,
        "int8": TensorProto.INT8,
        "w8a8": TensorProto.INT8,
    }
    assert kinds["layers.0.U"] == matrix[precision]
    assert kinds["layers.0.u"] == kinds["output.bias"] == TensorProto.FLOAT
    assert ("layers.0.U.scale" in kinds) == (precision in QUANTIZED_PRECISIONS)


def test_bf16_rounds_as_pytorch_does() -> None:
    draw = np.random.default_rng(0)
    array = (draw.standard_normal((64, 64)) * 10.0 ** draw.integers(-30, 30, (64, 64))).astype(np.float32)
    array[0, :4] = [1 + 2.0**-8, 1 + 3 * 2.0**-8, -0.0, 2.0**-130]  # ties to even, both ways; -0; a subnormal
    wanted = torch.from_numpy(array).bfloat16().view(torch.int16).numpy()
    assert dict(packed("W", array, "bf16"))["W"].tobytes() == wanted.tobytes()


def test_a_row_of_zeros_survives_int8() -> None:
    array = np.zeros((2, 3), np.float32)
    array[1] = [1, -2, 0.5]
    (_, quantised), (_, scale) = packed("W", array, "int8")
    assert quantised.tolist() == [[0, 0, 0], [64, -127, 32]]
    assert np.isfinite(scale).all()


def test_weights_beyond_f16(make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint("vcgru")
    checkpoint.model["output.weight"][0, 0] = 7e4
    with pytest.raises(VcdeployError, match=r"output\.weight reach 7e\+04, beyond f16: use --precision bf16"):
        build(checkpoint, precision="f16")
    build(checkpoint, precision="bf16")
