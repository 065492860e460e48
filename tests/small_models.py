"""Small untrained in-memory models of every kind, for tests that process model outputs."""

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from vcdeploy.music import notation
from vcdeploy.runtime.backends import PythonLoop
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.torch import TorchModel
from vcdeploy.training import checkpoint
from vcdeploy.units import LanguageModel
from vcdeploy.units.baselines import initial_state
from vcdeploy.units.variable import VariableLayer, VariableUnit
from vcdeploy.vocabulary import Vocabulary

Network = TypeVar("Network", bound=nn.Module)

D = 12
TEXT = Vocabulary("\n abcdefghimnoprst.-&<>/")
BITS = Vocabulary("01", "bits", 8)
TUNE = "M:6/8 K:Gmaj |: G2 A B2 d | e/2 f/2 g g2 z2 :|"
MUSIC = Vocabulary([*dict.fromkeys(TUNE.split()), notation.END], "music")


def config(unit: str, layers: int, vocab: Vocabulary) -> dict[str, Any]:
    return {
        "unit": unit, "dim": D, "layers": layers, "sharpness": 2.0, "epsilon": 1e-3, "precision": "f32",
        "kind": vocab.kind, "buffer": vocab.buffer, "dropout": 0.0, "corpus": "demo",
    }  # fmt: skip


def scheduled(untrained: Network) -> Network:
    """Randomize u and v like the other weights, so that m depends on the symbol as in a trained model."""
    for layer in untrained.modules():
        if isinstance(layer, VariableLayer):
            for weight in (layer.u, layer.v):
                nn.init.uniform_(weight, -(len(weight) ** -0.5), len(weight) ** -0.5)
    return untrained


def network(unit: str, layers: int, vocab: Vocabulary) -> LanguageModel:
    """An untrained network with large embeddings, so that m differs from symbol to symbol."""
    torch.manual_seed(6)
    made = scheduled(LanguageModel(unit, len(vocab), D, layers=layers, sharpness=2.0))
    with torch.no_grad():
        made.embedding.weight.mul_(3)
    return made


def model(unit: str = "vcgru", layers: int = 1, vocab: Vocabulary = TEXT) -> Model:
    runner = TorchModel(network(unit, layers, vocab), vocab)
    return Model("torch", config(unit, layers, vocab), vocab, "f32", "small", runner)


class Told(PythonLoop):
    """A backend that returns prescribed logits [T, vocab] and m [T]; its state counts the steps."""

    def __init__(self, logits: NDArray[Any], m: NDArray[Any]) -> None:
        self.logits, self.m = logits, m

    def run(self, tokens: NDArray[np.int64], state: Any = None, position: int = 0) -> tuple[Any, Any, Any]:
        now = slice(position, position + len(tokens))
        after = np.full((1, 1, D), position + len(tokens), np.float32)
        return self.logits[now, None].astype(np.float32), after, self.m[now, None, None].astype(np.float32)


def told(vocab: Vocabulary, logits: NDArray[Any], m: NDArray[Any]) -> Model:
    return Model("torch", config("vcgru", 1, vocab), vocab, "f32", "told", Told(logits, m))


def write_checkpoint(path: Path, unit: str = "vcgru", dim: int = 32, layers: int = 1) -> Path:
    """Write a checkpoint of an untrained model; returns its path."""
    torch.manual_seed(4)
    vocab = Vocabulary(["\n", " ", *"abcde"])
    untrained = scheduled(LanguageModel(unit, len(vocab), dim, layers=layers, sharpness=0.6))
    described = config(unit, layers, vocab) | {"dim": dim, "sharpness": 0.6}
    checkpoint.write(path, checkpoint.Checkpoint(described, vocab, untrained.state_dict(), {}, {"step": 1}))
    return path


def stack(unit: Any, dim: int, layers: int = 1, **settings: Any) -> Any:
    """A unit with the interface of the dense ones: x [T, B, D], state [S, B, D] -> y, state, m."""
    if not issubclass(unit, VariableUnit):
        return unit(dim, layers=layers, **settings)

    def forward(self: Any, x: torch.Tensor, state: torch.Tensor | None = None) -> Any:
        return self.stacked(x, initial_state(self, x, state))

    return type(unit.__name__, (unit,), {"forward": forward})(dim, num_layers=layers, **settings)
