"""Peak memory of loading a model, measured in a separate process."""

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import torch
from small_models import scheduled

from vcdeploy.export import build
from vcdeploy.runtime import backends
from vcdeploy.spec import PRECISIONS
from vcdeploy.training.checkpoint import Checkpoint
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

VOCAB = Vocabulary("\n abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV")

# The small model is loaded first, so that the peak does not include imports.
MEASURE = """
import json, sys
import vcdeploy

def kilobytes(name):
    (line,) = (each for each in open("/proc/self/status") if each.startswith(name))
    return int(line.split()[1])

small, large = sys.argv[1:]
vcdeploy.load(small, "native")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # reset the peak
before = kilobytes("VmRSS")
model = vcdeploy.load(large, "native")
peak = (kilobytes("VmHWM") - before) * 1024
held = (kilobytes("VmRSS") - before) * 1024
print(json.dumps([peak, held, model.runner.weight_bytes, model.runner.table_bytes]))
"""


def write(path: Path, dim: int, precision: str, layers: int = 1) -> Path:
    torch.manual_seed(0)
    network = scheduled(LanguageModel("vcgru", len(VOCAB), dim, layers=layers))
    config = {
        "unit": "vcgru", "dim": dim, "layers": layers, "sharpness": 1.0, "epsilon": 1e-3, "precision": "f32",
        "kind": "text", "buffer": 0, "dropout": 0.0, "corpus": "demo",
    }  # fmt: skip
    checkpoint = Checkpoint(config, VOCAB, network.state_dict(), {}, {"step": 1})
    onnx.save(build(checkpoint, precision=precision), path)
    return path


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_load_takes_at_most_two_and_a_half_times_the_packed_weights(precision: str, tmp_path: Path) -> None:
    if (fault := backends.native_fault()) is not None:
        pytest.skip(f"needs the native module: {fault}")
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs Linux: /proc/self/clear_refs resets the peak")
    files = [write(tmp_path / f"{dim}.onnx", dim, precision) for dim in (16, 1024)]
    result = subprocess.run([sys.executable, "-c", MEASURE, *map(str, files)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    peak, held, weights, table = json.loads(result.stdout)
    print(f"{precision}: peak {peak:,}, held {held:,}, weights {weights:,}, table {table:,}, "
          f"peak - table = {(peak - table) / weights:.2f} weights")  # fmt: skip
    assert weights >= 6 * 1024**2 * PRECISIONS[precision].bytes
    assert held > 0.9 * (weights + table)  # otherwise the peak is not that of this load
    assert peak <= 2.5 * weights + table
