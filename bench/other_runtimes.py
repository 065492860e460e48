"""Runtimes that vcdeploy only measures against: OpenVINO, and JAX compiled with jit. They run exported dense models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy.runtime import sources
from vcdeploy.runtime.backends import PythonLoop
from vcdeploy.runtime.model import Model
from vcdeploy.spec import UNITS


def load(runtime: str, file: Path, threads: int) -> Model:
    """Load a dense exported file in one of RUNTIMES."""
    source = sources.open_source(file)
    runner = RUNTIMES[runtime](source, file, threads)
    return Model(runtime, source.config, source.vocab, "f32", str(file), runner)


class OpenVinoModel(PythonLoop):
    """A file in OpenVINO. Files with functions are not supported: they would have to be inlined."""

    def __init__(self, source: sources.Source, file: Path, threads: int) -> None:
        import openvino

        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",  # otherwise bfloat16 is used where the processor supports it
        }
        self._request = openvino.Core().compile_model(str(file), "CPU", settings).create_infer_request()
        self._rows, self._dim = _state(source)

    def run(self, tokens: NDArray[np.int64], state: NDArray[np.float32] | None = None, position: int = 0) -> Any:
        if state is None:
            state = np.zeros((self._rows, tokens.shape[1], self._dim), np.float32)
        made = self._request.infer({"tokens": tokens, "state": state})
        return made["logits"], made["state_out"], made["compute"]


class JaxModel(PythonLoop):
    """The weights of a file in a function of JAX, compiled with jit for each shape of tokens.

    The input products of all steps are computed at once, before the scan over the steps.
    """

    def __init__(self, source: sources.Source, file: Path, threads: int) -> None:
        if threads == 1:  # read when JAX is imported for the first time; it has no setting for another number
            os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        import jax

        self._rows, self._dim = _state(source)
        self._layers = source.config["layers"]
        tensors = source.network().state_dict()
        # Transposed: x [B, D] times W [D, G·D].
        self._weights = {name: jax.numpy.asarray(tensor.numpy().T.copy()) for name, tensor in tensors.items()}
        self._weights["embedding.weight"] = self._weights["embedding.weight"].T
        self._run = jax.jit(_language_model(source.config["unit"], self._layers))

    def run(self, tokens: NDArray[np.int64], state: NDArray[np.float32] | None = None, position: int = 0) -> Any:
        if state is None:
            state = np.zeros((self._rows, tokens.shape[1], self._dim), np.float32)
        logits, after = self._run(self._weights, tokens.astype(np.int32), state)
        return np.asarray(logits), np.asarray(after), np.ones((*tokens.shape, self._layers), np.float32)


def _state(source: sources.Source) -> tuple[int, int]:
    """S and D of the state [S, B, D]."""
    config = source.config
    return config["layers"] * UNITS[config["unit"]].state_rows, config["dim"]


def _language_model(unit: str, layers: int) -> Any:
    """The function (weights, tokens [T, B], state [S, B, D]) -> logits [T, B, vocab], state, for jax.jit."""
    from jax import lax
    from jax import numpy as jnp
    from jax.nn import sigmoid

    def rnn(h: Any, of_x: Any, R: Any) -> Any:
        return (jnp.tanh(of_x + h[0] @ R),)

    def gru(h: Any, of_x: Any, R: Any) -> Any:
        D = R.shape[0]
        of_h = h[0] @ R
        r, z = jnp.split(sigmoid(of_x[:, : 2 * D] + of_h[:, : 2 * D]), 2, -1)
        n = jnp.tanh(of_x[:, 2 * D :] + r * of_h[:, 2 * D :])
        return (n + z * (h[0] - n),)

    def gru_reset_first(h: Any, of_x: Any, R: Any) -> Any:
        D = R.shape[0]
        r, z = jnp.split(sigmoid(of_x[:, : 2 * D] + h[0] @ R[:, : 2 * D]), 2, -1)
        g = jnp.tanh(of_x[:, 2 * D :] + (r * h[0]) @ R[:, 2 * D :])
        return (h[0] + z * (g - h[0]),)

    def lstm(h: Any, of_x: Any, R: Any) -> Any:
        i, f, g, o = jnp.split(of_x + h[0] @ R, 4, -1)
        c = sigmoid(f) * h[1] + sigmoid(i) * jnp.tanh(g)
        return sigmoid(o) * jnp.tanh(c), c

    step = {"rnn": rnn, "gru": gru, "gru-reset-first": gru_reset_first, "lstm": lstm}[unit]
    rows = UNITS[unit].state_rows

    def run(weights: dict[str, Any], tokens: Any, state: Any) -> tuple[Any, Any]:
        x = weights["embedding.weight"][tokens]
        after: list[Any] = []
        for layer in range(layers):
            W, R = (weights[f"unit.layers.{layer}.weight_{side}_l0"] for side in ("ih", "hh"))

            def one(h: Any, of_x: Any, R: Any = R) -> Any:
                h = step(h, of_x, R)
                return h, h[0]

            h, x = lax.scan(one, tuple(state[layer * rows : (layer + 1) * rows]), x @ W)
            after.extend(h)
        return x @ weights["output.weight"] + weights["output.bias"], jnp.stack(after)

    return run


RUNTIMES = {"openvino": OpenVinoModel, "jax": JaxModel}
