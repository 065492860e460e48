"""Dense units on every instruction set: steps against the reference, with biases; int8 and w8a8 bit by bit."""

from typing import Any

import numpy as np
import pytest
import torch
from cases import Case
from plugins.bounds import step_bounds
from torch import Tensor

from vcdeploy import _native
from vcdeploy.format.dense import joined_bias, own_weights
from vcdeploy.format.graph import build
from vcdeploy.reference.cells import STEPS
from vcdeploy.runtime.native import NativeModel
from vcdeploy.runtime.sources import OnnxSource
from vcdeploy.runtime.torch import TorchModel
from vcdeploy.spec import DENSE_UNITS, PRECISIONS, QUANTIZED_PRECISIONS, UNITS
from vcdeploy.training.checkpoint import Checkpoint
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

ISAS = _native.instruction_sets()
VOCAB = Vocabulary("abcdefghij")
DENSE = [(unit, biased) for unit in DENSE_UNITS for biased in ({False, UNITS[unit].biased})]
STORED = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def inputs_of(unit: str, T: int, B: int, D: int, biased: bool) -> tuple[list[Tensor], Tensor | None]:
    """X, H0, U, V and, for lstm, C0; and the bias."""
    inputs = Case(unit, T, B, D, "dense", 1.0).inputs(torch.float32)
    planes = len(UNITS[unit].gates) + (unit == "gru")
    return inputs, torch.linspace(-1, 1, planes * D) if biased else None


def op(unit: str, inputs: list[Tensor], bias: Tensor | None, **options: Any) -> list[Tensor]:
    X, H0, U, V, *cell = (np.ascontiguousarray(each.numpy()) for each in inputs)
    given = None if bias is None else bias.numpy()
    made = _native.op(unit, X, H0, U, V, C0=cell[0] if cell else None, bias=given, **options)
    return [torch.from_numpy(np.asarray(each)) for each in made]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", STORED)
@pytest.mark.parametrize(("unit", "biased"), DENSE)
def test_every_step_is_the_reference_step(unit: str, biased: bool, precision: str, isa: str) -> None:
    for T, B, D in [(1, 1, 1), (3, 2, 7), (2, 5, 64), (3, 3, 97), (2, 17, 130)]:
        inputs, bias = inputs_of(unit, T, B, D, biased)
        X, h, U, V, *cell = inputs
        wide = [each.to(STORED[precision]).double() for each in (U, V)]  # what the kernels multiply with
        biases = [] if bias is None else [bias.double()]
        for x in X:
            y, after, m, *after_cell = op(unit, [x[None], h, U, V, *cell], bias, precision=precision, isa=isa)
            assert torch.equal(y[0], after) and (m == 1).all()
            before = [each.double() for each in (x, h, *cell)]
            wanted = STEPS[unit](*before, *wide, *biases)
            bounds = step_bounds(unit, "f32", before[0], before[1], torch.ones_like(before[1]), wide, before[2:], bias)
            for got, want, bound in zip((after, *after_cell), wanted if cell else [wanted], bounds, strict=True):
                assert ((got - want).abs() - bound).max().item() <= 0
            h, cell = after, after_cell


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("unit", "biased"), DENSE)
def test_batches_threads_and_sequences_have_the_bits_of_single_steps(
    unit: str, biased: bool, precision: str, isa: str
) -> None:
    inputs, bias = inputs_of(unit, 3, 18, 97, biased)
    X, H0, U, V, *C0 = inputs
    options: dict[str, Any] = {"precision": precision, "isa": isa}
    whole = op(unit, inputs, bias, threads=2, **options)
    for n in (0, 17):
        alone = op(unit, [X[:, n : n + 1], H0[n : n + 1], U, V, *(each[n : n + 1] for each in C0)], bias, **options)
        assert torch.equal(whole[0][:, n], alone[0][:, 0])


def models(unit: str, biased: bool) -> Checkpoint:
    torch.manual_seed(3)
    config = {
        "unit": unit, "dim": 45, "layers": 2, "dropout": 0.0, "sharpness": 1.0, "epsilon": 1e-3, "kind": "text",
        "buffer": 0, "bias": biased,
    }  # fmt: skip
    network = LanguageModel(unit, len(VOCAB), 45, layers=2, bias=biased)
    return Checkpoint(config, VOCAB, network.state_dict(), {}, {})


