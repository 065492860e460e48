"""The custom ops for ONNX Runtime against the reference, step by step as in test_kernels.py."""

import math
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import CASES, EPSILON, GATES, Case
from onnx import TensorProto, helper, numpy_helper
from plugins.bounds import m_bound, reference_step, step_bounds
from plugins.custom_ops import OpSession, need_library, op_model, session_of
from torch import Tensor

from vcdeploy import _native
from vcdeploy.export import attach_functions
from vcdeploy.reference.cells import mask, update_fraction
from vcdeploy.spec import PRECISIONS, QUANTIZED_PRECISIONS, UNITS

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True)
def library() -> str:
    return need_library()


def same_bits(some: Any, others: Any) -> bool:
    pairs = zip(some, others, strict=True)
    return all(np.asarray(one).tobytes() == np.asarray(other).tobytes() for one, other in pairs)


def native(case: Case, inputs: list[Tensor], **options: Any) -> tuple[Any, ...]:
    """The same kernels without ONNX Runtime, with float32 attributes like those of a node."""
    sharpness, epsilon = (float(np.float32(each)) for each in (case.sharpness, EPSILON))
    arrays = [each.numpy() for each in inputs]
    return _native.op(case.unit, *arrays, sharpness=sharpness, epsilon=epsilon, **options)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "given"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_step_is_the_reference_step(case: Case, constant: bool, precision: str) -> None:
    X, H, U, V, u, v, b, *cell = case.inputs(torch.float32)
    weights = [each.double() for each in (U, V, u, v, b)]
    settings = float(np.float32(case.sharpness)), float(np.float32(EPSILON))
    session = session_of(case, [X, H, U, V, u, v, b, *cell], constant, precision=precision)
    for t in range(case.T):
        y, after, M, *after_cell = session.run(case.unit, [X[t : t + 1], H, U, V, u, v, b, *cell])
        assert torch.equal(y[0], after)
        x, h, *c = (each.double() for each in (X[t], H, *cell))
        m = M[0].double()
        assert (m - update_fraction(x, h, *weights[2:])).abs().max() <= m_bound(precision)
        wanted = reference_step(case.unit, x, h, weights, c, m, *settings)
        bounds = step_bounds(case.unit, precision, x, h, mask(m, case.D, *settings), weights, c)
        for name, got, want, bound in zip("hc", (after, *after_cell), wanted, bounds, strict=False):
            excess = ((got - want).abs() - bound).max().item()
            assert excess <= 0, f"{name} of step {t} exceeds its bound by {excess:.2e}"
        H, cell = after, after_cell


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "given"])
@pytest.mark.parametrize("case", [case for case in CASES if case.T > 1], ids=str)
def test_sequences_are_the_native_kernels_bit_for_bit(case: Case, constant: bool) -> None:
    inputs = case.inputs(torch.float32)
    session = session_of(case, inputs, constant)
    for T in (case.T, 1, case.T):  # one session, several lengths
        given = [inputs[0][:T], *inputs[1:]]
        assert same_bits(session.run(case.unit, given), native(case, given))


