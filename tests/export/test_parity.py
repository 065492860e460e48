"""The check after an export: correct files pass, each kind of wrong file fails."""

import importlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper

from vcdeploy.custom_ops import HOW_TO_BUILD
from vcdeploy.errors import VcdeployError
from vcdeploy.export import build, parity
from vcdeploy.export.parity import Report, check_export
from vcdeploy.format.checksum import seal
from vcdeploy.runtime import backends
from vcdeploy.spec import DENSE_UNITS, PRECISIONS, VARIABLE_UNITS
from vcdeploy.training.checkpoint import Checkpoint

MakeCheckpoint = Callable[..., Checkpoint]


def checked(model: ModelProto, checkpoint: Checkpoint) -> Report:
    return check_export(model, seal(model).SerializeToString(), checkpoint.build())


def too_far(report: Report) -> set[str]:
    return {each.output for each in report.differences if not each.within}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("dim", [7, 40])
@pytest.mark.parametrize("unit", [*VARIABLE_UNITS, *DENSE_UNITS])
def test_right_files_pass(unit: str, dim: int, precision: str, make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint(unit, dim)
    report = checked(build(checkpoint, precision=precision), checkpoint)
    assert report.passed, too_far(report)
    assert {each.output for each in report.differences} == {"logits", "state", "compute"}
    assert all(each.compared for each in report.differences)
    against = {each.against for each in report.differences}
    assert ("PyTorch, full precision" in against) == (precision != "f32")
    rows = 4 if unit.endswith("lstm") else 2
    assert [each.shape for each in report.outputs] == [(24, 4, 9), (rows, 4, dim), (24, 4, 2)]


@pytest.mark.parametrize(("dim", "sharpness"), [(1, 1.0), (64, 0.1), (300, 1.0), (300, 0.2)])
@pytest.mark.parametrize("form", [{}, {"bucketed": True}, {"portable": True}], ids=str)
@pytest.mark.parametrize("unit", VARIABLE_UNITS)
def test_right_files_pass_at_other_sizes(
    unit: str, form: dict[str, bool], dim: int, sharpness: float, make_checkpoint: MakeCheckpoint
) -> None:
    checkpoint = make_checkpoint(unit, dim, 1, sharpness)
    report = checked(build(checkpoint, **form), checkpoint)
    assert report.passed, too_far(report)


def test_tolerance_of_a_precision_is_as_large_as_its_rounding(make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint("vcgru", 64)
    tolerances = {}
    for precision in ("f16", "bf16", "int8", "w8a8"):
        for each in checked(build(checkpoint, precision=precision), checkpoint).differences:
            if each.against == "PyTorch, full precision":
                tolerances[precision, each.output] = each.tolerance
                assert each.largest >= each.tolerance / 100, "a bound this far off holds nothing"
    for output in ("logits", "state", "compute"):
        assert tolerances["f16", output] < tolerances["bf16", output] < tolerances["int8", output]
    for output in ("logits", "state"):  # m does not depend on how a step rounds its activations
        assert tolerances["int8", output] < tolerances["w8a8", output]


def set_attribute(model: ModelProto, op: str, name: str, value: float) -> None:
    for node in model.graph.node:
        if node.op_type == op:
            kept = [each for each in node.attribute if each.name != name]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute(name, value)])


def change_weights(model: ModelProto, name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    (initializer,) = (each for each in model.graph.initializer if each.name == name)
    initializer.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(initializer).copy()), name))


def swap_gates(stacked: NDArray[Any]) -> NDArray[Any]:
    axis = stacked.ndim - 2
    first, second, *rest = np.split(stacked, 3, axis)
    return np.concatenate([second, first, *rest], axis)


def slightly(array: NDArray[Any]) -> NDArray[Any]:
    """Changes one row by 0.1 %."""
    array[0] *= 1.001
    return array


def swap_outputs(model: ModelProto, op: str) -> None:
    for node in model.graph.node:
        if node.op_type == op:
            before = list(node.output)
            node.output[:] = [before[0], before[3], before[2], before[1]]


BREAKS: dict[str, tuple[str, str, Callable[[ModelProto], None]]] = {
    "sharpness": ("vcgru", "f32", lambda model: set_attribute(model, "VCGRU", "sharpness", 0.71)),
    "epsilon": ("vcgru", "f32", lambda model: set_attribute(model, "VCGRU", "epsilon", 2e-3)),
    "gates of a VCGRU": ("vcgru", "f32", lambda model: change_weights(model, "layers.0.U", swap_gates)),
    "gates of a GRU": ("gru", "f32", lambda model: change_weights(model, "layers.1.W", swap_gates)),
    "gates of an int8 GRU": ("gru", "int8", lambda model: change_weights(model, "layers.1.R", swap_gates)),
    "reset of a GRU": ("gru", "f32", lambda model: set_attribute(model, "GRU", "linear_before_reset", 0)),
    "h and c of a VCLSTM": ("vclstm", "f32", lambda model: swap_outputs(model, "VCLSTM")),
    "a row of V": ("vcrnn", "f32", lambda model: change_weights(model, "layers.1.V", slightly)),
    "the scheduler": ("vcrnn", "f32", lambda model: change_weights(model, "layers.1.v", slightly)),
    "the output": ("rnn", "f32", lambda model: change_weights(model, "output.bias", lambda bias: bias + 1e-4)),
    "the embedding": (
        "vclstm",
        "f32",
        lambda model: change_weights(model, "embedding", lambda array: array[::-1].copy()),
    ),
    "a scale": ("vcgru", "int8", lambda model: change_weights(model, "layers.0.V.scale", lambda scale: scale * 1.5)),
}


