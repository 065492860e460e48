"""Engines to compare with: other runtimes compute what PyTorch computes, and those named PyTorch are PyTorch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from exported import VOCAB, exported

import vcdeploy
from vcdeploy.bench import engines, other_runtimes
from vcdeploy.format.checksum import seal
from vcdeploy.spec import DENSE_UNITS, UNITS


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


@pytest.mark.parametrize("unit", [name for name, unit in UNITS.items() if unit.biased])  # those PyTorch has
def test_pytorchs_engines_run_pytorchs_modules(tmp_path: Path, unit: str) -> None:
    engine = engines.Engine(f"torch {unit}", "torch", unit, "model.onnx", engines.DENSE_FORM)
    (tmp_path / engine.file).write_bytes(seal(exported(unit)).SerializeToString())
    model = engines.load(engine, tmp_path, threads=1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        model.run(np.zeros((3, 1), np.int64))
    names = {event.name for event in profile.events()}
    assert not {name for name in names if name.startswith("vcdeploy::")}
    assert {name for name in names if name.startswith(f"aten::{unit}")}


@pytest.mark.parametrize("unit", ["gru", "lstm"])
def test_pytorchs_quantised_engines_run(tmp_path: Path, unit: str) -> None:
    engine = next(each for each in engines.peers() if each.name == f"torch {unit} int8")
    (tmp_path / engine.file).write_bytes(seal(exported(unit)).SerializeToString())
    logits, _, _ = engines.load(engine, tmp_path, threads=1).run(np.zeros((3, 1), np.int64))
    assert np.isfinite(logits).all()
