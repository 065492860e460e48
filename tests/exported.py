"""A small exported model with random weights, for tests of model files, and a way to run a graph."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from small_models import scheduled

from vcdeploy.export import build
from vcdeploy.training.checkpoint import Checkpoint
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

VOCAB = Vocabulary("\n abcdé")
D = 40


def exported(unit: str = "vcgru", precision: str = "f32") -> ModelProto:
    torch.manual_seed(3)
    network = scheduled(LanguageModel(unit, len(VOCAB), D, layers=2, sharpness=0.5))
    config = {
        "unit": unit, "dim": D, "layers": 2, "sharpness": 0.5, "epsilon": 1e-3, "precision": "f32",
        "kind": "text", "buffer": 0, "dropout": 0.0, "corpus": "demo",
    }  # fmt: skip
    model: ModelProto = build(Checkpoint(config, VOCAB, network.state_dict(), {}, {"step": 1}), precision=precision)
    return model


def run_graph(runtime: str, model: ModelProto, tokens: NDArray[np.int64], state: NDArray[np.float32]) -> list[Any]:
    """Run a graph in ONNX Runtime or in onnx's evaluator: logits, state_out and compute."""
    feed = {"tokens": tokens, "state": state}
    if runtime == "evaluator":
        with np.errstate(all="ignore"):
            return list(ReferenceEvaluator(model).run(None, feed))
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))
