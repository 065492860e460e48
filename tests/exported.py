"""A small exported model with random weights, for tests of model files."""

import torch
from onnx import ModelProto
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
