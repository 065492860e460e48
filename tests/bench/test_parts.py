"""Unit tests of the benchmark: synthetic model, weights read, bandwidth, choice of engines, streams."""

import numpy as np
import pytest
import torch

from vcdeploy import _native
from vcdeploy.bench import engines, models, traffic
from vcdeploy.reference import cells
from vcdeploy.spec import PRECISIONS

CONFIG = {"dim": 1024, "layers": 1, "sharpness": 1.0, "epsilon": 1e-3}


def find(name: str, unit: str = "vcgru") -> engines.Engine:
    return next(each for each in engines.engines(unit) if each.name == name)


@pytest.mark.parametrize(("low", "high", "dim"), [(0.2, 0.6, 64), (0.4, 0.4, 7), (0.01, 1.0, 33)])
def test_the_synthetic_model_has_the_requested_m(low: float, high: float, dim: int) -> None:
    made = models.synthetic("vcgru", dim, low, high, seed=3)
    x = torch.from_numpy(made.parameters["embedding.weight"])
    u, v, b = (torch.from_numpy(made.parameters[f"unit.layers.0.{name}"]) for name in "uvb")
    m = cells.update_fraction(x, torch.randn(len(x), dim), u, v, b)
    assert np.abs(m.numpy() - np.linspace(low, high, 50)).max() < 1e-5


def read(name: str, m: float, steps: int = 1, unit: str = "vcgru", batch: int = 1) -> float:
    fractions = np.full((10, batch, 1), m, np.float32)
    return traffic.traffic(find(name, unit), CONFIG, 50, steps, fractions).bytes


def test_bytes_of_weights_that_a_step_reads() -> None:
    D = 1024
    matrix, vector = 4 * D * D, 4 * D
    # Dense: all of W and R, the output layer, an embedding; in a sequence W and the output layer only once.
    assert read("onnxruntime gru", 1) == 6 * matrix + 51 * vector
    assert read("onnxruntime gru", 1, steps=100) == pytest.approx(3.03 * matrix + 1.5 * vector)
    assert read("onnxruntime rnn", 1, unit="vcrnn") == 2 * matrix + 51 * vector
    assert read("onnxruntime function", 0.4) == 6 * matrix + 53 * vector
    assert read("onnxruntime function", 0.4, steps=100) == 6 * matrix + 3.5 * vector
    # At m = 0.4 the mask reaches to 416, which is 26 panels or a bucket of 512; up to 402 it is 1.
    assert read("onnxruntime bucketed", 0.4) == 6 * 4 * 512**2 + 53 * vector
    assert read("native f32", 0.4) == 6 * 4 * 416**2 + (64 + 3) * vector
    assert read("native f32", 0.4, steps=100) == 6 * 4 * 416**2 + 4 * 64 * (D + 99 * 448) / 100 + 3 * vector
    assert read("onnxruntime custom op", 0.4, steps=100) == 6 * 4 * 416**2 + 3.5 * vector
    # With a table: its row at column 384, and the columns of V past that.
    row, rest = 4 * 3 * 416, 3 * 416 * (416 - 384)
    assert read("native f32 + table", 0.4) == 3 * 4 * 416**2 + 4 * rest + row + (64 + 3) * vector
    assert read("native int8 + table", 0.4) == 3 * 416**2 + rest + row + 64 * D + 3 * vector
    # A batch: up to 16 sequences share the weights, but not the embedding, u and v, nor the columns past a table's row.
    assert read("native f32", 0.4, batch=16) == read("native f32", 0.4) + 15 * 3 * vector
    two_groups = 2 * read("native f32", 0.4) - 64 * vector + 15 * 3 * vector  # which share the output layer
    assert read("native f32", 0.4, batch=17) == two_groups
    apart = 4 * rest + row + 3 * vector
    assert read("native f32 + table", 0.4, batch=16) == read("native f32 + table", 0.4) + 15 * apart
    assert read("onnxruntime custom op", 0.4, batch=16) == read("onnxruntime custom op", 0.4)
    assert read("onnxruntime gru", 1, batch=3) == read("onnxruntime gru", 1)


@pytest.mark.parametrize("isa", _native.instruction_sets())
@pytest.mark.parametrize("threads", [1, 2])
def test_bandwidth_is_measured_on_every_instruction_set(isa: str, threads: int) -> None:
    for size in (1, 1000, 3_000_000):
        assert _native.read_bandwidth(size, 0.001, threads=threads, isa=isa) > 0


@pytest.mark.parametrize(
    ("size", "seconds", "threads"), [(0, 1, 1), (-1, 1, 1), (1, 0, 1), (1, float("nan"), 1), (1, 1, 0)]
)
def test_bandwidth_of_nothing_is_an_error(size: int, seconds: float, threads: int) -> None:
    with pytest.raises(ValueError, match=r"must be|threads"):
        _native.read_bandwidth(size, seconds, threads=threads)


def test_a_name_or_the_beginning_of_one_chooses() -> None:
    known = engines.engines("vcgru")
    assert [each.name for each in engines.choose(known, ["native f32"])] == ["native f32"]
    assert {each.unit for each in engines.choose(known, ["native"])} == {"vcgru", "gru"}
    assert len(engines.choose(known, ["native gru"])) == len(PRECISIONS)
    assert engines.choose(known, []) == known
    assert {each.precision for each in engines.engines("vcgru", ["int8"]) if each.runtime == "native"} == {"int8"}


def test_streams_have_each_symbol_as_often_as_another() -> None:
    streams = models.random_streams(50, 3, 120, seed=1)
    assert streams.shape == (120, 3)
    for batch in range(3):
        for start in (0, 50):  # every call of 50 symbols reads each of them once
            assert sorted(streams[start : start + 50, batch]) == list(range(50))
    assert (streams[:50] != streams[50:100]).any() and (streams[:, 0] != streams[:, 1]).any()
    assert (streams == models.random_streams(50, 3, 120, seed=1)).all()
