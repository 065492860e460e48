"""The check of an exported model: the same tokens in PyTorch and in every runtime, and what difference is rounding.

The runtimes are ONNX Runtime with the function body and with the custom op, the native kernels, and onnx's evaluator.

Each step is compared by itself. The runtime runs one step at a time; PyTorch, in float64, takes every layer's step from
the runtime's own state before it, its own input and its own m. So errors do not pile up, and each has a bound. Then the
runtime takes all steps at once, which must come to the same within the bounds of that many steps.

A bound is what rounding does to PyTorch itself: the same steps with disturbed weights, three times the largest change
among four trials. Each weight is disturbed by ε·√(2D) of itself, ε = 2^-24, which is what rounding every addition does
to a sum of 2D products; m by ε, which the mask turns into up to ε·sharpness·D/4. To that the activations add a few ε,
since runtimes approximate them. Where an e_i lies within its error of the threshold it may be 0 (or 1) in one and not
in the other, and both are right: that step of that layer is not compared.

A file of less than float32 precision is held to these bounds with its weights as they are stored. Against the
checkpoint's own weights the bound comes from weights disturbed by the rounding of that precision, too, and in int8 from
activations that are off by up to half a level. A variable unit's int8 has an arithmetic of its own, in which every
runtime gets the same bits (docs/design.md, section 2): with the weights as stored nothing may differ at all.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

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
from vcdeploy.reference.scheduler import mask, update_fraction
from vcdeploy.runtime import int8
from vcdeploy.runtime.backends import BACKENDS, FUNCTION_BODY, Backend
from vcdeploy.runtime.sources import OnnxSource
from vcdeploy.runtime.torch import TorchModel
from vcdeploy.spec import PRECISIONS
from vcdeploy.units import LanguageModel

if TYPE_CHECKING:
    from vcdeploy.training.checkpoint import Checkpoint

UNIT = 2.0**-24
ACTIVATION = 4 * UNIT
TRIALS, SAFETY = 4, 3
STEPS, SEQUENCES = 24, 4
STEPS_OF_REFERENCE = 3  # onnx's evaluator is slow
OUTPUTS = ("logits", "state", "compute")

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


class Runtime(Protocol):
    """tokens [T, B] and state [S, B, D] -> logits, state, m."""

    def run(self, tokens: NDArray[np.int64], state: NDArray[np.float32]) -> Arrays: ...


@dataclass(frozen=True)
class Difference:
    """One line of the report."""

    runtime: str
    against: str  # what it was compared with
    output: str  # logits, state or compute
    largest: float
    tolerance: float
    compared: int  # how many numbers were compared

    @property
    def within(self) -> bool:
        return self.largest <= self.tolerance  # False for NaN


@dataclass(frozen=True)
class Report:
    """What the check came to."""

    differences: list[Difference]
    left_out: list[str]  # runtimes that are not here, and how to get them
    tokens: NDArray[np.int64]  # [T, B]
    state: NDArray[np.float32]  # [S, B, D]
    outputs: Arrays  # of PyTorch, for these

    @property
    def passed(self) -> bool:
        return all(each.within for each in self.differences)

    def to_json(self) -> dict[str, Any]:
        rows = [
            # JSON has no NaN.
            {**asdict(each), "largest": each.largest if isfinite(each.largest) else None, "within": each.within}
            for each in self.differences
        ]
        return {"passed": self.passed, "differences": rows, "left_out": self.left_out}


class ReferenceRuntime:
    """onnx's own evaluator: slow, and about as plain as the specification."""

    def __init__(self, model: ModelProto) -> None:
        from onnx.reference import ReferenceEvaluator

        self._evaluator = ReferenceEvaluator(model)

    def run(self, tokens: NDArray[np.int64], state: NDArray[np.float32]) -> Arrays:
        with np.errstate(all="ignore"):  # its sigmoid overflows on the way to the right number
            outputs: Any = self._evaluator.run(None, {"tokens": tokens, "state": state})
        logits, after, compute = outputs
        return logits, after, compute


