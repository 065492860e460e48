"""The maths, readable: scheduler, cells (the reference), modules, baselines, the language model."""

from vcdeploy.units.baselines import CRNN, GRU, LSTM, RNN
from vcdeploy.units.language_model import UNITS, VARIABLE_UNITS, LanguageModel
from vcdeploy.units.variable import VCGRU, VCLSTM, VCRNN

__all__ = [
    "CRNN",
    "GRU",
    "LSTM",
    "RNN",
    "UNITS",
    "VARIABLE_UNITS",
    "VCGRU",
    "VCLSTM",
    "VCRNN",
    "LanguageModel",
]
