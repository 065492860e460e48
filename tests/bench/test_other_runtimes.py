"""Runtimes that are only measured against compute what PyTorch computes."""

from pathlib import Path

import numpy as np
import pytest
from exported import VOCAB, exported

import vcdeploy
from vcdeploy.bench import other_runtimes
from vcdeploy.format.checksum import seal
from vcdeploy.spec import DENSE_UNITS


@pytest.mark.parametrize("unit", DENSE_UNITS)
@pytest.mark.parametrize("runtime", other_runtimes.RUNTIMES)
def test_they_agree_with_pytorch(tmp_path: Path, runtime: str, unit: str) -> None:
    pytest.importorskip(runtime)
    file = tmp_path / "model.onnx"
    file.write_bytes(seal(exported(unit)).SerializeToString())
    model, expected = other_runtimes.load(runtime, file, threads=1), vcdeploy.load(file, "torch")
    tokens = np.random.default_rng(0).integers(len(VOCAB), size=(7, 2))
    state = None
    for piece in (tokens[:5], tokens[5:6], tokens[6:]):  # several steps from zeros, then single ones
        found, right = model.run(piece, state), expected.run(piece, state)
        for each, other in zip(found, right, strict=True):
            # Sums of D = 40 products in float32, through two layers and five steps.
            np.testing.assert_allclose(each, other, atol=1e-5)
        state = right[1]
