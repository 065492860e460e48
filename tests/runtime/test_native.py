"""The native backend: the same results as the PyTorch backend for the same weights."""

import subprocess
import sys
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from small_models import scheduled

from vcdeploy import _native
from vcdeploy.errors import VcdeployError
from vcdeploy.reference.cells import active
from vcdeploy.runtime.backends import RunSequences, Sequences
from vcdeploy.runtime.native import NativeModel
from vcdeploy.runtime.sampling import Sampling, Token
from vcdeploy.runtime.session import generate, generate_pieces
from vcdeploy.runtime.torch import TorchModel
from vcdeploy.spec import PRECISIONS, VARIABLE_UNITS
from vcdeploy.training.checkpoint import Checkpoint
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

VOCAB = Vocabulary("\n abcdefgh")
D, SHARPNESS, EPSILON = 24, 0.5, 1e-3


def trained(unit: str, layers: int = 2) -> tuple[Checkpoint, TorchModel]:
    """A checkpoint, and the same model in PyTorch in double precision."""
    torch.manual_seed(0)
    model = scheduled(LanguageModel(unit, len(VOCAB), D, layers=layers, sharpness=SHARPNESS, epsilon=EPSILON))
    config = {"unit": unit, "dim": D, "layers": layers, "sharpness": SHARPNESS, "epsilon": EPSILON}
    weights = {name: each.clone() for name, each in model.state_dict().items()}
    return Checkpoint(config, VOCAB, weights, {}, {}), TorchModel(model.double(), VOCAB)


def native(checkpoint: Checkpoint, **options: Any) -> NativeModel:
    return NativeModel(
        checkpoint.model, VOCAB, unit=checkpoint.config["unit"], sharpness=SHARPNESS, epsilon=EPSILON, **options
    )


@pytest.mark.parametrize("table_bytes", [0, 2**20])
@pytest.mark.parametrize("unit", VARIABLE_UNITS)
def test_the_model_is_the_pytorch_model(unit: str, table_bytes: int) -> None:
    checkpoint, reference = trained(unit)
    model = native(checkpoint, table_bytes=table_bytes)
    assert model.backend == "native" and model.vocab is VOCAB and (model.table_bytes > 0) == (table_bytes > 0)
    T, tokens = 4, np.random.default_rng(0).integers(0, len(VOCAB), (4, 3))
    logits, state, m = model.run(tokens)
    wanted_logits, wanted_state, wanted_m = reference.run(tokens)
    assert (logits.shape, state.shape, m.shape) == (wanted_logits.shape, wanted_state.shape, wanted_m.shape)
    for each in (m, wanted_m):  # with another a the two are not comparable
        a = active(torch.from_numpy(each).double(), D, SHARPNESS, EPSILON)
        assert torch.equal(a, active(torch.from_numpy(wanted_m), D, SHARPNESS, EPSILON))
    # A step rounds sums of 2 D products; an error is then amplified by at most the slope of the mask,
    # sharpness · D / 4 (docs/design.md, 5), plus 1 for the unit itself.
    bound = 2.0**-24 * (2 * D) ** 0.5 * (1 + SHARPNESS * D / 4) ** T
    for name, got, want in (("logits", logits, wanted_logits), ("state", state, wanted_state), ("m", m, wanted_m)):
        assert np.abs(got - want).max() <= bound, name


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_run_resumes_from_its_state(precision: str) -> None:
    model = native(trained("vclstm")[0], precision=precision)
    tokens = np.random.default_rng(0).integers(0, len(VOCAB), (9, 2))
    whole = model.run(tokens)
    first = model.run(tokens[:4])
    rest = model.run(tokens[4:], first[1], position=4)
    assert np.array_equal(np.concatenate([first[0], rest[0]]), whole[0])
    assert np.array_equal(rest[1], whole[1])
    assert np.array_equal(np.concatenate([first[2], rest[2]]), whole[2])


@pytest.mark.parametrize("unit", VARIABLE_UNITS)
@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.0}, {"temperature": 1.2, "top_k": 5, "top_p": 0.9, "seed": 7}]
)
def test_generate_is_that_of_every_backend(unit: str, settings: dict[str, Any]) -> None:
    """Generates 150 symbols, which take three native calls."""
    checkpoint, reference = trained(unit)
    model = native(checkpoint)
    prime = np.array([3, 1, 4, 1, 5])
    pieces = list(generate_pieces(model.sequences(1), prime, 150, Sampling(**settings)))
    assert [len(piece) for piece in pieces] == [64, 64, 22]
    made = list(chain.from_iterable(pieces))

    def tokens(sequences: Sequences, length: int) -> list[Token]:
        return list(chain.from_iterable(generate_pieces(sequences, prime, length, Sampling(**settings))))

    assert tokens(RunSequences(model, 1), 150) == made
    assert [token.id for token in tokens(reference.sequences(1), 150)] == [token.id for token in made]
    assert tokens(model.sequences(1), 65) == made[:65]
    assert tokens(model.sequences(1), 0) == []


@pytest.mark.parametrize("unit", VARIABLE_UNITS)
def test_plain_arrays_by_the_names_of_a_model_file(unit: str) -> None:
    checkpoint, _ = trained(unit)
    renamed = {"embedding.weight": "embedding"}
    weights = {renamed.get(n, n.removeprefix("unit.")): each.numpy() for n, each in checkpoint.model.items()}
    assert {"embedding", "layers.0.U", "layers.1.b", "output.weight", "output.bias"} <= set(weights)
    model = NativeModel(weights, VOCAB, unit=unit, sharpness=SHARPNESS, epsilon=EPSILON)
    other = native(checkpoint)
    tokens = np.array([[1], [2]])
    for one, same in zip(model.run(tokens), other.run(tokens), strict=True):
        assert np.array_equal(one, same)


def test_an_instruction_set_can_be_selected() -> None:
    checkpoint, _ = trained("vcgru")
    assert native(checkpoint).detail == _native.instruction_sets()[0]
    assert native(checkpoint, isa="portable").detail == "portable"


def test_what_is_wrong_is_said() -> None:
    checkpoint, _ = trained("vcgru")
    with pytest.raises(VcdeployError, match="doesn't run 'crnn'"):
        NativeModel({}, VOCAB, unit="crnn")
    part = {name: each for name, each in checkpoint.model.items() if name != "unit.layers.1.V"}
    with pytest.raises(VcdeployError, match=r"no weights named 'layers\.1\.V'"):
        NativeModel(part, VOCAB, unit="vcgru")
    with pytest.raises(VcdeployError, match=r"layers.0.U must have the shape \[24, 24\], not \[72, 24\]"):
        NativeModel(checkpoint.model, VOCAB, unit="vcrnn")
    with pytest.raises(VcdeployError, match="10 embeddings and its vocabulary 3 symbols"):
        NativeModel(checkpoint.model, Vocabulary("abc"), unit="vcgru")
    model = native(checkpoint)
    with pytest.raises(VcdeployError, match="tokens holds 10, but the ids here are 0 to 9"):
        model.run(np.array([[10]]))
    with pytest.raises(VcdeployError, match="has read nothing to go on from"):
        list(generate(model, np.array([], np.int64), 3, Sampling()))
    with pytest.raises(VcdeployError, match="top_p"):
        Sampling(top_p=2.0)


def test_it_imports_no_framework() -> None:
    code = "import sys, vcdeploy.runtime.native; print(sorted({'torch', 'onnx', 'safetensors'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
