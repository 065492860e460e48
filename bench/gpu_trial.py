"""One trial of gpu_check.py in its own process: a model on a GPU backend, compared with PyTorch step by step.

The argument is JSON: backend, unit, dim, precision, path. The last line of the output is JSON: state, detail, data.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from vcdeploy.bench import models
from vcdeploy.errors import VcdeployError
from vcdeploy.export.parity import check_runtime
from vcdeploy.runtime import sources
from vcdeploy.runtime.model import load
from vcdeploy.runtime.sampling import Sampling
from vcdeploy.runtime.session import generate

BATCHES = (1, 4)  # with one sequence, a block of the grid may continue without the others
LENGTH = 200  # symbols of generated text to compare


def main(case: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="vcdeploy-gpu-trial-") as folder:
        data: dict[str, Any] = {}
        try:
            state, detail = _trial(case, Path(folder), data)
        except VcdeployError as error:
            # The plugin's message if this GPU does not support the forced path.
            unable = case["path"] != "auto" and re.search(r"the path \w+ needs", str(error)) is not None
            state, detail = "skipped" if unable else "failed", str(error)
    return {"state": state, "detail": detail, "data": data}


def _trial(case: dict[str, Any], folder: Path, data: dict[str, Any]) -> tuple[str, str]:
    """The state and its detail; details of the trial are added to data."""
    made = models.synthetic(case["unit"], case["dim"], 0.05, 0.95, seed=1)
    file = folder / "model.onnx"
    made.write(file, precision=case["precision"])
    runner = _engine(file) if case["backend"] == "tensorrt" else load(file, case["backend"]).runner
    data["runs"] = runner.detail
    network = sources.network_of(file.read_bytes(), str(file))
    differences = [each for batch in BATCHES for each in check_runtime(f"B = {batch}", runner, network, batch)]
    data["differences"] = [asdict(each) for each in differences]
    for each in differences:
        if not each.within:
            apart = f"difference {each.largest:.2g}, tolerance {each.tolerance:.2g}"
            return "failed", f"{each.output} against {each.against}, {each.runtime}, {apart}"
    if "no CUDA graph" in runner.detail:
        return "failed", runner.detail
    if case["backend"] == "tensorrt" and case["precision"] == "f32":
        wanted = list(load(file, "native").generate([0], LENGTH, seed=1))
        if [token.id for token in generate(runner, np.array([0]), LENGTH, Sampling(seed=1))] != wanted:
            return "failed", "the generated text differs from that of the native kernels"
    return "passed", runner.detail


def _engine(file: Path) -> Any:
    from vcdeploy.gpu import plugin_files
    from vcdeploy.gpu.engine import build_engine
    from vcdeploy.gpu.plugin_graph import plugin_graph
    from vcdeploy.gpu.tensorrt import TensorRtModel

    source = sources.open_source(file)
    ranges = {"steps": (1, 24, 64), "batch": (1, 1, max(BATCHES))}
    graph = plugin_graph(onnx.load(file)).SerializeToString()
    built = build_engine(graph, source.config, ranges["steps"], ranges["batch"], plugin_files.library())
    return TensorRtModel(built.plan, file.parent, ranges, source.config, source.vocab)


if __name__ == "__main__":
    print("\n" + json.dumps(main(json.loads(sys.argv[1]))))
