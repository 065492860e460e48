"""Export of a user's network that contains a vcdeploy unit: torch.onnx.export, then attach_functions."""

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from small_models import scheduled
from torch import Tensor, nn

from vcdeploy.export import attach_functions
from vcdeploy.format.graph import check
from vcdeploy.units import VCGRU, VCLSTM, VCRNN

pytest.importorskip("onnxscript")

VARIABLE = {module.spec.name: module for module in (VCRNN, VCGRU, VCLSTM)}
onnxruntime = pytest.importorskip("onnxruntime")


class Classifier(nn.Module):
    """Classifies readings [T, B, 5] into four classes from the last output of the unit."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.enter = nn.Linear(5, 24)
        self.unit = scheduled(VARIABLE[unit](24, num_layers=2, sharpness=0.8, epsilon=2e-3))
        self.leave = nn.Linear(24, 4)

    def forward(self, readings: Tensor) -> tuple[Tensor, Tensor]:
        y, _, m = self.unit(torch.relu(self.enter(readings)), return_m=True)
        return self.leave(y[-1]), m.mean()


@pytest.fixture(scope="module", params=VARIABLE)
def exported(request: pytest.FixtureRequest) -> tuple[Classifier, onnx.ModelProto]:
    torch.manual_seed(3)
    network = Classifier(request.param).eval()
    shapes = ({0: torch.export.Dim("T", min=2), 1: torch.export.Dim("B", min=2)},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecations
        program: Any = torch.onnx.export(
            network, (torch.randn(7, 3, 5),), dynamo=True, dynamic_shapes=shapes, verbose=False
        )
    return network, program.model_proto


def test_the_graph_has_the_op_with_its_attributes(exported: tuple[Classifier, onnx.ModelProto]) -> None:
    network, model = exported
    nodes = [node for node in model.graph.node if node.domain == "vcdeploy"]
    assert [node.op_type for node in nodes] == [type(network.unit).__name__] * 2
    for node in nodes:
        attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        assert attributes == {
            "sharpness": pytest.approx(0.8),
            "epsilon": pytest.approx(2e-3),
            "plugin_version": b"1",
            "plugin_namespace": b"",
        }
    assert nodes[1].input[2] == "unit.layers.1.U"
    assert {"unit.layers.0.U", "unit.layers.1.v"} <= {each.name for each in model.graph.initializer}


@pytest.mark.parametrize("shape", [(7, 3), (1, 1), (20, 4)])
def test_attached_it_runs_in_stock_onnx_runtime(
    exported: tuple[Classifier, onnx.ModelProto], shape: tuple[int, int]
) -> None:
    network, bare = exported
    model = onnx.ModelProto()
    model.CopyFrom(bare)
    check(attach_functions(model))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    readings = torch.randn(*shape, 5, generator=torch.Generator().manual_seed(1))
    got = session.run(None, {session.get_inputs()[0].name: readings.numpy()})
    with torch.no_grad():
        wanted = network(readings)
    # 2^-24 is the rounding unit: √(2D) of it in a sum, sharpness·D/2 of it through the mask, per step and layer.
    tolerance = 8 * 2.0**-24 * 2 * shape[0] * ((2 * 24) ** 0.5 + 0.8 * 24 / 2)
    for one, other in zip(got, wanted, strict=True):
        assert np.abs(one - other.numpy()).max() <= tolerance


def test_without_the_functions_a_stock_runtime_refuses(exported: tuple[Classifier, onnx.ModelProto]) -> None:
    with pytest.raises(Exception, match=r"vcdeploy:VC\w+\(-1\) is not a registered function/op"):
        onnxruntime.InferenceSession(exported[1].SerializeToString(), providers=["CPUExecutionProvider"])