@pytest.mark.parametrize("precision", QUANTIZED_PRECISIONS)
@pytest.mark.parametrize(("unit", "biased"), DENSE)
def test_quantized_units_have_the_bits_of_pytorch(unit: str, biased: bool, precision: str) -> None:
    model = build(models(unit, biased), precision=precision)
    source = OnnxSource("model.onnx", model.SerializeToString())  # type: ignore[arg-type]
    tokens = np.random.default_rng(0).integers(0, len(VOCAB), (12, 3))
    wanted = TorchModel(source.network(), VOCAB, precision).run(tokens)
    for isa in ISAS:
        for threads, table_bytes in ((1, 0), (2, 2**20)):
            native = NativeModel(source.weights(), VOCAB, unit=unit, precision=precision, threads=threads, isa=isa,
                                 table_bytes=table_bytes)  # fmt: skip
            assert bool(native.table_bytes) == bool(table_bytes)
            for one, other in zip(native.run(tokens), wanted, strict=True):
                assert np.array_equal(one, other)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("unit", "biased"), DENSE)
def test_a_file_and_its_checkpoint_are_the_same_model(unit: str, biased: bool, precision: str) -> None:
    """The file has ONNX's order and signs of gates."""
    checkpoint = models(unit, biased)
    model = build(checkpoint, precision=precision)
    (node, *_) = (each for each in model.graph.node if each.op_type == UNITS[unit].op)
    assert (node.input[3] != "") == biased
    source = OnnxSource("model.onnx", model.SerializeToString())  # type: ignore[arg-type]
    parameters = checkpoint.parameters()
    own = own_weights(unit, source.weights())
    for name, stored in own.items():
        if name.startswith("layers."):
            weight = parameters[f"unit.{name}"]
            kept = weight.ndim < 2  # biases are float32 in every precision
            largest = np.abs(weight).max(-1, keepdims=True) if precision in QUANTIZED_PRECISIONS else np.abs(weight)
            off = 0 if kept else 1.001 * PRECISIONS[precision].rounding * np.maximum(largest, 2.0**-14)
            assert (np.abs(stored.wide() - weight) <= off).all(), name
    if precision == "f32":
        tokens = np.random.default_rng(0).integers(0, len(VOCAB), (12, 3))
        of_file, of_checkpoint = (NativeModel(each, VOCAB, unit=unit) for each in (source.weights(), parameters))
        for one, other in zip(of_file.run(tokens), of_checkpoint.run(tokens), strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("unit", [name for name, unit in UNITS.items() if unit.biased])
def test_joined_biases_are_pytorchs(unit: str) -> None:
    torch.manual_seed(0)
    own = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[unit](7, 7)
    x, rows = torch.randn(1, 2, 7), torch.randn(UNITS[unit].state_rows, 1, 2, 7)
    with torch.no_grad():
        _, after = own(x, rows[0] if len(rows) == 1 else tuple(rows))
        bias = torch.from_numpy(joined_bias(unit, own.bias_ih_l0.numpy(), own.bias_hh_l0.numpy()))
        made = STEPS[unit](x[0], *rows[:, 0], own.weight_hh_l0, own.weight_ih_l0, bias)
    for one, other in zip([made] if len(rows) == 1 else made, [after] if len(rows) == 1 else after, strict=True):
        torch.testing.assert_close(one, other[0])


def test_what_is_wrong_is_said() -> None:
    inputs, bias = inputs_of("gru", 2, 2, 5, True)
    assert bias is not None
    with pytest.raises(ValueError, match=r"bias must have the shape \[20\], not \[15\]"):
        op("gru", inputs, bias[:15])
    with pytest.raises(ValueError, match="a bias is NaN"):
        op("gru", inputs, bias * torch.nan)
    with pytest.raises(ValueError, match="must hold U, V and at most a bias"):
        _native.op("gru", *(each.numpy() for each in inputs[:4]), *[bias.numpy()] * 3)