@pytest.mark.parametrize("name", BREAKS)
def test_wrong_files_do_not_pass(name: str, make_checkpoint: MakeCheckpoint) -> None:
    unit, precision, break_ = BREAKS[name]
    checkpoint = make_checkpoint(unit, 64)
    model = build(checkpoint, precision=precision)
    break_(model)
    report = checked(model, checkpoint)
    assert not report.passed
    if name in ("sharpness", "epsilon"):  # attributes of the op node, which both of its forms in ONNX Runtime use
        wrong = {each.runtime.partition(", ")[2] for each in report.differences if not each.within}
        assert wrong >= {"function body", "custom op"}
    assert not json.loads(json.dumps(report.to_json(), allow_nan=False))["passed"]


def test_a_sequence_that_differs_from_its_steps_does_not_pass(make_checkpoint: MakeCheckpoint) -> None:
    """With time reversed, a single step is still right: only a run over all steps at once shows the error."""
    checkpoint = make_checkpoint("gru", 40, 1)
    model = build(checkpoint)
    set_attribute_of_direction(model)
    report = checked(model, checkpoint)
    wrong = {each.against for each in report.differences if not each.within}
    assert wrong and all("at once" in against for against in wrong)


def set_attribute_of_direction(model: ModelProto) -> None:
    (node,) = (each for each in model.graph.node if each.op_type == "GRU")
    node.attribute.append(helper.make_attribute("direction", "reverse"))


def native_name() -> str:
    if (fault := backends.native_fault()) is not None:
        pytest.skip(f"needs the native module: {fault}")
    return f"native kernels, {importlib.import_module('vcdeploy._native').instruction_sets()[0]}"


@pytest.mark.parametrize("bucketed", [False, True])
@pytest.mark.parametrize("unit", [*VARIABLE_UNITS, "gru"])
def test_every_installed_runtime_is_in_the_report(unit: str, bucketed: bool, make_checkpoint: MakeCheckpoint) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    checkpoint = make_checkpoint(unit)
    if unit == "gru" and bucketed:
        pytest.skip("a GRU has no bucketed form")
    report = checked(build(checkpoint, bucketed=bucketed), checkpoint)
    stock = f"ONNX Runtime {onnxruntime.__version__}"
    wanted = {f"onnx evaluator {onnx.__version__}"}
    wanted |= {stock} if bucketed or unit == "gru" else {f"{stock}, function body"}
    wanted |= {native_name()}
    wanted |= {f"{stock}, custom op"} if unit in VARIABLE_UNITS and not bucketed else set()
    assert {each.runtime for each in report.differences} == wanted
    assert not report.left_out


def test_a_description_that_misleads_the_native_kernels_does_not_pass(make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint("vcgru", 64)
    model = build(checkpoint)
    for each in model.metadata_props:
        if each.key == "vcdeploy.config":
            each.value = json.dumps(json.loads(each.value) | {"sharpness": 0.71})
    report = checked(model, checkpoint)
    assert {each.runtime for each in report.differences if not each.within} == {native_name()}


def test_missing_parts_are_listed_with_their_fix(
    make_checkpoint: MakeCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = make_checkpoint("vcgru")
    monkeypatch.setattr(parity, "library", lambda: None)
    report = checked(build(checkpoint), checkpoint)
    assert not any("custom op" in each.runtime for each in report.differences)
    assert report.left_out == [f"the custom op for ONNX Runtime was not built: {HOW_TO_BUILD}"]
    monkeypatch.setattr(backends, "find_spec", lambda name: None)
    monkeypatch.setattr(backends, "native_fault", lambda: "undefined symbol: x")
    report = checked(build(checkpoint), checkpoint)
    assert report.passed
    assert {each.runtime for each in report.differences} == {f"onnx evaluator {onnx.__version__}"}
    assert report.left_out == [
        'ONNX Runtime: onnxruntime is not installed; run: pip install "onnxruntime>=1.20"',
        "the native kernels can't be used (undefined symbol: x): `vcdeploy doctor` says how to fix it",
    ]


def test_weights_that_the_kernels_refuse_are_an_error(make_checkpoint: MakeCheckpoint) -> None:
    native_name()
    checkpoint = make_checkpoint("vcgru")
    model = build(checkpoint)
    change_weights(model, "output.bias", lambda bias: bias * np.nan)
    with pytest.raises(VcdeployError, match=r"native kernels, .* can't load the exported model \(.*NaN"):
        checked(model, checkpoint)


def test_a_runtime_that_is_too_old_is_an_error(make_checkpoint: MakeCheckpoint) -> None:
    pytest.importorskip("onnxruntime")
    checkpoint = make_checkpoint("gru")
    model = build(checkpoint)
    model.ir_version = 1000
    with pytest.raises(VcdeployError, match=r"ONNX Runtime .* can't load the exported model; try a smaller --opset"):
        checked(model, checkpoint)
