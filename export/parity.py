"""The check of an exported model: run the same tokens in PyTorch and in every runtime, and compare within rounding.

The runtimes are ONNX Runtime with the function body and with the custom op, the native kernels, and onnx's evaluator.

Each step is compared separately. The runtime runs one step at a time; PyTorch, in float64, computes every layer's step
from the runtime's own previous state, input and m. So errors do not accumulate, and each has a bound. Then the runtime
runs all steps in one call, which must give the same results within the bounds of that many steps.

A bound is the effect of rounding on PyTorch itself: the same steps with perturbed weights, three times the largest
change among four trials. Each weight is perturbed by a relative ε·√(2D), ε = 2^-24, which is the effect of rounding
every addition in a sum of 2D products; m by ε, which the mask amplifies to up to ε·sharpness·D/4. A few ε are added for
the activations, which runtimes approximate. Where an e_i is within its error of the threshold, it may be 0 (or 1) in
one implementation and not in the other, and both are correct: that step of that layer is not compared.

A file of less than float32 precision is compared within these bounds using its weights as stored. In the comparison
with the checkpoint's original weights, the weights are also perturbed by the rounding of that precision, and in int8
and w8a8 the activations by up to half a level. A variable unit's arithmetic then gives the same bits in every runtime
(docs/design.md, section 2): with the weights as stored, no difference is allowed.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import ModelProto
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vcdeploy.custom_ops import HOW_TO_BUILD, library
from vcdeploy.errors import VcdeployError
from vcdeploy.format.functions import used_ops
from vcdeploy.format.precision import TANH_ERROR, activation_levels
from vcdeploy.reference import cells
from vcdeploy.reference.cells import mask, update_fraction
from vcdeploy.runtime.backends import BACKENDS, FUNCTION_BODY, Backend
from vcdeploy.runtime.sources import OnnxSource
from vcdeploy.spec import PRECISIONS, UNITS
from vcdeploy.units import LanguageModel

UNIT = 2.0**-24
ACTIVATION = 4 * UNIT
TRIALS, SAFETY = 4, 3
STEPS, SEQUENCES = 24, 4
STEPS_OF_REFERENCE = 3  # onnx's evaluator is slow
OUTPUTS = ("logits", "state", "compute")

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


class Runtime(Protocol):
    """Anything that runs tokens [T, B] and state [S, B, D] -> logits, state, m."""

    def run(self, tokens: NDArray[np.int64], state: NDArray[np.float32]) -> Arrays: ...


@dataclass(frozen=True)
class Difference:
    """One line of the report."""

    runtime: str
    against: str  # what it was compared with
    output: str  # logits, state or compute
    largest: float
    tolerance: float
    compared: int  # number of values compared

    @property
    def within(self) -> bool:
        return self.largest <= self.tolerance  # False for NaN


@dataclass(frozen=True)
class Report:
    """The result of the check."""

    differences: list[Difference]
    left_out: list[str]  # runtimes that are not available, and how to get them
    tokens: NDArray[np.int64]  # [T, B]
    state: NDArray[np.float32]  # [S, B, D]
    outputs: Arrays  # PyTorch's outputs for tokens and state

    @property
    def passed(self) -> bool:
        return all(each.within for each in self.differences)

    def rows(self) -> list[tuple[str, str, list[Difference], bool]]:
        """Runtime, what it was compared with, the differences, and whether all are within their tolerance."""
        found: dict[tuple[str, str], list[Difference]] = {}
        for each in self.differences:
            found.setdefault((each.runtime, each.against), []).append(each)
        return [(*names, each, all(one.within for one in each)) for names, each in found.items()]

    @property
    def worst(self) -> Difference:
        """The first difference that is too large; only if the check failed."""
        return next(each for each in self.differences if not each.within)

    def to_json(self) -> dict[str, Any]:
        rows = [
            # JSON has no NaN.
            {**asdict(each), "largest": each.largest if isfinite(each.largest) else None, "within": each.within}
            for each in self.differences
        ]
        return {"passed": self.passed, "differences": rows, "left_out": self.left_out}


class ReferenceRuntime:
    """onnx's reference evaluator: slow, but close to the specification."""

    def __init__(self, model: ModelProto) -> None:
        from onnx.reference import ReferenceEvaluator

        self._evaluator = ReferenceEvaluator(model)

    def run(self, tokens: NDArray[np.int64], state: NDArray[np.float32]) -> Arrays:
        with np.errstate(all="ignore"):  # its sigmoid overflows internally; the result is correct
            outputs: Any = self._evaluator.run(None, {"tokens": tokens, "state": state})
        logits, after, compute = outputs
        return logits, after, compute


