"""Imports a language model of PyTorch's own modules: nn.Embedding, nn.RNN, nn.GRU or nn.LSTM, and nn.Linear."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vcdeploy.errors import VcdeployError
from vcdeploy.format.precision import Array
from vcdeploy.spec import PRECISIONS
from vcdeploy.vocabulary import Vocabulary

if TYPE_CHECKING:
    from onnx import ModelProto

UNITS_BY_GATES = {1: "rnn", 3: "gru", 4: "lstm"}
RECURRENT = re.compile(r"(.*?)(weight_ih|weight_hh|bias_ih|bias_hh)_l(\d+)(.*)")


def from_torch(state_dict: Mapping[str, Any], symbols: Sequence[str], *, precision: str = "f32") -> ModelProto:
    """The ONNX model of a state_dict with an nn.Embedding, an nn.RNN (tanh), nn.GRU or nn.LSTM, and an nn.Linear.

    The recurrent module may have several layers and biases; it is found by the names of its weights, the other two by
    their shapes. symbols: by id. Embeddings may be smaller than the state: zeros are appended. Whatever else the
    network does, a relu for instance, is not in its state_dict: compare the outputs.

    Examples:
        >>> onnx.save(vcdeploy.from_torch(network.state_dict(), symbols), "model.onnx")
        >>> model = vcdeploy.load("model.onnx")
    """
    from vcdeploy.format.graph import assemble

    if not isinstance(state_dict, Mapping):
        raise VcdeployError(f"from_torch takes network.state_dict(), not a {type(state_dict).__name__}")
    symbols = list(symbols)
    if not all(isinstance(each, str) for each in symbols):
        raise VcdeployError("symbols must be strings, by id")
    if precision not in PRECISIONS:
        raise VcdeployError(f"no precision {precision!r}; choose from {', '.join(PRECISIONS)}")
    arrays = {name: _array(name, each) for name, each in state_dict.items()}
    recurrent = {name: found for name in arrays if (found := RECURRENT.fullmatch(name))}
    first = next((name for name, found in recurrent.items() if found[2] == "weight_hh" and found[3] == "0"), None)
    if first is None:
        raise VcdeployError(f"the state_dict has no weight_hh_l0 of an nn.RNN, nn.GRU or nn.LSTM: {sorted(arrays)}")
    rows, dim = arrays[first].shape if arrays[first].ndim == 2 and arrays[first].size else (1, 2)
    unit = UNITS_BY_GATES.get(rows // dim)
    if unit is None or rows % dim:
        raise VcdeployError(f"{first} has the shape {list(arrays[first].shape)}, not [D, D], [3·D, D] or [4·D, D]")
    parameters = _others({name: each for name, each in arrays.items() if name not in recurrent}, len(symbols), dim)
    for name, found in recurrent.items():
        if found[1] != recurrent[first][1] or found[4]:
            raise VcdeployError(f"{name} belongs to a second or bidirectional recurrent module: only one can be run")
        array = arrays[name]
        if found[2] == "weight_ih" and found[3] == "0":
            array = _widened(name, array, dim)
        wanted = (rows, dim) if found[2].startswith("weight") else (rows,)
        if array.shape != wanted:
            raise VcdeployError(f"{name} has the shape {list(array.shape)}, not {list(wanted)} as {first} implies")
        parameters[f"unit.layers.{found[3]}.{found[2]}_l0"] = array
    layers = 1 + max(int(found[3]) for found in recurrent.values())
    biased = any(found[2].startswith("bias") for found in recurrent.values())
    for layer in range(layers):
        for part in ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if biased else ())):
            if f"unit.layers.{layer}.{part}_l0" not in parameters:
                raise VcdeployError(f"the state_dict has no {recurrent[first][1]}{part}_l{layer}")
    config = {
        "unit": unit, "dim": dim, "layers": layers, "sharpness": 1.0, "epsilon": 1e-3, "precision": precision,
        "kind": "text", "buffer": 0, "bias": biased,
    }  # fmt: skip
    return assemble(config, Vocabulary(symbols, "text"), parameters)


def _array(name: str, tensor: Any) -> Array:
    try:
        if tensor.is_complex():
            raise TypeError("it is complex")
        return np.asarray(tensor.detach().float().cpu().numpy(), np.float32)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError) as error:
        raise VcdeployError(f"{name} of the state_dict is not a dense tensor of real numbers: {error}") from error


def _others(arrays: dict[str, Array], vocab: int, dim: int) -> dict[str, Array]:
    """The embedding and the output layer."""
    with_bias = [name for name in arrays if name.removesuffix("weight") + "bias" in arrays]
    outputs = [name for name in with_bias if arrays[name].shape == (vocab, dim)]
    if len(outputs) != 1:
        raise VcdeployError(f"need one nn.Linear with a bias, of the shape [{vocab}, {dim}]: {_shapes(arrays)}")
    bias = outputs[0].removesuffix("weight") + "bias"
    embeddings = [name for name in arrays if name not in (outputs[0], bias)]
    if len(embeddings) != 1 or arrays[embeddings[0]].shape[:1] != (vocab,) or arrays[embeddings[0]].ndim != 2:
        raise VcdeployError(f"need one nn.Embedding of {vocab} symbols besides {outputs[0]}: {_shapes(arrays)}")
    if arrays[bias].shape != (vocab,):
        raise VcdeployError(f"{bias} has the shape {list(arrays[bias].shape)}, not [{vocab}]")
    embedding = _widened(embeddings[0], arrays[embeddings[0]], dim)
    return {"embedding.weight": embedding, "output.weight": arrays[outputs[0]], "output.bias": arrays[bias]}


def _widened(name: str, array: Array, dim: int) -> Array:
    """The matrix with columns of zeros up to dim."""
    if array.ndim != 2 or array.shape[1] > dim:
        raise VcdeployError(f"{name} has the shape {list(array.shape)}: inputs can't be larger than the state, {dim}")
    return np.pad(array, ((0, 0), (0, dim - array.shape[1])))


def _shapes(arrays: Mapping[str, Array]) -> str:
    return ", ".join(f"{name} {list(each.shape)}" for name, each in arrays.items())
