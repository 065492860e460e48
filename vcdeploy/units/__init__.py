"""The units as PyTorch modules: variable units, dense baselines, and a language model on top of either."""

from vcdeploy.units.baselines import CRNN, GRU, LSTM, RNN, GRUResetFirst
from vcdeploy.units.language_model import LanguageModel
from vcdeploy.units.variable import VCGRU, VCLSTM, VCRNN

__all__ = ["CRNN", "GRU", "LSTM", "RNN", "VCGRU", "VCLSTM", "VCRNN", "GRUResetFirst", "LanguageModel"]