def check_export(
    model: ModelProto, content: bytes, exact: LanguageModel, tell: Callable[[str], None] = lambda line: None
) -> Report:
    """Compare an exported model (and its file's content) with the network it was exported from.

    tell: gets what is being done, for progress.
    """
    source = OnnxSource(Path("the exported model"), content, compare=False)
    stored, precision = source.network(), source.config["precision"]
    tokens, state = _inputs(stored, SEQUENCES)
    left_out: list[str] = []
    chains: dict[bool, list[_Chain]] = {True: [], False: []}  # by whether they round activations
    for candidate in _candidates(model, source, left_out):
        tell(f"running the model in {candidate.name}")
        chains[candidate.rounds].append(candidate.chain(tokens, state))
    tell(f"comparing {sum(map(len, chains.values()))} runtimes with PyTorch")
    differences: list[Difference] = []
    for rounds, some in chains.items():
        if some:
            differences += _compare(exact, stored, precision, some, rounds)
    return Report(differences, left_out, tokens, state, _outputs(stored, precision, tokens, state))


def _compare(
    exact: LanguageModel, stored: LanguageModel, precision: str, chains: list["_Chain"], rounds: bool
) -> list[Difference]:
    """Compare chains that all round activations, or don't, with the exported network (exact) and the stored one."""
    references: dict[str, _Comparison | _SameBits] = {"PyTorch": _Comparison(exact, "f32")}
    if precision != "f32":
        references = {
            "PyTorch, weights as stored": _SameBits(stored, precision) if rounds else _Comparison(stored, "f32"),
            "PyTorch, full precision": _Comparison(exact, precision, rounds),
        }
    first, *others = (comparison.compare(against, chains) for against, comparison in references.items())
    closest = next(iter(references.values()))
    by_chain = zip(first, closest.at_once(chains, first), *others, strict=True)
    return [each for found in by_chain for one in found for each in one]


@torch.no_grad()
def _outputs(network: LanguageModel, precision: str, tokens: NDArray[np.int64], state: NDArray[np.float32]) -> Arrays:
    """PyTorch's outputs: in float64, or if activations are quantized with the same bits as every runtime."""
    ids, before = torch.from_numpy(tokens), torch.from_numpy(state)
    if PRECISIONS[precision].levels and network.has_scheduler:
        from vcdeploy.runtime import int8

        logits, after, m = int8.run(network.float().eval(), precision, ids, before)
    else:
        logits, after, m = network.double().eval()(ids, before.double())
    return logits.numpy(), after.numpy(), m.numpy()


def check_runtime(name: str, runtime: Runtime, network: LanguageModel, batch: int = SEQUENCES) -> list[Difference]:
    """Compare any runtime with a PyTorch network that has the same weights."""
    comparison, chains = _Comparison(network, "f32"), [_chain(name, runtime, *_inputs(network, batch))]
    found = comparison.compare("PyTorch, weights as stored", chains)
    (at_once,) = comparison.at_once(chains, found)
    return found[0] + at_once