def check_export(model: ModelProto, content: bytes, checkpoint: "Checkpoint") -> Report:
    """Compare an exported model (and its file's content) with the checkpoint it was made from."""
    source = OnnxSource(Path("the exported model"), content)
    exact, stored = checkpoint.build(), source.network()
    tokens, state = _inputs(exact, len(checkpoint.vocab), SEQUENCES)
    precision = source.config["precision"]
    same_bits = precision == "int8" and stored.has_scheduler
    differences: list[Difference] = []
    left_out: list[str] = []
    for candidate in _candidates(model, source, left_out):
        name, steps = candidate.name, candidate.steps
        try:
            runtime = candidate.start()
        except VcdeployError as error:
            hint = f"; {candidate.hint}" if candidate.hint else ""
            raise VcdeployError(f"{name} can't load the exported model{hint} ({error})") from error
        references: dict[str, _Comparison | _SameBits] = {"PyTorch": _Comparison(exact, "f32")}
        if precision != "f32":
            references = {
                "PyTorch, weights as stored": _SameBits(stored) if same_bits else _Comparison(stored, "f32"),
                "PyTorch, full precision": _Comparison(exact, precision),
            }
        chain = _chain(runtime, tokens[:steps], state)
        for place, (against, comparison) in enumerate(references.items()):
            found = comparison.differences(name, against, tokens[:steps], chain)
            differences += found
            if place == 0:
                differences += comparison.at_once(name, runtime, tokens[:steps], chain, found)
    if same_bits:
        outputs = TorchModel(stored, checkpoint.vocab, precision).run(tokens, state)
    else:
        outputs = TorchModel(stored.double(), checkpoint.vocab, precision).run(tokens, state.astype(np.float64))
    return Report(differences, left_out, tokens, state, outputs)


def check_runtime(name: str, runtime: Runtime, network: LanguageModel, batch: int = SEQUENCES) -> list[Difference]:
    """Compare any runtime with PyTorch's network of the very weights it runs; a mask or two may fall either way."""
    tokens, state = _inputs(network, network.embedding.num_embeddings, batch)
    comparison, chain = _Comparison(network, "f32"), _chain(runtime, tokens, state)
    found = comparison.differences(name, "PyTorch, weights as stored", tokens, chain)
    return found + comparison.at_once(name, runtime, tokens, chain, found)


