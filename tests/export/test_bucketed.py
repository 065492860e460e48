"""The bucketed form: PyTorch's results at every prefix size, and nothing read past the prefix."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
import torch
from exported import run_graph
from numpy.typing import NDArray

from vcdeploy.export import build
from vcdeploy.format.inlined import bucket_sizes
from vcdeploy.reference.cells import active
from vcdeploy.spec import VARIABLE_UNITS
from vcdeploy.training.checkpoint import Checkpoint

MakeCheckpoint = Callable[..., Checkpoint]
DIM, SHARPNESS = 300, 1.0


def with_m(checkpoint: Checkpoint, m: float) -> Checkpoint:
    """The checkpoint changed so that m stays near `m` in both layers and depends only slightly on the input."""
    for layer in range(2):
        for part in ("u", "v"):
            checkpoint.model[f"unit.layers.{layer}.{part}"] *= 0.1
        checkpoint.model[f"unit.layers.{layer}.b"].fill_(float(np.log(m / (1 - m))))
    return checkpoint


def inputs(unit: str, T: int, B: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    draw = np.random.default_rng(5)
    rows = 4 if unit == "vclstm" else 2
    return draw.integers(0, 9, (T, B)), np.tanh(draw.standard_normal((rows, B, DIM))).astype(np.float32)


@pytest.mark.parametrize(
    ("dim", "wanted"), [(1, [1]), (128, [128]), (129, [128, 129]), (300, [128, 256, 300]), (512, [128, 256, 384, 512])]
)
def test_sizes(dim: int, wanted: list[int]) -> None:
    assert bucket_sizes(dim) == wanted


@pytest.mark.parametrize("runtime", ["onnxruntime", "evaluator"])
@pytest.mark.parametrize("m", [0.01, 0.3, 0.4, 0.6, 0.97])
@pytest.mark.parametrize("unit", VARIABLE_UNITS)
def test_numbers_of_pytorch_in_every_bucket(unit: str, m: float, runtime: str, make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = with_m(make_checkpoint(unit, DIM, 2, SHARPNESS), m)
    model = build(checkpoint, bucketed=True)
    assert {each.domain for each in model.opset_import} == {""}
    assert not model.functions
    tokens, state = inputs(unit, 4, 3)
    with torch.no_grad():
        wanted = checkpoint.build()(torch.from_numpy(tokens), torch.from_numpy(state))
    results = run_graph(runtime, model, tokens, state)
    fractions = [torch.from_numpy(results[2]), wanted[2]]
    assert torch.equal(*(active(m, DIM, SHARPNESS, 1e-3) for m in fractions)), "a flip: give this test other tokens"
    # As for the function bodies: √(2D) rounding units in a sum, sharpness·D/2 through the mask, per step and layer.
    tolerance = 8 * 2.0**-24 * 2 * 4 * ((2 * DIM) ** 0.5 + SHARPNESS * DIM / 2)
    for got, one in zip(results, wanted, strict=True):
        assert np.abs(got - one.numpy()).max() <= tolerance


@pytest.mark.parametrize("runtime", ["onnxruntime", "evaluator"])
@pytest.mark.parametrize(("m", "covered"), [(0.2, 128), (0.6, 256)])
@pytest.mark.parametrize("unit", VARIABLE_UNITS)
def test_weights_past_the_bucket_are_not_read(
    unit: str, m: float, covered: int, runtime: str, make_checkpoint: MakeCheckpoint
) -> None:
    model = build(with_m(make_checkpoint(unit, DIM, 2, SHARPNESS), m), bucketed=True)
    tokens, state = inputs(unit, 3, 2)
    wanted = run_graph(runtime, model, tokens, state)
    assert active(torch.from_numpy(wanted[2]), DIM, SHARPNESS, 1e-3).max() <= covered
    for initializer in model.graph.initializer:
        if initializer.name.endswith((".U", ".V")):
            gates = onnx.numpy_helper.to_array(initializer).reshape(-1, DIM, DIM).copy()
            gates[:, covered:] = np.nan
            gates[:, :, covered:] = np.nan
            initializer.CopyFrom(onnx.numpy_helper.from_array(gates.reshape(-1, DIM), initializer.name))
    for got, one in zip(run_graph(runtime, model, tokens, state), wanted, strict=True):
        assert np.array_equal(got, one)


@pytest.mark.parametrize("runtime", ["onnxruntime", "evaluator"])
@pytest.mark.parametrize("unit", VARIABLE_UNITS)
def test_nan_stays_in_its_sequence(unit: str, runtime: str, make_checkpoint: MakeCheckpoint) -> None:
    model = build(with_m(make_checkpoint(unit, DIM, 2, SHARPNESS), 0.2), bucketed=True)
    tokens, state = inputs(unit, 3, 2)
    wanted = run_graph(runtime, model, tokens, state)
    state[0, 1, 7] = np.nan
    logits, after, m = run_graph(runtime, model, tokens, state)
    assert np.isnan(m[:, 1]).all() and np.isnan(after[:, 1]).any(-1).all() and np.isnan(logits[:, 1]).all()
    # The other sequence now uses a larger bucket: the same sums in another order.
    tolerance = 8 * 2.0**-24 * 2 * 3 * ((2 * DIM) ** 0.5 + SHARPNESS * DIM / 2)
    for got, one in zip((logits[:, 0], after[:, 0], m[:, 0]), (each[:, 0] for each in wanted), strict=True):
        assert np.abs(got - one).max() <= tolerance