@pytest.mark.parametrize("unit", GATES)
def test_sequences_of_a_batch_have_active_dimensions_of_their_own(unit: str) -> None:
    case = Case(unit, 5, 4, 97, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    session = session_of(case, inputs)
    Y, H, M, *C = session.run(unit, inputs)
    assert M.std() > 0.05
    for n in range(case.B):
        one = slice(n, n + 1)
        alone = [inputs[0][:, one], inputs[1][one], *inputs[2:7], *(each[one] for each in inputs[7:])]
        assert same_bits(session.run(unit, alone), [Y[:, one], H[one], M[:, one], *(each[one] for each in C)])


@pytest.mark.parametrize("unit", GATES)
def test_weights_that_change_are_packed_again(unit: str) -> None:
    """Any changed value or size, at the same address, as in a runtime that reuses memory."""
    case = Case(unit, 2, 2, 33, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    session = session_of(case, inputs, constant=False)
    assert same_bits(session.run(unit, inputs), native(case, inputs))
    for index in range(2, 7):
        inputs[index].view(-1)[-1] += 0.5  # in place
        assert same_bits(session.run(unit, inputs), native(case, inputs)), f"input {index}"
    other = Case(unit, 3, 1, 20, "ragged", 1.0)
    for each in (other, case, other):
        inputs = each.inputs(torch.float32)
        assert same_bits(session.run(unit, inputs), native(each, inputs))


def test_weights_computed_by_the_graph_are_not_treated_as_constant() -> None:
    """U is the sum of two inputs, which changes between runs, at whatever address the runtime chooses."""
    case = Case("vcgru", 2, 2, 24, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    model = op_model("vcgru", inputs, constant=False)
    model.graph.node[0].input[2] = "sum"
    model.graph.node.insert(0, helper.make_node("Add", ["U", "more"], ["sum"]))
    model.graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, [None, None]))
    session = OpSession(model).session
    feed = {name: each.numpy() for name, each in zip(["X", "H0", *"UVuvb"], inputs, strict=True)}
    for more in (0.0, 0.5, 0.25):
        got = session.run(None, {**feed, "more": np.full((72, 24), more, np.float32)})
        assert same_bits(
            [torch.from_numpy(each) for each in got], native(case, [*inputs[:2], inputs[2] + more, *inputs[3:]])
        )


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "given"])
@pytest.mark.parametrize("unit", GATES)
def test_one_session_from_several_threads(unit: str, constant: bool) -> None:
    """If weights are inputs, each call has different ones and must not see those of another."""
    cases = [Case(unit, 3 + n % 2, 1 + n % 3, 97, "ragged", 1.0) for n in range(6)]
    calls = [case.inputs(torch.float32) for case in cases]
    if constant:
        for call in calls:
            call[2:7] = calls[0][2:7]
    session = session_of(cases[0], calls[0], constant, threads="2")
    wanted = [native(case, call) for case, call in zip(cases, calls, strict=True)]

    def work(number: int) -> bool:
        return all(same_bits(session.run(unit, calls[number]), wanted[number]) for _ in range(30))

    with ThreadPoolExecutor(len(calls)) as pool:
        assert all(pool.map(work, range(len(calls))))


@pytest.mark.parametrize("unit", GATES)
def test_settings_of_a_session_are_its_own(unit: str) -> None:
    case = Case(unit, 3, 2, 300, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    sessions = {
        (precision, threads): session_of(case, inputs, precision=precision, threads=threads)
        for precision in PRECISIONS
        for threads in ("1", "3")
    }
    for (precision, _), session in sessions.items():
        assert same_bits(session.run(unit, inputs), native(case, inputs, precision=precision))


@pytest.mark.parametrize("precision", QUANTIZED_PRECISIONS)
@pytest.mark.parametrize("unit", GATES)
def test_a_node_of_a_quantized_file_says_so_itself(unit: str, precision: str) -> None:
    case = Case(unit, 3, 2, 40, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    model = op_model(unit, inputs, activation_levels=PRECISIONS[precision].levels)
    assert same_bits(OpSession(model).run(unit, inputs), native(case, inputs, precision=precision))
    assert same_bits(OpSession(model, precision="f16").run(unit, inputs), native(case, inputs, precision="f16"))
    other = next(each for each in QUANTIZED_PRECISIONS if each != precision)
    with pytest.raises(
        Exception, match=f"activation_levels = {PRECISIONS[precision].levels}, and the kernels round to"
    ):
        OpSession(model, precision=other)
    with pytest.raises(Exception, match="activation_levels = 100, and the kernels round to 16384 at 40 dimensions"):
        OpSession(op_model(unit, inputs, activation_levels=100))


def test_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """For programs that can't set entries of a session; an entry takes precedence."""
    case = Case("vcgru", 3, 2, 40, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    monkeypatch.setenv("VCDEPLOY_PRECISION", "f16")
    monkeypatch.setenv("VCDEPLOY_THREADS", "2")
    assert same_bits(session_of(case, inputs).run("vcgru", inputs), native(case, inputs, precision="f16"))
    chosen = session_of(case, inputs, precision="f32", threads="1")
    assert same_bits(chosen.run("vcgru", inputs), native(case, inputs, precision="f32"))
    monkeypatch.setenv("VCDEPLOY_THREADS", "many")
    with pytest.raises(Exception, match="VCDEPLOY_THREADS must be 1 to 256, not 'many'"):
        session_of(case, inputs)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"threads": "0"}, r"vcdeploy\.threads must be 1 to 256, not '0'"),
        ({"threads": "2x"}, r"not '2x'"),
        ({"threads": "99999999999"}, r"not '99999999999'"),
        ({"precision": "fp8"}, r"vcdeploy\.precision must be f32, f16, bf16, int8 or w8a8, not 'fp8'"),
    ],
)
def test_settings_that_are_none(entries: dict[str, str], said: str) -> None:
    case = Case("vcrnn", 1, 1, 4, "ragged", 1.0)
    with pytest.raises(Exception, match=said):
        session_of(case, case.inputs(torch.float32), True, **entries)


