"""The native model: its layers match the ops, its table only changes speed, and generate samples like `choose`."""

import itertools
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import EPSILON, GATES
from numpy.typing import NDArray
from plugins.bounds import product_bound, reference_step, step_bounds

from vcdeploy import _native
from vcdeploy.errors import VcdeployError
from vcdeploy.reference.cells import mask
from vcdeploy.runtime.sampling import Sampling, choose, draw
from vcdeploy.spec import PRECISIONS, QUANTIZED_PRECISIONS, UNITS

ISAS = _native.instruction_sets()
AMPLE = 2**30


class Weights:
    """A random model, with m spread over 0 to 1."""

    def __init__(self, unit: str, D: int, vocab: int = 11, layers: int = 1, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)

        def normal(*shape: int, scale: float = 1.0) -> NDArray[np.float32]:
            return (draw.standard_normal(shape) * scale).astype(np.float32)

        scale, rows = D**-0.5, GATES[unit] * D
        self.unit, self.D, self.vocab = unit, D, vocab
        self.embedding = normal(vocab, D)
        self.layers = [
            [
                normal(rows, D, scale=scale),
                normal(rows, D, scale=scale),
                normal(D, scale=2 * scale),
                normal(D, scale=2 * scale),
                normal(1),
            ]
            for _ in range(layers)
        ]
        self.output, self.bias = normal(vocab, D, scale=scale), normal(vocab)
        self.state_rows = layers * UNITS[unit].state_rows

    def state(self, B: int) -> NDArray[np.float32]:
        return np.tanh(np.random.default_rng(1).standard_normal((self.state_rows, B, self.D))).astype(np.float32)

    def model(self, **options: Any) -> _native.Model:
        options = {"sharpness": 1.0, "epsilon": EPSILON, **options}
        return _native.Model(self.unit, self.embedding, self.layers, self.output, self.bias, **options)


def generate(model: _native.Model, prime: Any, uniforms: Any, state: Any = None, **options: Any) -> tuple[Any, ...]:
    """Tokens, m, log-probabilities and the state after them, of one sequence."""
    session = model.session()
    if state is not None:
        session.restore(state, session.m, [(0, 0, np.zeros(0, np.int64))])
    session.feed(prime[:, None])
    tokens, m, log_probabilities, lengths, *_ = session.generate(uniforms[:, None], [_native.Sampling(**options)])
    assert lengths.tolist() == [len(uniforms)]
    return tokens[:, 0].copy(), m[:, 0].copy(), log_probabilities[:, 0].copy(), session.save()[0]


def same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("unit", GATES)
@pytest.mark.parametrize(("D", "T", "B", "layers"), [(7, 1, 1, 1), (37, 131, 2, 3), (97, 5, 3, 2)])
def test_a_model_is_its_ops(unit: str, D: int, T: int, B: int, layers: int, precision: str, isa: str) -> None:
    """131 steps are more than a layer processes at a time."""
    weights = Weights(unit, D, vocab=19, layers=layers)
    tokens = np.random.default_rng(2).integers(0, 19, (T, B))
    state = weights.state(B)
    logits, after, compute = weights.model(precision=precision, isa=isa).run(tokens, state)
    x = weights.embedding[tokens]
    rows = weights.state_rows // layers
    for n, layer in enumerate(weights.layers):
        before = state[n * rows : (n + 1) * rows]
        options: dict[str, Any] = {"sharpness": 1.0, "epsilon": EPSILON, "precision": precision, "isa": isa}
        x, H, M, *C = _native.op(unit, x, before[0], *layer, *before[1:], **options)
        assert same_bits(compute[:, :, n].copy(), M)
        assert all(same_bits(one, other) for one, other in zip(after[n * rows : (n + 1) * rows], (H, *C), strict=True))
    y, W = torch.from_numpy(x).double().view(-1, D), torch.from_numpy(weights.output).double()
    wanted = y @ W.T + torch.from_numpy(weights.bias).double()
    bound = product_bound(W, y, precision)
    off = (torch.from_numpy(logits).double().view(-1, 19) - wanted).abs()
    assert (off <= bound + 2**-22).all()  # plus the rounding of adding a bias of up to 4


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("unit", GATES)
@pytest.mark.parametrize(("D", "sharpness"), [(1, 1.0), (7, 1.0), (64, 1.0), (97, 0.5), (300, 1.0), (300, 0.1)])
def test_the_table_keeps_to_the_bounds(unit: str, D: int, sharpness: float, precision: str, isa: str) -> None:
    weights = Weights(unit, D)
    B = 40
    tokens = np.random.default_rng(2).integers(0, 11, (1, B))
    state = weights.state(B)
    options: dict[str, Any] = {"precision": precision, "isa": isa, "sharpness": sharpness}
    plain = weights.model(**options)
    tabulated = weights.model(table_bytes=AMPLE, **options)
    assert plain.table_bytes == 0 and tabulated.table_bytes > 0
    _, after, compute = tabulated.run(tokens, state)
    assert same_bits(compute, plain.run(tokens, state)[2])
    x, m = torch.from_numpy(weights.embedding[tokens[0]]).double(), torch.from_numpy(compute[0, :, 0]).double()
    h, *c = (torch.from_numpy(each).double() for each in state)
    layer = [torch.from_numpy(each).double() for each in weights.layers[0]]
    wanted = reference_step(unit, x, h, layer, c, m, sharpness, EPSILON)
    e = mask(m, D, sharpness, EPSILON)
    bounds = step_bounds(unit, precision, x, h, e, layer, c, tabulated=True)
    for got, want, bound in zip(after, wanted, bounds, strict=True):
        assert ((torch.from_numpy(got) - want).abs() <= bound).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", QUANTIZED_PRECISIONS)
