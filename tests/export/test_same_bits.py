"""int8 and w8a8 give the same bits on every backend (docs/design.md, section 2)."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from stored import stored_weights

from vcdeploy.export import build, parity
from vcdeploy.format.precision import (
    TANH_DENOMINATOR,
    TANH_END,
    TANH_ERROR,
    TANH_NUMERATOR,
    row_scale,
)
from vcdeploy.runtime import int8
from vcdeploy.runtime.native import NativeModel
from vcdeploy.runtime.onnxruntime import OnnxRuntimeModel
from vcdeploy.runtime.sources import network_of
from vcdeploy.runtime.torch import TorchModel
from vcdeploy.spec import QUANTIZED_PRECISIONS, UNITS, VARIABLE_UNITS, WEIGHT_LEVELS
from vcdeploy.training.checkpoint import Checkpoint

native = pytest.importorskip("vcdeploy._native")
pytest.importorskip("onnxruntime")

MakeCheckpoint = Callable[..., Checkpoint]
ACTIVATIONS = Path(__file__).parents[2] / "plugins" / "cpu" / "kernels" / "activations.h"


def lively(checkpoint: Checkpoint) -> Checkpoint:
    """Weights large enough that m, and thus a, varies widely between steps, and that tanh saturates."""
    draw = torch.Generator().manual_seed(5)
    for name, weight in checkpoint.model.items():
        if name.endswith((".u", ".v")):
            weight.copy_(torch.randn(weight.shape, generator=draw) * 2 / len(weight) ** 0.5)
        elif name.endswith((".U", ".V")):
            weight.mul_(3)
    return checkpoint


def backends(checkpoint: Checkpoint, precision: str, bucketed: bool) -> Iterator[tuple[str, Any, int]]:
    """Yields a name, a runtime of the same file, and the number of steps to run."""
    model = build(checkpoint, precision=precision, bucketed=bucketed)
    content, config = model.SerializeToString(), checkpoint.config
    yield "evaluator", parity.ReferenceRuntime(model), 3
    form = "bucketed" if bucketed else "function body"
    yield f"{form}, two threads", OnnxRuntimeModel(content, threads=2, custom_op=bucketed), 12
    if not bucketed:
        yield "custom op", OnnxRuntimeModel(content), 12
        portable = build(checkpoint, precision=precision, portable=True).SerializeToString()
        yield "portable", OnnxRuntimeModel(portable), 12
    settings = {name: config[name] for name in ("unit", "sharpness", "epsilon")}
    weights = stored_weights(model)
    for isa in native.instruction_sets():
        for threads, table in ((1, 0), (2, 0), (1, 2**26), (2, 2**26), (1, 60_000)):
            options: dict[str, Any] = {"precision": precision, "isa": isa, "threads": threads, "table_bytes": table}
            made = NativeModel(weights, checkpoint.vocab, **settings, **options)
            yield f"native, {isa}, {threads} threads, table {table}", made, 12


def inputs(checkpoint: Checkpoint) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Tokens [12, 3] and a state: zeros, values up to 1, and values beyond."""
    config, draw = checkpoint.config, np.random.default_rng(3)
    rows = config["layers"] * UNITS[config["unit"]].state_rows
    tokens = draw.integers(0, len(checkpoint.vocab), (12, 3))
    scale = np.array([0, 0.4, 3]).reshape(1, 3, 1)
    state = draw.standard_normal((rows, 3, config["dim"])) * scale
    return tokens, state.astype(np.float32)


@pytest.mark.parametrize(
    ("dim", "layers", "sharpness", "bucketed"),
    [(1, 1, 1.0, False), (7, 2, 1.0, False), (97, 2, 0.1, False), (300, 1, 1.0, False), (300, 1, 0.05, True)],
)
@pytest.mark.parametrize("precision", QUANTIZED_PRECISIONS)
@pytest.mark.parametrize("unit", VARIABLE_UNITS)
def test_every_backend_has_the_same_bits(
    unit: str,
    precision: str,
    dim: int,
    layers: int,
    sharpness: float,
    bucketed: bool,
    make_checkpoint: MakeCheckpoint,
) -> None:
    checkpoint = lively(make_checkpoint(unit, dim, layers, sharpness))
    tokens, state = inputs(checkpoint)
    stored = network_of(build(checkpoint, precision=precision).SerializeToString(), "a file")
    reference = TorchModel(stored, checkpoint.vocab, precision)
    wanted = {steps: reference.run(tokens[:steps], state) for steps in (3, 12)}
    fractions = wanted[12][2]
    assert dim < 7 or np.ptp(fractions) > 0.3, "a has to differ"
    for name, runtime, steps in backends(checkpoint, precision, bucketed):
        for got, want in zip(runtime.run(tokens[:steps], state), wanted[steps], strict=True):
            assert got.dtype == want.dtype == np.float32
            np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32), err_msg=name)


def test_the_activations_are_accurate_bounded_and_keep_nan() -> None:
    near = np.float32(6.5).view(np.int32), np.float32(7).view(np.int32)
    every = np.arange(*near, dtype=np.int32).view(np.float32)  # every float near the point where tanh reaches 1
    x = np.concatenate([np.linspace(-9, 9, 1_000_001, dtype=np.float32), every, -every])
    tanh, sigmoid = (f(torch.from_numpy(x)).numpy() for f in (int8.tanh, int8.sigmoid))
    wide = x.astype(np.float64)
    assert np.abs(tanh - np.tanh(wide)).max() < TANH_ERROR
    assert np.abs(sigmoid - 1 / (1 + np.exp(-wide))).max() < TANH_ERROR / 2 + 2**-24
    assert np.abs(tanh).max() == 1
    assert (tanh[x >= np.float32(TANH_END)] == 1).all()
    assert (sigmoid >= 0).all() and (sigmoid <= 1).all()
    in_order = np.sort(x)
    assert np.diff(int8.tanh(torch.from_numpy(in_order)).numpy().astype(np.float64)).min() > -1e-6
    assert torch.isnan(int8.tanh(torch.tensor([torch.nan]))).all()
    assert int8.tanh(torch.tensor([torch.inf, -torch.inf, 0.0])).tolist() == [1, -1, 0]


def test_the_kernels_have_the_same_coefficients() -> None:
    text = ACTIVATIONS.read_text()
    plain = text[text.index("constexpr float kTanhEnd") : text.index("static Rows sigmoid", text.index("struct Plain"))]
    number = r"([0-9.e-]+)f"
    (end,) = re.findall(rf"kTanhEnd = {number}", plain)
    lines = {name: "".join(re.findall(rf"\b{name} = multiply_add.*", plain)) for name in "pq"}
    found = {name: re.findall(rf"all\({number}\)", line) for name, line in lines.items()}
    assert np.float32(end) == np.float32(TANH_END)
    for name, coefficients in (("p", TANH_NUMERATOR), ("q", TANH_DENOMINATOR)):
        assert [np.float32(each) for each in found[name]] == [np.float32(each) for each in coefficients]


def test_scales_and_levels_are_found_again_in_their_products() -> None:
    draw = np.random.default_rng(0)
    matrix = (draw.standard_normal((2000, 5)) * np.exp(draw.uniform(-20, 20, (2000, 1)))).astype(np.float32)
    matrix[0] = 0
    scale = row_scale(matrix)
    levels = np.rint(matrix / scale)
    assert (np.abs(levels[1:]).max(-1) == WEIGHT_LEVELS).all()
    products = levels * scale
    assert (products == levels.astype(np.float64) * scale).all()
    np.testing.assert_array_equal(row_scale(products), scale)
    np.testing.assert_array_equal(np.rint(products / scale), levels)