def _inputs(network: LanguageModel, batch: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Tokens [T, B] and a state [S, B, D] to compare runtimes on."""
    draw = np.random.default_rng(0)
    unit: Any = network.unit
    tokens = draw.integers(0, network.embedding.num_embeddings, (STEPS, batch))
    rows = unit.spec.state_rows * len(unit.layers)
    # Not zeros, so that the recurrent weights matter from the first step on.
    return tokens, np.tanh(draw.standard_normal((rows, batch, unit.dim))).astype(np.float32)


@dataclass(frozen=True)
class _Candidate:
    """An available runtime."""

    name: str
    start: Callable[[], Runtime]
    steps: int = STEPS  # number of steps to compare
    hint: str = ""  # shown if it can't load the model
    rounds: bool = False  # whether it rounds activations, as quantized precisions are defined

    def chain(self, tokens: NDArray[np.int64], state: NDArray[np.float32]) -> "_Chain":
        try:
            runtime = self.start()
        except VcdeployError as error:
            hint = f"; {self.hint}" if self.hint else ""
            raise VcdeployError(f"{self.name} can't load the exported model{hint} ({error})") from error
        return _chain(self.name, runtime, tokens[: self.steps], state)


def _candidates(model: ModelProto, source: OnnxSource, left_out: list[str]) -> Iterator[_Candidate]:
    """The installed runtimes; the others are appended to left_out, with how to get them."""
    precision = source.config["precision"]
    onnx_runtime, native = BACKENDS["onnxruntime"], BACKENDS["native"]
    if (fault := onnx_runtime.fault()) is None:
        yield from _onnx_runtimes(model, source, left_out)
    else:
        left_out.append(f"ONNX Runtime: {fault}")
    if native.runs(source.config["unit"]):
        if (fault := native.fault()) is None:
            from vcdeploy import _native

            name = f"native kernels, {_native.instruction_sets()[0]}"
            yield _Candidate(
                name, lambda: native.start(source, precision, 1), rounds=bool(PRECISIONS[precision].levels)
            )
        else:
            left_out.append(f"the native kernels can't be used ({fault}): `vcdeploy doctor` says how to fix it")
    name = f"onnx evaluator {onnx.__version__}"
    if source.config.get("portable"):
        left_out.append(f"{name}: it joins the outputs of a Loop along the batch instead of the time; no fix known")
        return
    yield _Candidate(name, lambda: ReferenceRuntime(model), STEPS_OF_REFERENCE, rounds=_rounds(source))


def _rounds(source: OnnxSource) -> bool:
    """Whether a graph rounds activations; ONNX's own ops of dense units don't."""
    return bool(PRECISIONS[source.config["precision"]].levels) and UNITS[source.config["unit"]].variable


def _onnx_runtimes(model: ModelProto, source: OnnxSource, left_out: list[str]) -> Iterator[_Candidate]:
    import onnxruntime

    from vcdeploy.runtime.onnxruntime import CUSTOM_OP

    def start(backend: str) -> Callable[[], Backend]:
        return lambda: BACKENDS[backend].start(source, source.config["precision"], 1)

    name, hint, rounds = f"ONNX Runtime {onnxruntime.__version__}", "try a smaller --opset", _rounds(source)
    if not used_ops(model):
        yield _Candidate(name, start("onnxruntime"), hint=hint, rounds=rounds)
        return
    yield _Candidate(f"{name}, function body", start(FUNCTION_BODY), hint=hint, rounds=rounds)
    if library() is None:
        left_out.append(f"the custom op for ONNX Runtime was not built: {HOW_TO_BUILD}")
    else:
        yield _Candidate(f"{name}, {CUSTOM_OP}", start("onnxruntime"), hint=hint, rounds=rounds)


@dataclass(frozen=True)
class _Chain:
    """The steps of a runtime, one call each: tokens[t], before[t] -> logits[t], after[t], fractions[t]."""

    runtime: str
    tokens: NDArray[np.int64]  # [T, B]
    before: NDArray[np.float32]  # [T, S, B, D]
    logits: NDArray[np.float32]  # [T, B, vocab]
    after: NDArray[np.float32]  # [T, S, B, D]
    fractions: NDArray[np.float32]  # [T, B, layers]
    at_once: Arrays  # logits, state, m of all steps in one call


def _chain(name: str, runtime: Runtime, tokens: NDArray[np.int64], state: NDArray[np.float32]) -> _Chain:
    states, logits, fractions = [state], [], []
    for step in tokens:
        out, state_out, m = runtime.run(step[np.newaxis], states[-1])
        states.append(state_out)
        logits.append(out[0])
        fractions.append(m[0])
    before, after = np.stack(states[:-1]), np.stack(states[1:])
    at_once = runtime.run(tokens, state)
    return _Chain(name, tokens, before, np.stack(logits), after, np.stack(fractions), at_once)


Outputs = dict[str, Tensor]


class _Blurred(TorchFunctionMode):
    """A context that perturbs the inputs of matrix products by up to half a level; zeros stay zeros."""

    def __init__(self, half_level: Tensor, draw: torch.Generator) -> None:
        super().__init__()
        self.half_level, self.draw = half_level, draw

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.linear:
            x, *rest = args
            off = 2 * torch.rand(x.shape, generator=self.draw, dtype=x.dtype) - 1
            args = (torch.where(x == 0, x, x + self.half_level * off), *rest)
        return func(*args, **(kwargs or {}))


class _SameBits:
    """Bit-exact comparison, for rounded activations: step by step, and all steps in one call."""

    def __init__(self, network: LanguageModel, precision: str) -> None:
        self.network, self.precision = network.float().eval(), precision

    @torch.no_grad()
    def compare(self, against: str, chains: list[_Chain]) -> list[list[Difference]]:
        """Compare each step of each chain separately."""
        return [self._compare(against, chain) for chain in chains]

    def _compare(self, against: str, chain: _Chain) -> list[Difference]:
        from vcdeploy.runtime import int8

        wanted = [
            int8.run(self.network, self.precision, torch.from_numpy(step[np.newaxis]), torch.from_numpy(state))
            for step, state in zip(chain.tokens, chain.before, strict=True)
        ]
        logits, state, m = (torch.stack(each).numpy() for each in zip(*wanted, strict=True))
        given = {"logits": chain.logits, "state": chain.after, "compute": chain.fractions}
        own = {"logits": logits[:, 0], "state": state, "compute": m[:, 0]}
        return [_apart(chain.runtime, against, output, given[output], own[output]) for output in OUTPUTS]

    def at_once(self, chains: list[_Chain], one_by_one: list[list[Difference]]) -> list[list[Difference]]:
        """Compare each sequence in one call with its steps one by one."""
        return [self._at_once(chain) for chain in chains]

    def _at_once(self, chain: _Chain) -> list[Difference]:
        against = f"itself, {len(chain.tokens)} steps at once"
        chained = (chain.logits, chain.after[-1], chain.fractions)
        pairs = zip(OUTPUTS, chain.at_once, chained, strict=True)
        return [_apart(chain.runtime, against, output, one, other) for output, one, other in pairs]


def _apart(runtime: str, against: str, output: str, one: NDArray[Any], other: NDArray[Any]) -> Difference:
    """Compare two arrays that must be identical; a NaN counts as a difference."""
    return Difference(runtime, against, output, float(np.abs(one - other).max(initial=0)), 0.0, one.size)


def _largest(values: Tensor) -> float:
    return float(values.amax()) if values.numel() else 0.0


class _Comparison:
    """Comparison of a PyTorch model with a file that stores its weights in `precision`, within rounding.

    rounds: whether the runtimes round activations, as quantized precisions are defined.
    """

    def __init__(self, network: LanguageModel, precision: str, rounds: bool = False) -> None:
        self.network, self.precision, self.rounds = network.double().eval(), precision, rounds
        self.unit: Any = network.unit
        self.variable = self.unit.has_scheduler
        # Quantized precisions have their own sigmoid and tanh.
        self.activation = TANH_ERROR if rounds else ACTIVATION
        # ONNX attributes are float32.
        self.settings = tuple(float(np.float32(getattr(self.unit, name, 1.0))) for name in ("sharpness", "epsilon"))

    @torch.no_grad()
    def compare(self, against: str, chains: list[_Chain]) -> list[list[Difference]]:
        """Compare each step of each chain separately. Steps are independent, so all chains go through as one."""
        tokens, before, logits, after, fractions = (
            np.concatenate([getattr(chain, name) for chain in chains])
            for name in ("tokens", "before", "logits", "after", "fractions")
        )
        given = {
            "logits": torch.from_numpy(logits).double(),
            "state": torch.from_numpy(after).double().transpose(1, 2),  # [T, B, S, D]
            "compute": torch.from_numpy(fractions).double(),
        }
        rows = self.unit.spec.state_rows
        decided = {
            "logits": torch.ones(logits.shape[:2], dtype=torch.bool),
            "state": self._decided(given["compute"]).repeat_interleave(rows, -1),  # [T, B, S]
            "compute": torch.ones(fractions.shape, dtype=torch.bool),
        }
        steps = tokens, torch.from_numpy(before).double(), torch.from_numpy(after).double(), given["compute"]
        wanted = self._steps(self.network, *steps)
        draw = torch.Generator().manual_seed(0)
        disturbed = [
            self._steps(self._disturbed(draw), *steps, UNIT if trial % 2 else -UNIT, draw) for trial in range(TRIALS)
        ]
        changes = {name: torch.stack([(each[name] - wanted[name]).abs() for each in disturbed]) for name in OUTPUTS}
        apart = {name: (given[name] - wanted[name]).abs() for name in OUTPUTS}
        found, end = [], 0
        for chain in chains:
            part = slice(end, end := end + len(chain.tokens))
            bounds = self._activations({name: wanted[name][part] for name in OUTPUTS})
            found.append([
                Difference(chain.runtime, against, name, _largest(apart[name][part][decided[name][part]]),
                           bounds[name] + SAFETY * _largest(changes[name][:, part][:, decided[name][part]]),
                           apart[name][part][decided[name][part]].numel())
                for name in OUTPUTS
            ])  # fmt: skip
        return found

    def at_once(self, chains: list[_Chain], one_by_one: list[list[Difference]]) -> list[list[Difference]]:
        """Compare each sequence in one call with its steps one by one, whose bounds are known.

        A sequence is compared up to the first step whose mask may differ by rounding.
        """
        one, other = (np.concatenate(each) for each in zip(*((c.fractions, c.at_once[2]) for c in chains), strict=True))
        same, end, found = self._same_masks(one, other), 0, []
        for chain, differences in zip(chains, one_by_one, strict=True):
            logits, state, m = chain.at_once
            steps = len(chain.tokens)
            clear = np.logical_and.accumulate(same[end : (end := end + steps)], axis=0)  # [T, B]
            apart = {
                "logits": (logits - chain.logits)[clear],
                "state": (state - chain.after[-1]).swapaxes(0, 1)[clear[-1]],
                "compute": (m - chain.fractions)[clear],
            }
            found.append([
                Difference(chain.runtime, f"itself, {steps} steps at once", each.output,
                           float(np.abs(apart[each.output]).max(initial=0)), steps * each.tolerance,
                           apart[each.output].size)
                for each in differences
            ])  # fmt: skip
        return found

    def _same_masks(self, one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.bool_]:
        """[T, B]: whether two sets of fractions [T, B, layers] are certain to have the same exact zeros and ones."""
        if not self.variable:
            return np.ones(one.shape[:2], bool)
        fractions = [torch.from_numpy(each).double() for each in (one, other)]
        masks = [mask(m, self.unit.dim, *self.settings) for m in fractions]
        same = [(masks[0] == exact) == (masks[1] == exact) for exact in (0, 1)]
        decided = [self._decided(m) for m in fractions]
        return ((same[0] & same[1]).all(-1) & decided[0] & decided[1]).all(-1).numpy()

    def _decided(self, m: Tensor) -> Tensor:
        """Whether no e_i is within its error of the threshold. True for NaN, which is NaN in every runtime."""
        if not self.variable:
            return torch.ones_like(m, dtype=torch.bool)
        sharpness, epsilon = self.settings
        i = torch.arange(1, self.unit.dim + 1, dtype=m.dtype)
        soft = torch.sigmoid(sharpness * (m.unsqueeze(-1) * self.unit.dim - i))
        to_threshold = torch.minimum((soft - epsilon).abs(), (soft - (1 - epsilon)).abs())
        # At the threshold the slope of the sigmoid is about epsilon.
        return ~(to_threshold < UNIT * sharpness * self.unit.dim * epsilon + self.activation).any(-1)

    def _steps(
        self,
        network: LanguageModel,
        tokens: NDArray[np.int64],
        before: Tensor,
        after: Tensor,
        fractions: Tensor,
        m_error: float = 0.0,
        draw: torch.Generator | None = None,
    ) -> Outputs:
        """Every step of every layer, from the runtime's own state before it. The state is [T, B, S, D].

        m_error, draw: the perturbations of a trial.
        """
        unit: Any = network.unit
        step: Any = cells.STEPS[unit.spec.name]
        x = network.embedding(torch.from_numpy(tokens))  # [T, B, D]
        rows, own = list[Tensor](), []
        for index, layer in enumerate(unit.layers):
            places = slice(index * unit.spec.state_rows, (index + 1) * unit.spec.state_rows)
            state = before[:, places].unbind(1)  # [T, B, D] each
            flat = [each.flatten(0, 1) for each in (x, *state)]  # T and B as one batch
            if self.variable:
                # With u = v = 0 and b = logit(m) the reference's step has the runtime's m.
                none, shifted = torch.zeros_like(layer.u), (fractions[..., index] + m_error).clamp(0, 1)
                weights = layer.U, layer.V, none, none, torch.logit(shifted).flatten(), *self.settings
                blurred = self._blurred(flat[0], flat[1], draw)
                own.append(update_fraction(x, state[0], layer.u, layer.v, layer.b))
                with blurred:
                    *made, _ = step(*flat, *weights)
            else:
                own.append(torch.ones_like(fractions[..., index]))
                outputs = step(*flat, *unit.weights_of(layer))
                made = [outputs] if isinstance(outputs, Tensor) else outputs
            rows += [each.view_as(x) for each in made]
            x = after[:, places][:, 0]  # the input of the runtime's next layer
        with self._blurred(x, x, draw):
            logits = network.output(x)
        return {"logits": logits, "state": torch.stack(rows, 2), "compute": torch.stack(own, -1)}

    def _blurred(self, x: Tensor, h: Tensor, draw: torch.Generator | None) -> AbstractContextManager[object]:
        """The perturbation of quantized activations in a step, or in the output layer, with input x and state h."""
        if not self.rounds or draw is None:
            return nullcontext()
        # xbar and hbar have separate levels; using those of the larger for both makes the bound larger.
        largest = torch.maximum(x.abs().amax(-1, keepdim=True), h.abs().amax(-1, keepdim=True)).clamp(min=1)
        return _Blurred(largest / (2 * activation_levels(self.precision, self.unit.dim)), draw)

    def _activations(self, wanted: Outputs) -> dict[str, float]:
        """The error from approximate activations: one in m, up to four in a state, scaled by its magnitude."""
        largest = {output: 1 + float(each.abs().amax()) for output, each in wanted.items()}
        state = 4 * self.activation * largest["state"]
        return {
            "logits": self.activation * largest["logits"],
            "state": state,
            "compute": self.activation if self.variable else 0.0,
        }

    def _disturbed(self, draw: torch.Generator) -> LanguageModel:
        """The model with weights perturbed by their rounding in this precision and by the rounding of sums."""
        network = deepcopy(self.network)
        of_sum = (2 * self.unit.dim) ** 0.5 * UNIT
        for weight in network.parameters():
            off = of_sum * torch.randn(weight.shape, generator=draw) * weight
            if weight.dim() > 1 and PRECISIONS[self.precision].rounding:
                scale = weight.abs().amax(-1, keepdim=True) if PRECISIONS[self.precision].levels else weight.abs()
                off += PRECISIONS[self.precision].rounding * (2 * torch.rand(weight.shape, generator=draw) - 1) * scale
            weight.add_(off)
        return network
