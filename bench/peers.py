"""Peers: dense models in the faster forms that runtimes offer, int8 and compiled, behind the common interface."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from vcdeploy.bench.engines import COMPILED, Absent, Engine
from vcdeploy.runtime import sources
from vcdeploy.runtime.model import Model

QUANTISED_OPS = {"lstm": "DynamicQuantizeLSTM"}  # by unit that ONNX Runtime's quantiser supports


def load(engine: Engine, file: Path, threads: int) -> Model:
    """Load the model of a quantised or compiled engine; raises Absent if that form is not available."""
    source = sources.open_source(file)
    if engine.runtime == "onnxruntime":
        runner: Any = _quantised_onnx(engine.unit, file, threads)
    elif engine.form == COMPILED:
        runner = _compiled(source, threads)
    else:
        runner = _quantised_torch(source, threads)
    return Model(engine.runtime, source.config, source.vocab, engine.precision, str(file), runner)


def _quantised_onnx(unit: str, file: Path, threads: int) -> Any:
    """Quantise with onnxruntime.quantization.quantize_dynamic: int8 weights, one scale per column."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    from vcdeploy.runtime.onnxruntime import OnnxRuntimeModel

    narrow = file.with_name(f"{file.stem}-quantised.onnx")
    logging.disable(logging.WARNING)  # it recommends preprocessing, which this graph doesn't need
    quantize_dynamic(file, narrow, weight_type=QuantType.QInt8, per_channel=True)
    logging.disable(logging.NOTSET)
    if QUANTISED_OPS.get(unit) not in {node.op_type for node in onnx.load(narrow).graph.node}:
        raise Absent(f"onnxruntime.quantization leaves a {unit} in float32")
    return _Named(OnnxRuntimeModel(narrow, threads), "quantize_dynamic")


def _quantised_torch(source: Any, threads: int) -> Any:
    """Quantise with torch.ao.quantization.quantize_dynamic, which requires biases: they are set to zero."""
    import torch
    from torch import nn

    from vcdeploy.runtime.torch import TorchModel

    torch.set_num_threads(threads)
    network = source.network()
    for at, layer in enumerate(network.unit.layers):
        twin = type(layer)(layer.input_size, layer.hidden_size)
        nn.init.zeros_(twin.bias_ih_l0)
        nn.init.zeros_(twin.bias_hh_l0)
        twin.load_state_dict(layer.state_dict(), strict=False)
        network.unit.layers[at] = twin
    try:
        from torch.ao.quantization import quantize_dynamic

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated, but PyTorch itself has no other
            narrow = quantize_dynamic(network.eval(), {nn.GRU, nn.LSTM, nn.Linear}, dtype=torch.qint8)
    except (ImportError, AttributeError, RuntimeError) as error:
        raise Absent(f"PyTorch {torch.__version__} no longer has dynamic quantisation ({error})") from error
    return _Named(TorchModel(narrow, source.vocab), "quantize_dynamic")


def _compiled(source: Any, threads: int) -> Any:
    """Compile with torch.compile's defaults: nn.GRU itself is left as it is, the code around it is compiled.

    Compiling nn.GRU as well (torch._dynamo.config.allow_rnn) unrolls it, which takes minutes for 100 steps and makes a
    single step no faster.
    """
    import torch

    from vcdeploy.runtime.torch import TorchModel

    torch.set_num_threads(threads)
    network: Any = torch.compile(source.network())
    compiled = TorchModel(network, source.vocab)
    try:
        compiled.run(np.zeros((1, 1), np.int64))
    except Exception as error:  # any failure of the compiler, or its absence
        raise Absent(f"torch.compile fails here: {str(error).strip().splitlines()[0]}") from error
    return _Named(compiled, "torch.compile")


class _Named:
    """A runner with a description of how its model was built."""

    def __init__(self, runner: Any, detail: str) -> None:
        self.run, self.detail = runner.run, detail
