"""The closed form of a² agrees with the reference's mask."""

import pytest
import torch

from vcdeploy.reference.cells import active
from vcdeploy.training.metrics import squares_of


@pytest.mark.parametrize("sharpness", [0.1, 0.4, 1.0])
@pytest.mark.parametrize("dim", [1, 7, 256])
def test_squares_are_those_of_the_active_dimensions(dim: int, sharpness: float) -> None:
    m = torch.rand(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(squares_of(m, dim, (sharpness, 1e-3)), active(m, dim, sharpness, 1e-3).double() ** 2)