def _inputs(network: LanguageModel, vocab: int, batch: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Tokens [T, B] and a state [S, B, D] to compare runtimes on."""
    draw = np.random.default_rng(0)
    unit: Any = network.unit
    tokens = draw.integers(0, vocab, (STEPS, batch))
    rows = unit.spec.state_rows * len(unit.layers)
    # Not zeros: the recurrent weights must matter from the first step on.
    return tokens, np.tanh(draw.standard_normal((rows, batch, unit.dim))).astype(np.float32)


@dataclass(frozen=True)
class _Candidate:
    """A runtime that is here."""

    name: str
    start: Callable[[], Runtime]
    steps: int = STEPS  # to compare
    hint: str = ""  # where it can't load the model


def _candidates(model: ModelProto, source: OnnxSource, left_out: list[str]) -> Iterator[_Candidate]:
    """The runtimes that are installed; left_out gets the others, with how to get them."""
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
            yield _Candidate(name, lambda: native.start(source, precision, 1))
        else:
            left_out.append(f"the native kernels can't be used ({fault}): `vcdeploy doctor` says how to fix it")
    yield _Candidate(f"onnx evaluator {onnx.__version__}", lambda: ReferenceRuntime(model), STEPS_OF_REFERENCE)


def _onnx_runtimes(model: ModelProto, source: OnnxSource, left_out: list[str]) -> Iterator[_Candidate]:
    import onnxruntime

    from vcdeploy.runtime.onnxruntime import CUSTOM_OP

    def start(backend: str) -> Callable[[], Backend]:
        return lambda: BACKENDS[backend].start(source, source.config["precision"], 1)

    name, hint = f"ONNX Runtime {onnxruntime.__version__}", "try a smaller --opset"
    if not used_ops(model):
        yield _Candidate(name, start("onnxruntime"), hint=hint)
        return
    yield _Candidate(f"{name}, function body", start(FUNCTION_BODY), hint=hint)
    if library() is None:
        left_out.append(f"the custom op for ONNX Runtime was not built: {HOW_TO_BUILD}")
    else:
        yield _Candidate(f"{name}, {CUSTOM_OP}", start("onnxruntime"), hint=hint)


@dataclass(frozen=True)
class _Chain:
    """The steps of a runtime: tokens[t] and states[t] [S, B, D] give logits[t], states[t + 1] and fractions[t]."""

    states: NDArray[np.float32]  # [T + 1, S, B, D]
    logits: NDArray[np.float32]  # [T, B, vocab]
    fractions: NDArray[np.float32]  # [T, B, layers]


def _chain(runtime: Runtime, tokens: NDArray[np.int64], state: NDArray[np.float32]) -> _Chain:
    states, logits, fractions = [state], [], []
    for step in tokens:
        out, state, m = runtime.run(step[np.newaxis], state)
        states.append(state)
        logits.append(out[0])
        fractions.append(m[0])
    return _Chain(np.stack(states), np.stack(logits), np.stack(fractions))


Outputs = dict[str, Tensor]


class _Blurred(TorchFunctionMode):
    """While it is entered, what a matrix is multiplied by is off by up to half a level; zeros stay zeros."""

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
    """A variable unit's model in int8: every runtime has its bits, step by step and at once."""

    def __init__(self, network: LanguageModel) -> None:
        self.network = network.float().eval()

    @torch.no_grad()
    def differences(self, runtime: str, against: str, tokens: NDArray[np.int64], chain: _Chain) -> list[Difference]:
        """Every step by itself."""
        wanted = [
            int8.run(self.network, torch.from_numpy(step[np.newaxis]), torch.from_numpy(state))
            for step, state in zip(tokens, chain.states[:-1], strict=True)
        ]
        logits, state, m = (torch.stack(each).numpy() for each in zip(*wanted, strict=True))
        given = {"logits": chain.logits, "state": chain.states[1:], "compute": chain.fractions}
        own = {"logits": logits[:, 0], "state": state, "compute": m[:, 0]}
        return [_apart(runtime, against, output, given[output], own[output]) for output in OUTPUTS]

    def at_once(
        self, runtime: str, runner: Runtime, tokens: NDArray[np.int64], chain: _Chain, one_by_one: list[Difference]
    ) -> list[Difference]:
        """The whole sequence in one run against the steps one by one."""
        against = f"itself, {len(tokens)} steps at once"
        chained = (chain.logits, chain.states[-1], chain.fractions)
        made = zip(OUTPUTS, runner.run(tokens, chain.states[0]), chained, strict=True)
        return [_apart(runtime, against, output, one, other) for output, one, other in made]


def _apart(runtime: str, against: str, output: str, one: NDArray[Any], other: NDArray[Any]) -> Difference:
    """Two arrays that must be the same; a NaN is the same nowhere."""
    return Difference(runtime, against, output, float(np.abs(one - other).max(initial=0)), 0.0, one.size)


class _Comparison:
    """A PyTorch model, and what may differ in a file that stores its weights in `precision`."""

    def __init__(self, network: LanguageModel, precision: str) -> None:
        self.network, self.precision = network.double().eval(), precision
        self.unit: Any = network.unit
        self.variable = network.has_scheduler
        # int8 has squashing functions of its own.
        self.activation = TANH_ERROR if precision == "int8" and self.variable else ACTIVATION
        # As float32, which is what ONNX attributes hold.
        self.settings = tuple(float(np.float32(getattr(self.unit, name, 1.0))) for name in ("sharpness", "epsilon"))

    @torch.no_grad()
    def differences(self, runtime: str, against: str, tokens: NDArray[np.int64], chain: _Chain) -> list[Difference]:
        """Every step by itself."""
        given = {
            "logits": torch.from_numpy(chain.logits).double(),
            "state": torch.from_numpy(chain.states[1:]).double().transpose(1, 2),  # [T, B, S, D]
            "compute": torch.from_numpy(chain.fractions).double(),
        }
        rows = self.unit.spec.state_rows
        decided = {"state": self._decided(given["compute"]).repeat_interleave(rows, -1)}  # [T, B, S]
        wanted = self._steps(self.network, tokens, chain)
        bounds = self._activations(wanted)
        draw = torch.Generator().manual_seed(0)
        changes = dict.fromkeys(OUTPUTS, 0.0)
        for trial in range(TRIALS):
            disturbed = self._steps(self._disturbed(draw), tokens, chain, UNIT if trial % 2 else -UNIT, draw)
            for output in OUTPUTS:
                change = (disturbed[output] - wanted[output])[decided.get(output, ...)]
                changes[output] = max(changes[output], float(change.abs().amax()) if change.numel() else 0.0)
        apart = {output: (given[output] - wanted[output])[decided.get(output, ...)] for output in OUTPUTS}
        return [
            Difference(
                runtime,
                against,
                output,
                float(apart[output].abs().amax()) if apart[output].numel() else 0.0,
                bounds[output] + SAFETY * changes[output],
                apart[output].numel(),
            )
            for output in OUTPUTS
        ]

    def at_once(
        self, runtime: str, runner: Runtime, tokens: NDArray[np.int64], chain: _Chain, one_by_one: list[Difference]
    ) -> list[Difference]:
        """The whole sequence in one run against the steps one by one, whose bounds are known.

        A sequence is compared up to the first step whose mask may have fallen either way.
        """
        logits, state, m = runner.run(tokens, chain.states[0])
        clear = np.logical_and.accumulate(self._same_masks(chain.fractions, m), axis=0)  # [T, B]
        apart = {
            "logits": (logits - chain.logits)[clear],
            "state": (state - chain.states[-1]).swapaxes(0, 1)[clear[-1]],
            "compute": (m - chain.fractions)[clear],
        }
        against = f"itself, {len(tokens)} steps at once"
        return [
            Difference(
                runtime,
                against,
                each.output,
                float(np.abs(apart[each.output]).max(initial=0)),
                len(tokens) * each.tolerance,
                apart[each.output].size,
            )
            for each in one_by_one
        ]

    def _same_masks(self, one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.bool_]:
        """[T, B]: whether two sets of fractions [T, B, layers] surely lead to the same exact zeros and ones."""
        if not self.variable:
            return np.ones(one.shape[:2], bool)
        fractions = [torch.from_numpy(each).double() for each in (one, other)]
        masks = [mask(m, self.unit.dim, *self.settings) for m in fractions]
        same = [(masks[0] == exact) == (masks[1] == exact) for exact in (0, 1)]
        decided = [self._decided(m) for m in fractions]
        return ((same[0] & same[1]).all(-1) & decided[0] & decided[1]).all(-1).numpy()

    def _decided(self, m: Tensor) -> Tensor:
        """Whether no e_i lies within its error of the threshold; NaN is decided: it is NaN everywhere."""
        if not self.variable:
            return torch.ones_like(m, dtype=torch.bool)
        sharpness, epsilon = self.settings
        i = torch.arange(1, self.unit.dim + 1, dtype=m.dtype)
        soft = torch.sigmoid(sharpness * (m.unsqueeze(-1) * self.unit.dim - i))
        to_threshold = torch.minimum((soft - epsilon).abs(), (soft - (1 - epsilon)).abs())
        # The slope of the sigmoid is about epsilon there.
        return ~(to_threshold < UNIT * sharpness * self.unit.dim * epsilon + self.activation).any(-1)

    def _steps(
        self,
        network: LanguageModel,
        tokens: NDArray[np.int64],
        chain: _Chain,
        m_error: float = 0.0,
        draw: torch.Generator | None = None,
    ) -> Outputs:
        """Every step of every layer from what the runtime had before it: state [T, B, S, D], and the other two.

        draw: for a trial.
        """
        states, fractions = torch.from_numpy(chain.states).double(), torch.from_numpy(chain.fractions).double()
        unit: Any = network.unit
        x = network.embedding(torch.from_numpy(tokens))  # [T, B, D]
        after, own = [], []
        for index, layer in enumerate(unit.layers):
            places = slice(index * unit.spec.state_rows, (index + 1) * unit.spec.state_rows)
            before = list(states[:-1, places].unbind(1))  # [T, B, D] each
            if self.variable:
                own.append(update_fraction(x, before[0], layer.u, layer.v, layer.b))
                shifted = (fractions[..., index] + m_error).clamp(0, 1)
                with self._blurred(x.flatten(0, 1), before[0].flatten(0, 1), draw):
                    after += self._variable_step(layer, x, before, shifted)
            else:
                own.append(torch.ones_like(fractions[..., index]))
                after += self._dense_step(layer, x, before)
            x = states[1:, places][:, 0]  # what the runtime's next layer read
        with self._blurred(x, x, draw):
            logits = network.output(x)
        return {"logits": logits, "state": torch.stack(after, 2), "compute": torch.stack(own, -1)}

    def _blurred(self, x: Tensor, h: Tensor, draw: torch.Generator | None) -> AbstractContextManager[object]:
        """What int8 may do to the activations of a step, or of the output layer, with the input x and the state h."""
        if self.precision != "int8" or not self.variable or draw is None:
            return nullcontext()
        # Of xbar and hbar each has levels of its own; here they are those of the larger, which makes the bound larger.
        largest = torch.maximum(x.abs().amax(-1, keepdim=True), h.abs().amax(-1, keepdim=True)).clamp(min=1)
        return _Blurred(largest / (2 * activation_levels(self.unit.dim)), draw)

    def _variable_step(self, layer: Any, x: Tensor, before: list[Tensor], m: Tensor) -> list[Tensor]:
        """The reference's step with m given: u and v are 0, and b takes m's logit. T and B are one batch here."""
        none = torch.zeros_like(layer.u)
        flat = [each.flatten(0, 1) for each in (x, *before)]
        step: Any = cells.STEPS[self.unit.spec.name]
        *after, _ = step(*flat, layer.U, layer.V, none, none, torch.logit(m).flatten(), *self.settings)
        return [each.view_as(x) for each in after]

    def _dense_step(self, layer: Any, x: Tensor, before: list[Tensor]) -> list[Tensor]:
        rows = [each.flatten(0, 1).unsqueeze(0) for each in before]
        _, after = layer(x.flatten(0, 1).unsqueeze(0), rows[0] if len(rows) == 1 else tuple(rows))
        return [each.view_as(x) for each in ([after] if len(rows) == 1 else after)]

    def _activations(self, wanted: Outputs) -> dict[str, float]:
        """What approximate activations may do: once in m, four times in a state, which a cell may make larger."""
        largest = {output: 1 + float(each.abs().amax()) for output, each in wanted.items()}
        state = 4 * self.activation * largest["state"]
        return {
            "logits": self.activation * largest["logits"],
            "state": state,
            "compute": self.activation if self.variable else 0.0,
        }

    def _disturbed(self, draw: torch.Generator) -> LanguageModel:
        """The model with weights off by their rounding in this precision, and by that of the sums they go into."""
        network = deepcopy(self.network)
        share_of_sum = (2 * self.unit.dim) ** 0.5 * UNIT
        for weight in network.parameters():
            off = share_of_sum * torch.randn(weight.shape, generator=draw) * weight
            if weight.dim() > 1 and PRECISIONS[self.precision].rounding:
                scale = weight.abs().amax(-1, keepdim=True) if self.precision == "int8" else weight.abs()
                off += PRECISIONS[self.precision].rounding * (2 * torch.rand(weight.shape, generator=draw) - 1) * scale
            weight.add_(off)
        return network