@pytest.mark.parametrize("unit", GATES)
def test_no_steps_and_no_sequences(unit: str) -> None:
    case = Case(unit, 3, 2, 7, "ragged", 1.0)
    X, H0, *rest = case.inputs(torch.float32)
    session = session_of(case, [X, H0, *rest])
    Y, H, M, *C = session.run(unit, [X[:0], H0, *rest])
    assert (Y.shape, M.shape) == ((0, 2, 7), (0, 2))
    assert torch.equal(H, H0) and all(torch.equal(one, other) for one, other in zip(C, rest[5:], strict=True))
    Y, H, M, *C = session.run(unit, [X[:, :0], H0[:0], *rest[:5], *(each[:0] for each in rest[5:])])
    assert (Y.shape, H.shape, M.shape) == ((3, 0, 7), (0, 7), (3, 0))


@pytest.mark.parametrize(
    ("unit", "kept"), [*((unit, kept) for unit in GATES for kept in ("Y", "H", "M", "YM", "HM")), ("vclstm", "C")]
)
def test_outputs_may_be_left_out(unit: str, kept: str) -> None:
    case = Case(unit, 3, 2, 40, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    last = max("YHMC".index(each) for each in kept)
    names = [each if each in kept else "" for each in "YHMC"[: last + 1]]
    got = OpSession(op_model(unit, inputs, outputs=names)).run(unit, inputs)
    assert same_bits(got, [native(case, inputs)["YHMC".index(each)] for each in kept])


@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize("unit", GATES)
def test_nan_in_nan_out(unit: str, where: int) -> None:
    case = Case(unit, 3, 2, 37, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    session = session_of(case, inputs)
    clean = session.run(unit, inputs)
    inputs[where][..., 1, 5] = math.nan
    Y, H, M, *C = session.run(unit, inputs)
    for got, before in zip((Y, M), (clean[0], clean[2]), strict=True):
        assert got[:, 1].isnan().all() and torch.equal(got[:, 0], before[:, 0])
    for got, before in zip((H, *C), (clean[1], *clean[3:]), strict=True):
        assert got[1].isnan().all() and torch.equal(got[0], before[0])


WRONG: list[tuple[int, Tensor, str]] = [
    (0, torch.zeros(3, 12), r"X must have the shape \[T, B, D\], not \[3, 12\]"),
    (0, torch.zeros(3, 2, 11), r"must have the shape .*1[12]"),
    (0, torch.zeros(3, 2, 0), "shape|dimensions"),
    (1, torch.zeros(3, 12), r"H0 must have the shape \[2, 12\], not \[3, 12\]"),
    (1, torch.zeros(2, 1, 12), r"H0 must have the shape \[2, 12\], not \[2, 1, 12\]"),
    (2, torch.zeros(36, 12), r"U must have the shape \[48, 12\], not \[36, 12\]"),
    (2, torch.zeros(0, 12), r"U must have the shape \[48, 12\], not \[0, 12\]"),
    (3, torch.zeros(48), r"V must have the shape \[48, 12\], not \[48\]"),
    (4, torch.zeros(13), "must have the shape"),
    (4, torch.zeros(1, 12), "must have the shape|dimensions"),
    (5, torch.zeros(12, 1), r"v must have the shape \[12\], not \[12, 1\]"),
    (6, torch.zeros(2), r"b must have the shape \[1\], not \[2\]"),
    (6, torch.tensor(0.0), r"b must have the shape \[1\], not \[\]"),
    (7, torch.zeros(2, 13), r"C0 must have the shape \[2, 12\], not \[2, 13\]"),
    (2, torch.full((48, 12), math.nan), "a weight is .*nan, not a number"),
    (4, torch.full((12,), math.inf), r"a weight of the scheduler \(u, v or b\) is NaN or infinite"),
    (6, torch.tensor([math.nan]), r"a weight of the scheduler"),
    (1, torch.zeros(2, 12).double(), r"double|float64"),
    (3, torch.zeros(48, 12).double(), r"double|float64"),
]


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "given"])
@pytest.mark.parametrize(("index", "wrong", "said"), WRONG)
def test_wrong_inputs_are_named(index: int, wrong: Tensor, said: str, constant: bool) -> None:
    case = Case("vclstm", 3, 2, 12, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    inputs[index] = wrong
    with pytest.raises(Exception, match=said):
        session_of(case, inputs, constant).run("vclstm", inputs)


def test_a_session_works_after_an_error() -> None:
    case = Case("vcgru", 2, 2, 12, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    for constant in (True, False):
        session = session_of(case, inputs, constant)
        with pytest.raises(Exception, match="VCGRU: H0 must have"):
            session.run("vcgru", [inputs[0], inputs[1][:1], *inputs[2:]])
        assert same_bits(session.run("vcgru", inputs), native(case, inputs))


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"sharpness": math.nan}, "VCRNN: sharpness must be above 0, not .*nan"),
        ({"sharpness": -1.0}, "sharpness must be above 0"),
        ({"epsilon": 0.5}, "epsilon must be between 0 and 0.5"),
        ({"epsilon": math.nan}, "epsilon must be between 0 and 0.5"),
        ({"sharpness": None}, "needs the attribute sharpness, a float"),
        ({"epsilon": "small"}, "needs the attribute epsilon, a float"),
    ],
)
def test_wrong_attributes_are_named(attributes: dict[str, Any], said: str) -> None:
    case = Case("vcrnn", 1, 1, 4, "ragged", 1.0)
    with pytest.raises(Exception, match=said):
        OpSession(op_model("vcrnn", case.inputs(torch.float32), **attributes))


