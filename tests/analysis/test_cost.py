"""Counted operations: against the paper's own equivalents, and by counting the products of a model."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vcdeploy import cost
from vcdeploy.cost import macs, rnn_d
from vcdeploy.reference import cells
from vcdeploy.reference.cells import SEQUENCES
from vcdeploy.spec import DENSE_UNITS, UNITS
from vcdeploy.units import GRU


def test_the_papers_equivalents() -> None:
    assert rnn_d("gru", 1024, [1024**2]) == pytest.approx(1450, abs=3)
    assert rnn_d("lstm", 1024, [1024**2]) == 2048
    assert rnn_d("rnn", 500, [500**2]) == 500
    assert rnn_d("vcrnn", 500, [100**2, 200**2]) == pytest.approx((100**2 + 200**2) ** 0.5)


def counted(run: Callable[..., object], *inputs: torch.Tensor) -> float:
    """Multiply-accumulates per step, as PyTorch counts them; inputs: X [T, B, D] and what else `run` takes."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        run(*inputs)
    return counter.get_total_flops() / 2 / inputs[0].shape[0] / inputs[0].shape[1]


@pytest.mark.parametrize("name", [name for name in DENSE_UNITS if name in SEQUENCES])
def test_dense_macs_are_the_products_of_the_reference(name: str) -> None:
    unit, D, B = UNITS[name], 16, 3
    weights = [torch.zeros(len(unit.gates) * D, D)] * 2
    h, *c = [torch.zeros(B, D)] * unit.state_rows
    assert counted(SEQUENCES[name], torch.zeros(5, B, D), h, *weights, *c) == macs(name, D, [float(D**2)])


def test_macs_of_a_gru_are_the_products_of_pytorchs() -> None:
    assert counted(GRU(16, layers=2), torch.zeros(5, 3, 16)) == macs("gru", 16, [256.0, 256.0])


def test_variable_macs_are_products_and_scheduler() -> None:
    assert macs("vcrnn", 100, [40.0**2]) == 2 * 1600 + 200
    assert macs("vcgru", 100, [40.0**2]) == 6 * 1600 + 200
    assert macs("vclstm", 100, [40.0**2, 100.0]) == 8 * 1700 + 400


def test_crnn_pays_for_its_slow_layer_at_boundaries_only() -> None:
    assert macs("crnn", 10, [100.0, 0.0]) == 200
    assert rnn_d("crnn", 10, [100.0, 0.0]) == 10
    assert macs("crnn", 10, [100.0, 100.0]) == 500


def test_every_unit_has_a_cost() -> None:
    for unit in UNITS:
        assert macs(unit, 10, [100.0, 100.0]) >= 2 * 100 and rnn_d(unit, 10, [100.0, 100.0]) >= 10


@pytest.mark.parametrize("dim", [1, 7, 97, 256])
@pytest.mark.parametrize("sharpness", [0.1, 1.0])
def test_active_dimensions_are_those_of_the_reference(dim: int, sharpness: float) -> None:
    m = np.random.default_rng(0).uniform(size=500)
    config = {"dim": dim, "sharpness": sharpness, "epsilon": 1e-3}
    e = cells.mask(torch.from_numpy(m), dim, sharpness, 1e-3)
    assert (cost.active(m, config) == (e > 0).sum(-1).numpy()).all()
    assert (cost.certain(m, config) == (e == 1).sum(-1).numpy()).all()