@pytest.mark.parametrize("unit", GATES)
@pytest.mark.parametrize(("D", "sharpness"), [(7, 1.0), (97, 0.5), (300, 1.0)])
def test_if_quantized_the_table_changes_nothing(unit: str, D: int, sharpness: float, precision: str, isa: str) -> None:
    """Levels are integers, so looking up and multiplying give the same bits."""
    weights = Weights(unit, D)
    B = 40
    tokens, state = np.random.default_rng(2).integers(0, 11, (1, B)), weights.state(B)
    options: dict[str, Any] = {"precision": precision, "isa": isa, "sharpness": sharpness}
    plain = weights.model(**options).run(tokens, state)
    finest = weights.model(table_bytes=AMPLE, **options)
    for budget in (AMPLE, finest.table_bytes // 2):
        tabulated = weights.model(table_bytes=budget, **options)
        assert (tabulated.table_bytes > 0) == (budget == AMPLE or D > 7)
        for got, want in zip(tabulated.run(tokens, state), plain, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("unit", GATES)
def test_the_table_keeps_to_its_budget(unit: str) -> None:
    weights = Weights(unit, 300)
    finest = weights.model(table_bytes=AMPLE).table_bytes
    sizes = [weights.model(table_bytes=budget).table_bytes for budget in (finest, finest - 1, finest // 2, 1000, 0)]
    assert sizes[0] == finest
    assert 0 < sizes[1] < finest
    assert sizes[2] <= finest // 2
    assert sizes[3:] == [0, 0]


@pytest.mark.parametrize("unit", GATES)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("table", [0, AMPLE])
def test_threads_give_the_same_bits(unit: str, precision: str, table: int) -> None:
    weights = Weights(unit, 300, vocab=300, layers=2)
    tokens, state = np.arange(6).reshape(3, 2), weights.state(2)
    alone, two = (weights.model(precision=precision, table_bytes=table, threads=n).run(tokens, state) for n in (1, 2))
    assert all(same_bits(one, other) for one, other in zip(alone, two, strict=True))


def test_helpers_that_went_to_sleep_wake_up() -> None:
    weights = Weights("vcgru", 300)
    model, tokens = weights.model(threads=3), np.array([[1]])
    first = model.run(tokens)
    time.sleep(0.2)
    assert all(same_bits(one, other) for one, other in zip(first, model.run(tokens), strict=True))


def test_idle_helpers_sleep() -> None:
    """A helper that went on spinning would take the processor from others."""
    weights = Weights("vcgru", 300)
    before = set(os.listdir("/proc/self/task"))
    model = weights.model(threads=3)
    model.run(np.array([[1]]))
    helpers = [Path(f"/proc/self/task/{each}/stat") for each in set(os.listdir("/proc/self/task")) - before]
    assert len(helpers) == 2
    deadline = time.monotonic() + 30
    while any(each.read_text().rpartition(")")[2].split()[0] != "S" for each in helpers):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    model.run(np.array([[1]]))  # with the helpers still there


def test_calls_from_several_threads_wait_for_each_other() -> None:
    weights = Weights("vclstm", 97, layers=2)
    model, tokens = weights.model(threads=2, table_bytes=AMPLE), np.arange(11).reshape(11, 1)
    wanted = model.run(tokens)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(model.run, [tokens] * 16):
            assert all(same_bits(one, other) for one, other in zip(wanted, got, strict=True))


@pytest.mark.parametrize("unit", GATES)
@pytest.mark.parametrize("table", [0, AMPLE])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(0.0, 0, 1.0), (1.0, 0, 1.0), (0.7, 3, 1.0), (1.5, 0, 0.6), (0.9, 50, 0.9)]
)
def test_generate_is_choose_step_by_step(unit: str, table: int, temperature: float, top_k: int, top_p: float) -> None:
    weights = Weights(unit, 37, vocab=19, layers=2)
    model = weights.model(table_bytes=table)
    prime, uniforms, state = np.arange(150) % 19, np.random.default_rng(3).random(60), weights.state(1)
    uniforms[:2] = 0, 1
    tokens, m, log_probabilities, after = generate(
        model, prime, uniforms, state, temperature=temperature, top_k=top_k, top_p=top_p
    )
    read = prime[:, None]
    for t, uniform in enumerate(uniforms):
        logits, state, compute = model.run(read, state)
        assert same_bits(m[t], compute[-1, 0].copy())
        assert tokens[t] == choose(logits[-1, 0], uniform, Sampling(temperature, top_k, top_p))
        expected = torch.from_numpy(logits[-1, 0]).double().log_softmax(-1)[tokens[t]].item()  # without temperature
        assert log_probabilities[t] == pytest.approx(expected, rel=1e-13, abs=1e-13)
        read = tokens[t : t + 1, None]
    assert same_bits(after, model.run(read, state)[1])


def test_generate_after_one_token_of_prime() -> None:
    weights = Weights("vclstm", 37, layers=2)
    outputs = generate(weights.model(), np.array([3]), np.array([0.5, 0.5]))
    assert [each.shape for each in outputs] == [(2,), (2, 2), (2,), (4, 1, 37)]


def test_ties_go_to_the_lower_symbol_first() -> None:
    weights = Weights("vcrnn", 4, vocab=8)
    weights.output[:], weights.bias[:] = 0, [0, 1, 1, 0, 1, 0, 1, 0]
    model = weights.model()
    uniforms = (np.arange(100) + 0.5) / 100
    logits = model.run(np.array([[0]]))[0][0, 0]
    for top_k, top_p in ((0, 1.0), (5, 1.0), (0, 0.5), (1, 1.0)):
        made = [
            generate(model, np.array([0]), each[None], temperature=1.0, top_k=top_k, top_p=top_p)[0][0]
            for each in uniforms
        ]
        assert made == [choose(logits, each, Sampling(1.0, top_k, top_p)) for each in uniforms]


OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.5, "top_p": 0.9},
    {"temperature": 2.0, "top_k": 5},
    {"temperature": 1.0, "min_p": 0.05},
    {"temperature": 0.7, "min_p": 1.0},
    {"temperature": 1.0, "repetition_penalty": 1.7, "repetition_window": 3},
    {"temperature": 0.0, "repetition_penalty": 1.1},
    {"temperature": 1.0, "repetition_penalty": 0.6, "top_p": 0.8, "top_k": 20, "min_p": 0.01},
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("vocab", [1, 2, 15, 16, 17, 180, 300])
def test_a_draw_has_the_same_bits_in_python(vocab: int, isa: str) -> None:
    """The output layer is zero, so that the logits of every step are the bias."""
    weights, random = Weights("vcrnn", 4, vocab=vocab), np.random.default_rng(vocab)
    weights.output[:] = 0
    for spread, options in itertools.product((0.0, 3.0, 40.0), OPTIONS):
        weights.bias[:] = random.normal(0, 1, vocab) * spread
        uniforms = np.concatenate([[0.0, 1.0], random.random(98)])
        allowed = random.random(vocab) < 0.4
        allowed[random.integers(vocab)] = True
        for choice in (None, allowed):
            session = weights.model(isa=isa).session()
            session.feed(np.zeros((1, 1), np.int64))
            given = None if choice is None else choice[None].view(np.uint8)
            drawn = session.generate(uniforms[:, None], [_native.Sampling(**options)], given)
            tokens, _, log_probabilities, *_ = drawn
            recent = [0]
            for token, log_probability, uniform in zip(tokens, log_probabilities, uniforms, strict=True):
                wanted = draw(weights.bias, np.zeros(1), uniform, Sampling(**{"top_p": 1.0, **options}), recent, choice)
                assert (token[0], log_probability[0]) == (wanted.id, wanted.log_probability)
                recent.append(wanted.id)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_nan_in_the_state(precision: str, isa: str) -> None:
    weights = Weights("vcgru", 37)
    model, state = weights.model(table_bytes=AMPLE, precision=precision, isa=isa), weights.state(2)
    state[0, 1, 30] = math.nan
    logits, after, compute = model.run(np.array([[1, 1], [2, 2]]), state)
    for each in (logits[0], logits[1], after[0], compute[0]):
        assert np.isnan(each[1]).all() and not np.isnan(each[0]).any()
    with pytest.raises(ValueError, match=r"a logit is .*nan"):
        generate(model, np.array([1]), np.array([0.5]), state[:, 1:].copy())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("D", "layers"), [(37, 1), (64, 1), (200, 1), (200, 2)])