@pytest.mark.parametrize("optimise", [True, False], ids=["optimised", "as-it-is"])
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "given"])
@pytest.mark.parametrize("unit", GATES)
def test_the_kernel_comes_before_the_function_body(unit: str, constant: bool, optimise: bool) -> None:
    """A deliberately wrong function body runs without the library, but not with it."""
    case = Case(unit, 2, 2, 12, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    model = attach_functions(op_model(unit, inputs, constant=constant))
    (body,) = model.functions
    y = body.output[0]
    for node in body.node:
        node.output[:] = ["unused" if name == y else name for name in node.output]
    wrong = numpy_helper.from_array(np.zeros((2, 2, 12), np.float32))
    body.node.append(helper.make_node("Constant", [], [y], value=wrong))
    stock = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    taken = {each.name for each in stock.get_inputs()}
    feed = {name: each.numpy() for name, each in zip(UNITS[unit].inputs, inputs, strict=True) if name in taken}
    Y, *_ = stock.run(None, feed)
    assert not Y.any()
    assert same_bits(OpSession(model, optimise).run(unit, inputs), native(case, inputs))


def test_inside_a_scan() -> None:
    """Single steps inside a loop: the weights come from outside the loop's body."""
    case = Case("vcgru", 5, 2, 40, "ragged", 1.0)
    inputs = case.inputs(torch.float32)
    (step,) = op_model("vcgru", inputs).graph.node
    step.input[:2], step.output[:] = ["x", "h"], ["y", "after", "m"]
    axes = numpy_helper.from_array(np.array([0], np.int64), "axes")
    around = [
        helper.make_node("Unsqueeze", ["row", "axes"], ["x"]),
        step,
        helper.make_node("Squeeze", ["y", "axes"], ["out"]),
    ]
    state, row = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 40])] for name in ("h", "row"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 40]) for name in ("after", "out")]
    body = helper.make_graph(around, "body", state + row, ends, [axes])
    model = op_model("vcgru", inputs, outputs=["Y", "H"])
    model.graph.node[0].CopyFrom(helper.make_node("Scan", ["H0", "X"], ["H", "Y"], body=body, num_scan_inputs=1))
    Y, H, *_ = native(case, inputs)
    assert same_bits(OpSession(model).run("vcgru", inputs), [Y, H])


def test_nothing_but_the_registration_is_visible(library: str) -> None:
    elf = Path(library).read_bytes()[:4] == b"\x7fELF"
    try:
        listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs nm, and an ELF library" if elf else "needs an ELF library")
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == ["RegisterCustomOps"]
