"""Untrained checkpoints to export."""

from collections.abc import Callable

import pytest
import torch
from small_models import scheduled

from vcdeploy.training.checkpoint import Checkpoint
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

MakeCheckpoint = Callable[..., Checkpoint]


@pytest.fixture(scope="session")
def make_checkpoint() -> MakeCheckpoint:
    """Checkpoint(unit, dim, layers, sharpness)."""

    def make(unit: str, dim: int = 40, layers: int = 2, sharpness: float = 0.7) -> Checkpoint:
        torch.manual_seed(dim + layers)
        vocab = Vocabulary(["\n", " ", *"abcdeé𝄞"])
        model = scheduled(LanguageModel(unit, len(vocab), dim, layers=layers, sharpness=sharpness))
        config = {
            "unit": unit, "dim": dim, "layers": layers, "sharpness": sharpness, "epsilon": 1e-3, "precision": "f32",
            "kind": "text", "buffer": 0, "dropout": 0.0, "corpus": "demo",
        }  # fmt: skip
        return Checkpoint(config, vocab, model.state_dict(), {}, {"step": 7, "epoch": 1.5, "best": [0.0, -0.3]})

    return make
