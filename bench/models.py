"""The model under test, synthetic with a given range of m or trained; and the symbols it reads."""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcdeploy.bench.scenarios import SAMPLING
from vcdeploy.errors import VcdeployError
from vcdeploy.export import assemble
from vcdeploy.format.reader import Stored
from vcdeploy.runtime import sources
from vcdeploy.runtime.model import load
from vcdeploy.spec import UNITS, VARIABLE_UNITS
from vcdeploy.vocabulary import Vocabulary

SYMBOLS = string.ascii_letters[:50]
STREAM = 2048  # symbols of a stream, which is read cyclically

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class BenchModel:
    """A language model: its weights by checkpoint name, and the description stored in an exported file."""

    config: dict[str, Any]
    vocab: Vocabulary
    parameters: dict[str, Floats]

    def write(self, path: Path, bucketed: bool = False, precision: str = "f32") -> None:
        """Write the exported file."""
        config = {**self.config, "precision": precision, "bucketed": bucketed, "training": {}}
        path.write_bytes(assemble(config, self.vocab, self.parameters).SerializeToString())

    def dense(self, unit: str, seed: int) -> BenchModel:
        """A dense model of the same size and vocabulary, with random weights."""
        return random_weights({**self.config, "unit": unit}, self.vocab, seed)


def random_weights(config: dict[str, Any], vocab: Vocabulary, seed: int) -> BenchModel:
    """A model with random weights: the speed of a dense model does not depend on its weights."""
    return BenchModel(config, vocab, _random_parameters(config, len(vocab), seed))


def synthetic(unit: str, dim: int, low: float, high: float, seed: int) -> BenchModel:
    """A model with random weights whose m depends only on the symbol, evenly spread from low to high.

    u is 0, and every embedding gets a component along v such that v·x + b is the logit of its symbol's m.
    """
    config = {"unit": unit, "dim": dim, "layers": 1, "sharpness": 1.0, "epsilon": 1e-3, "kind": "text", "buffer": 0}
    parameters = _random_parameters(config, len(SYMBOLS), seed)
    fractions = np.linspace(low, high, len(SYMBOLS)).clip(1e-6, 1 - 1e-6)
    logits = np.log(fractions / (1 - fractions))
    v, x = parameters["unit.layers.0.v"].astype(np.float64), parameters["embedding.weight"].astype(np.float64)
    b = logits.mean()
    x += np.outer(logits - b - x @ v, v) / (v @ v)
    parameters["embedding.weight"] = x.astype(np.float32)
    parameters["unit.layers.0.u"] = np.zeros(dim, np.float32)
    parameters["unit.layers.0.b"] = np.array([b], np.float32)
    return BenchModel(config, Vocabulary(SYMBOLS), parameters)


def _random_parameters(config: dict[str, Any], vocab: int, seed: int) -> dict[str, Floats]:
    """Every weight uniform between -1/√D and 1/√D."""
    random, dim, gates = np.random.default_rng(seed), config["dim"], len(UNITS[config["unit"]].gates)
    shapes: dict[str, tuple[int, ...]] = {
        "embedding.weight": (vocab, dim), "output.weight": (vocab, dim), "output.bias": (vocab,),
    }  # fmt: skip
    for index in range(config["layers"]):
        matrices = ("U", "V") if UNITS[config["unit"]].variable else ("weight_hh_l0", "weight_ih_l0")
        shapes |= {f"unit.layers.{index}.{name}": (gates * dim, dim) for name in matrices}
        if UNITS[config["unit"]].variable:
            shapes |= {f"unit.layers.{index}.{name}": (size,) for name, size in (("u", dim), ("v", dim), ("b", 1))}
    bound = dim**-0.5
    return {name: random.uniform(-bound, bound, shape).astype(np.float32) for name, shape in shapes.items()}


def trained(path: str | Path) -> BenchModel:
    """The model that vcdeploy.load finds under a name or path; it must have a scheduler."""
    source = sources.open_source(path)
    if source.config["unit"] not in VARIABLE_UNITS:
        raise VcdeployError(
            f"{path} is a dense model ({source.config['unit']}): "
            f"pass a model of {', '.join(VARIABLE_UNITS)}; dense models of its size are measured with it"
        )
    parameters = {}
    for name, weight in source.weights().items():
        name = {"embedding": "embedding.weight"}.get(name, name)
        wide = weight.wide() if isinstance(weight, Stored) else np.asarray(weight, np.float32)
        parameters[f"unit.{name}" if name.startswith("layers.") else name] = wide
    return BenchModel(source.config, source.vocab, parameters)


def random_streams(vocab: int, batch: int, length: int, seed: int) -> NDArray[np.int64]:
    """Symbols in random order, all equally frequent, [length, batch]: first all of them once, then all again, …

    So calls of as many symbols as the vocabulary has do the same work anywhere in the stream.
    """
    random = np.random.default_rng([seed, 1])
    once = np.tile(np.arange(vocab)[:, None], (1, batch))
    return np.concatenate([random.permuted(once, axis=0) for _ in range(-(-length // vocab))])[:length]


def own_text(path: str | Path, batch: int, length: int, seed: int) -> NDArray[np.int64]:
    """Text generated by the model, [length, batch]: one seed per stream, primed with a newline or the first symbol."""
    model = load(path)
    prime = model.vocab.encode("\n") if model.vocab.kind == "bits" or "\n" in model.vocab.symbols else [0]
    return np.array(
        [list(model.generate(prime, length, SAMPLING, seed=seed + n)) for n in range(batch)], np.int64
    ).T.copy()


def text_of(file: Path, vocab: Vocabulary, batch: int, length: int) -> NDArray[np.int64]:
    """The beginning of a text, split into one stream per sequence of the batch, [at most length, batch]."""
    try:
        ids = vocab.encode(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise VcdeployError(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise VcdeployError(f"{file} is not UTF-8 text ({error}): convert it, or pass another --text") from error
    if len(ids) < batch:
        raise VcdeployError(f"{file} has {len(ids)} symbols, too few for a batch of {batch}: pass a longer --text")
    streams = ids[: len(ids) // batch * batch].reshape(batch, -1).T
    return np.ascontiguousarray(streams[:length])