def test_results_do_not_depend_on_earlier_tokens(D: int, layers: int, precision: str, isa: str) -> None:
    """Schedulers, ranges and the output layer keep what did not change; the range of a large state also shrinks."""
    weights = Weights("vcgru", D, vocab=19, layers=layers)
    model, state = weights.model(precision=precision, isa=isa), 3 * weights.state(1)
    tokens = np.random.default_rng(0).integers(0, 19, (30, 1))
    at_once, _, fractions = model.run(tokens, state)
    for t, token in enumerate(tokens):
        logits, state, m = model.run(token[None], state)
        assert same_bits(logits[0], at_once[t])
        assert same_bits(m[0], fractions[t])


def test_sizes() -> None:
    weights = Weights("vcgru", 97, vocab=11, layers=2)
    model = weights.model(isa="portable")
    assert (model.dim, model.vocab_size, model.state_rows, model.isa) == (97, 11, 2, "portable")
    # packed matrices are padded to 128, the output layer to 16 rows
    assert model.weight_bytes == 4 * (2 * 6 * 128**2 + 11 * 97 + 16 * 97 + 16)
    logits, state, compute = model.run(np.zeros((3, 0), np.int64))
    assert (logits.shape, state.shape, compute.shape) == ((3, 0, 11), (2, 0, 97), (3, 0, 2))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"embedding": np.zeros((0, 5), np.float32)}, ValueError, r"embedding must have the shape \[vocab, D\]"),
        ({"embedding": np.full((11, 5), math.nan, np.float32)}, ValueError, "the embedding holds a NaN"),
        ({"layers": []}, ValueError, "at least one layer"),
        ({"layers": [[np.zeros(1, np.float32)]]}, ValueError, "layers.0. must hold U and V"),
        ({"layers": [[np.zeros((15, 5), np.float32)] * 2]}, ValueError, "layers.0. must hold U, V, u, v and b"),
        ({"output_weight": np.zeros((10, 5), np.float32)}, ValueError, r"output weight must have the shape \[11, 5\]"),
        ({"output_bias": np.zeros(11)}, TypeError, "output bias must be an array of float32"),
        ({"output_bias": np.zeros(45, np.uint8)[1:].view(np.float32)}, ValueError, "output bias must be aligned"),
        ({"embedding": (np.zeros((11, 5), np.uint8), "int8", None)}, ValueError, "embedding must have scales if it is"),
        ({"embedding": (np.zeros((11, 1), np.uint8), "f16", None)}, ValueError, r"embedding must have the shape \[voc"),
        ({"embedding": (np.zeros((11, 11), np.uint8), "f16", None)}, ValueError, r"must have the shape \[11, 10\]"),
        ({"embedding": (np.zeros((11, 5), np.uint8), "f8", None)}, ValueError, "no precision 'f8'"),
        ({"table_bytes": -1}, ValueError, "table_bytes must be 0 or more"),
        ({"threads": 1000}, ValueError, "threads must be between 1 and 256, not 1000"),
    ],
)
def test_what_is_wrong_with_a_model_is_said(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    weights = Weights("vcgru", 5)
    right: dict[str, Any] = {"embedding": weights.embedding, "layers": weights.layers, "output_weight": weights.output}
    options = {"unit": "vcgru", "output_bias": weights.bias, "sharpness": 1.0, "epsilon": EPSILON}
    with pytest.raises(error, match=message):
        _native.Model(**{**right, **options, **changed})


def test_what_is_wrong_with_a_call_is_said() -> None:
    weights = Weights("vcgru", 5)
    model = weights.model()
    with pytest.raises(ValueError, match="tokens holds 11, but the ids here are 0 to 10"):
        model.run(np.array([[1], [11]]))
    with pytest.raises(ValueError, match="tokens holds -1"):
        model.run(np.array([[-1]]))
    with pytest.raises(TypeError, match="tokens must be an array of int64"):
        model.run(np.array([[1.0]]))
    with pytest.raises(ValueError, match=r"tokens must have the shape \[T, B\], not \[3\]"):
        model.run(np.array([1, 2, 3]))
    with pytest.raises(ValueError, match=r"state must have the shape \[1, 1, 5\], not \[1, 2, 5\]"):
        model.run(np.array([[1]]), np.zeros((1, 2, 5), np.float32))
    with pytest.raises(ValueError, match="logits must be all, last or none, not 'some'"):
        model.run(np.array([[1]]), logits="some")
    session = model.session()
    one = [_native.Sampling()]
    with pytest.raises(ValueError, match="sequence 0 has read nothing"):
        session.generate(np.array([[0.5]]), one)
    session.step(1)
    with pytest.raises(ValueError, match="uniforms must be between 0 and 1"):
        session.generate(np.array([[math.nan]]), one)
    with pytest.raises(ValueError, match="sampling must hold options for every sequence"):
        session.generate(np.array([[0.5]]), [])
    with pytest.raises(ValueError, match=r"allowed must have the shape \[1, 11\]"):
        session.generate(np.array([[0.5]]), one, np.zeros((1, 3), np.uint8))
    with pytest.raises(ValueError, match="no symbol is allowed to follow"):
        session.generate(np.array([[0.5]]), one, np.zeros((1, 11), np.uint8))
    for wrong in (11, -1, 2**70, np.array([11]), np.array([-(2**63)])):
        with pytest.raises(ValueError, match="tokens holds"):
            session.step(wrong)
    for slow in ("1", 1.0, np.array([1.0]), np.array([1], np.int32), np.array([1, 2]), [1], None):
        assert not session.step(slow)
    with pytest.raises(ValueError, match="there is no sequence 1"):
        session.reset([1])
    with pytest.raises(ValueError, match="at least one sequence"):
        model.session(0)
    outside: dict[str, list[Any]] = {
        "temperature": [-1.0, math.nan, math.inf],
        "top_k": [-1],
        "top_p": [0.0, 1.5, math.nan],
        "min_p": [-0.1, 1.1, math.nan],
        "repetition_penalty": [0.0, -1.0, math.inf, math.nan],
        "repetition_window": [0, 1025],
        "stop": [[[]], [[0] * 1025]],
    }
    for name, value in ((name, value) for name, values in outside.items() for value in values):
        with pytest.raises(ValueError, match=name):
            _native.Sampling(**{name: value})
        if name != "stop":
            with pytest.raises(VcdeployError, match=name):
                Sampling(**{name: value})
    weights.bias[0] = 1e5
    session = weights.model().session()
    session.step(1)
    with pytest.raises(ValueError, match="too small to divide by"):
        session.generate(np.array([[0.5]]), [_native.Sampling(temperature=1e-305)])
    weights.bias[0] = 3e38
    session = weights.model().session()
    session.step(0)
    with pytest.raises(ValueError, match="makes a logit infinite"):
        session.generate(np.array([[0.5]]), [_native.Sampling(repetition_penalty=0.5)])
