"""The language model on top of a unit: embedding, recurrent layers, output layer."""

from torch import Tensor, nn

from vcdeploy.units.baselines import CRNN, GRU, LSTM, RNN, DenseUnit, GRUResetFirst, initial_state
from vcdeploy.units.variable import VCGRU, VCLSTM, VCRNN, VariableUnit

MODULES: dict[str, type[VariableUnit | DenseUnit | CRNN]] = {
    module.spec.name: module for module in (VCRNN, VCGRU, VCLSTM, RNN, GRUResetFirst, GRU, LSTM, CRNN)
}


class LanguageModel(nn.Module):
    """Predicts the next symbol: tokens in, logits out.

    forward: tokens [T, B] int64, state [S, B, D] or None, boundaries [T, B] (CRNN only)
    -> logits [T, B, vocab], state [S, B, D], m [T, B, layers].
    """

    def __init__(
        self,
        unit: str,
        vocab_size: int,
        dim: int,
        *,
        layers: int = 1,
        dropout: float = 0.0,
        sharpness: float = 1.0,
        epsilon: float = 1e-3,
        initial_m: float = 0.5,
        bias: bool = False,
    ) -> None:
        super().__init__()
        module = MODULES.get(unit)
        if module is None:
            raise ValueError(f"no unit {unit!r}: choose from {', '.join(MODULES)}")
        self.unit: VariableUnit | DenseUnit | CRNN
        if issubclass(module, VariableUnit):
            self.unit = module(
                dim,
                num_layers=layers,
                dropout=dropout if layers > 1 else 0.0,
                sharpness=sharpness,
                epsilon=epsilon,
                initial_m=initial_m,
            )
        elif issubclass(module, DenseUnit):
            self.unit = module(dim, layers=layers, dropout=dropout, bias=bias)
        else:
            if layers != 1:
                raise ValueError(f"crnn has one fast and one slow layer: layers must be 1, not {layers}")
            self.unit = module(dim)
        self.unit_name = unit
        self.embedding = nn.Embedding(vocab_size, dim)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(dim, vocab_size)

    @property
    def has_scheduler(self) -> bool:
        return self.unit.has_scheduler

    @property
    def sharpness(self) -> float:
        return self.unit.sharpness if isinstance(self.unit, VariableUnit) else 1.0

    @sharpness.setter
    def sharpness(self, value: float) -> None:
        if isinstance(self.unit, VariableUnit):
            self.unit.sharpness = value

    def forward(
        self, tokens: Tensor, state: Tensor | None = None, boundaries: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = self.dropout(self.embedding(tokens))
        if isinstance(self.unit, CRNN):
            y, state, m = self.unit(x, state, boundaries)
        elif isinstance(self.unit, VariableUnit):
            y, state, m = self.unit.stacked(x, initial_state(self.unit, x, state))
        else:
            y, state, m = self.unit(x, state)
        return self.output(self.dropout(y)), state, m
