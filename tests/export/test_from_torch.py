"""A language model of PyTorch's own modules, imported and run natively: PyTorch's own output."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import vcdeploy
from vcdeploy import VcdeployError

SYMBOLS = list("abcdefghijk")
UNITS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


class Network(nn.Module):
    def __init__(self, unit: str, layers: int, bias: bool, embedding: int = 24, dim: int = 24) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Embedding(len(SYMBOLS), embedding)
        self.recurrent = UNITS[unit](embedding, dim, num_layers=layers, bias=bias)
        self.decoder = nn.Linear(dim, len(SYMBOLS))

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.decoder(self.recurrent(self.encoder(tokens))[0])
        return logits


@pytest.mark.parametrize("embedding", [24, 13])
@pytest.mark.parametrize(("layers", "bias"), [(1, False), (2, True)])
@pytest.mark.parametrize("unit", UNITS)
def test_it_computes_what_pytorch_does(unit: str, layers: int, bias: bool, embedding: int, tmp_path: Path) -> None:
    network = Network(unit, layers, bias, embedding)
    onnx.save(vcdeploy.from_torch(network.state_dict(), SYMBOLS), tmp_path / "model.onnx")
    tokens = np.random.default_rng(0).integers(0, len(SYMBOLS), (20, 3))
    with torch.no_grad():
        wanted = network(torch.from_numpy(tokens)).numpy()
    for backend in ("auto", "onnxruntime", "torch"):
        model = vcdeploy.load(tmp_path / "model.onnx", backend)
        assert backend != "auto" or model.backend == "native"
        # Rounding of sums of 2D products over T steps; the derivative of a step is below 1.
        assert np.abs(model.run(tokens)[0] - wanted).max() <= 20 * 2.0**-24 * 48 * max(1, np.abs(wanted).max())


def test_errors_name_the_key_and_the_shape() -> None:
    def refused(message: str, **changed: Tensor | None) -> None:
        state = {**Network("gru", 2, True).state_dict(), **{name.replace("__", "."): v for name, v in changed.items()}}
        with pytest.raises(VcdeployError, match=message):
            vcdeploy.from_torch({name: each for name, each in state.items() if each is not None}, SYMBOLS)

    narrow = torch.zeros(72, 23)
    refused(r"recurrent\.weight_hh_l1 has the shape \[72, 23\], not \[72, 24\]", recurrent__weight_hh_l1=narrow)
    refused(r"recurrent\.weight_hh_l0 has the shape \[70, 24\]", recurrent__weight_hh_l0=torch.zeros(70, 24))
    refused(r"no recurrent\.bias_hh_l1", recurrent__bias_hh_l1=None)
    refused("bidirectional", recurrent__weight_ih_l0_reverse=torch.zeros(72, 24))
    refused(r"recurrent\.weight_ih_l0 has the shape \[72, 30\]: inputs", recurrent__weight_ih_l0=torch.zeros(72, 30))
    refused(r"nn\.Linear.*decoder\.weight \[11, 23\]", decoder__weight=torch.zeros(11, 23))
    refused(r"one nn\.Embedding of 11 symbols", encoder__weight=torch.zeros(12, 24))
    with pytest.raises(VcdeployError, match="no weight_hh_l0"):
        vcdeploy.from_torch({}, SYMBOLS)
    for bias in ("bias_ih", "bias_hh"):
        refused(f"no recurrent\\.{bias}_l0", **{f"recurrent__{bias}_l{layer}": None for layer in (0, 1)})
    refused("weight_hh_l0 has the shape", recurrent__weight_hh_l0=torch.zeros(72))
    refused("weight_hh_l0 has the shape", recurrent__weight_hh_l0=torch.zeros(0, 0))
    refused("decoder.bias of the state_dict is not a dense tensor", decoder__bias=torch.zeros(11, dtype=torch.cfloat))
    refused("decoder.bias of the state_dict is not a dense tensor", decoder__bias=torch.zeros(11, device="meta"))
    refused("extra of the state_dict is not a dense tensor", extra={"a": 1})  # type: ignore[arg-type]


def test_other_arguments_are_refused() -> None:
    network = Network("gru", 1, True)
    with pytest.raises(VcdeployError, match=r"network\.state_dict\(\), not a Network"):
        vcdeploy.from_torch(network, SYMBOLS)  # type: ignore[arg-type]
    with pytest.raises(VcdeployError, match="no precision 'f64'"):
        vcdeploy.from_torch(network.state_dict(), SYMBOLS, precision="f64")
    with pytest.raises(VcdeployError, match="symbols must be strings"):
        vcdeploy.from_torch(network.state_dict(), b"abcdefghijk")  # type: ignore[arg-type]
