"""The language model around a unit: embedding, stack, output layer."""

from torch import Tensor, nn

from vcdeploy.units.baselines import CRNN, GRU, LSTM, RNN
from vcdeploy.units.variable import VCGRU, VCLSTM, VCRNN, VariableUnit

VARIABLE_UNITS: dict[str, type[VariableUnit]] = {"vcrnn": VCRNN, "vcgru": VCGRU, "vclstm": VCLSTM}
DENSE_UNITS: dict[str, type[RNN | GRU | LSTM]] = {"rnn": RNN, "gru": GRU, "lstm": LSTM}
UNITS = (*VARIABLE_UNITS, *DENSE_UNITS, "crnn")


class LanguageModel(nn.Module):
    """Symbols in, logits of the next symbol out.

    forward: tokens [T, B] int64, state [S, B, D] or None, boundaries [T, B] (CRNN only)
    -> logits [T, B, vocab], state [S, B, D], m [T, B, layers].
    """

    def __init__(
        self,
        unit: str,
        vocab_size: int,
        dim: int,
        layers: int = 1,
        *,
        dropout: float = 0.0,
        sharpness: float = 1.0,
        epsilon: float = 1e-3,
        initial_share: float = 0.5,
    ) -> None:
        super().__init__()
        self.unit: VariableUnit | RNN | GRU | LSTM | CRNN
        if unit in VARIABLE_UNITS:
            self.unit = VARIABLE_UNITS[unit](
                dim,
                layers,
                dropout=dropout,
                sharpness=sharpness,
                epsilon=epsilon,
                initial_share=initial_share,
            )
        elif unit in DENSE_UNITS:
            self.unit = DENSE_UNITS[unit](dim, layers, dropout=dropout)
        elif unit == "crnn":
            if layers != 1:
                raise ValueError(f"crnn is one fast and one slow layer: layers must be 1, not {layers}")
            self.unit = CRNN(dim)
        else:
            raise ValueError(f"no unit {unit!r}: choose from {', '.join(UNITS)}")
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
        else:
            y, state, m = self.unit(x, state)
        return self.output(self.dropout(y)), state, m
