"""The PyTorch backend: a language model of vcdeploy.units behind the common interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from vcdeploy.runtime import int8
from vcdeploy.runtime.backends import PythonLoop
from vcdeploy.spec import PRECISIONS
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

if TYPE_CHECKING:
    from vcdeploy.runtime.sources import Source


class TorchModel(PythonLoop):
    """A language model of vcdeploy.units; runs on the device of its weights.

    precision: int8 and w8a8 round activations, as the native backend does; the weights are used as they are.
    """

    backend = "torch"

    def __init__(self, model: LanguageModel, vocab: Vocabulary, precision: str = "f32") -> None:
        self.model, self.vocab = model.eval(), vocab
        self._precision = precision

    @torch.no_grad()
    def run(
        self, tokens: NDArray[np.int64], state: NDArray[np.float32] | None = None, position: int = 0
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """tokens [T, B], state [S, B, D] -> logits [T, B, vocab], state [S, B, D], m [T, B, layers].

        position: number of symbols processed so far; the CRNN on bits needs it to know where characters end.
        """
        device = next(self.model.parameters()).device
        boundaries = None
        if self.model.unit_name == "crnn":
            boundaries = torch.from_numpy(self.vocab.boundaries(tokens, position)).to(device)
        ids = torch.from_numpy(tokens).to(device)
        before = None if state is None else torch.from_numpy(state).to(device)
        if PRECISIONS[self._precision].levels:
            logits, after, m = int8.run(self.model, self._precision, ids, before)
        else:
            logits, after, m = self.model(ids, before, boundaries)
        return logits.cpu().numpy(), after.cpu().numpy(), m.cpu().numpy()


def start(source: Source, precision: str, threads: int, variant: str) -> TorchModel:
    """Entry point for the registry."""
    torch.set_num_threads(threads)
    return TorchModel(source.network(), source.vocab, precision)
