"""Reading a model file's bytes: the same values that onnx reads, without its copies."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from exported import VOCAB, D, exported
from onnx import TensorProto, helper
from stored import stored_weights

from vcdeploy.errors import VcdeployError
from vcdeploy.format import checksum, reader
from vcdeploy.runtime.backends import native_fault
from vcdeploy.runtime.model import load
from vcdeploy.spec import PRECISIONS


@pytest.mark.parametrize("unit", ["vclstm", "gru"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_numbers_are_those_onnx_reads(unit: str, precision: str) -> None:
    model = exported(unit, precision)
    content = model.SerializeToString()
    read = reader.read(content)
    wanted = stored_weights(model)
    assert read.weights.keys() == wanted.keys()
    for name, array in wanted.items():
        assert np.array_equal(read.weights[name].wide(), array), name
        kept = PRECISIONS[precision if array.ndim > 1 else "f32"]  # int8 and w8a8 store the same
        assert PRECISIONS[read.weights[name].precision].onnx_type == kept.onnx_type
        assert not read.weights[name].values.flags.owndata  # a view of the file
    assert read.metadata == {each.key: each.value for each in model.metadata_props if each.key != checksum.KEY}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_packing_from_the_stored_bytes_is_packing_from_floats(precision: str) -> None:
    """Bit for bit: rows are widened one by one to the same values."""
    if (fault := native_fault()) is not None:
        pytest.skip(f"needs the native module: {fault}")
    from vcdeploy.runtime.native import NativeModel

    weights = reader.read(exported(precision=precision).SerializeToString()).weights
    tokens = np.random.default_rng(0).integers(0, len(VOCAB), (9, 3))
    for packed in ("f32", precision):
        models = [
            NativeModel(each, VOCAB, unit="vcgru", sharpness=0.5, precision=packed)
            for each in (weights, {name: stored.wide() for name, stored in weights.items()})
        ]
        for got, want in zip(*(model.run(tokens) for model in models), strict=True):
            assert np.array_equal(got, want)


def test_half_precision_widens_as_numpy_does() -> None:
    """Every finite f16, including subnormals, in the output layer: with h = (1, 0) the logits are its first column."""
    if (fault := native_fault()) is not None:
        pytest.skip(f"needs the native module: {fault}")
    from vcdeploy import _native

    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    every = halves[np.isfinite(halves)].reshape(-1, 2)  # [31744, 2]
    embedding, square, vector = (np.zeros(shape, np.float32) for shape in ((len(every), 2), (2, 2), 2))
    untouched = np.full(1, -80, np.float32)  # b: m is 0, and the state does not change
    model = _native.Model(
        "vcrnn",
        embedding,
        [[square, square, vector, vector, untouched]],
        (every.view(np.uint8), "f16", None),
        embedding[:, 0].copy(),
        sharpness=100.0,
        epsilon=1e-3,
    )
    for column, state in enumerate(np.eye(2, dtype=np.float32)):
        logits, _, _ = model.run(np.zeros((1, 1), np.int64), state.reshape(1, 1, 2))
        assert np.array_equal(logits[0, 0], every[:, column].astype(np.float32))


def test_numbers_by_type_are_read_too() -> None:
    """Typed fields, as onnx.helper.make_tensor writes them without raw=True."""
    model = exported()
    wanted = stored_weights(model)
    for each in model.graph.initializer:
        array = onnx.numpy_helper.to_array(each)
        each.CopyFrom(helper.make_tensor(each.name, TensorProto.FLOAT, array.shape, array.flatten().tolist()))
    read = reader.read(checksum.seal(model).SerializeToString())
    for name, array in wanted.items():
        assert np.array_equal(read.weights[name].wide(), array)


def test_other_files_are_left_alone() -> None:
    model = exported()
    model.graph.initializer.append(helper.make_tensor("shape", TensorProto.INT64, [2], [1, 2]))
    assert "shape" not in reader.read(checksum.seal(model).SerializeToString()).weights


@pytest.mark.parametrize("backend", ["native", "onnxruntime", "torch"])
def test_nothing_outside_the_file_is_read(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = exported()
    del model.metadata_props[-1]  # the checksum of the file with its weights inside
    onnx.save(model, "model.onnx", save_as_external_data=True, location="secret.bin", size_threshold=0)
    assert (tmp_path / "secret.bin").stat().st_size > D * D
    with pytest.raises(VcdeployError, match="is stored in another file, but a model must be one file"):
        load("model.onnx", backend)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x3a\x05abc", "cut short"),
        (b"\x3a", "ends within a number"),
        (b"\xff" * 11, "more than 64 bits"),
        (b"\x73\x74", "broken or cut short"),
        (b"\x38\x01", "found the number 1 where a message was expected"),
        (b"\x72\x02\x08\x01", "found the number 1 where text was expected"),
    ],
)
def test_what_is_no_protobuf(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        reader.read(content)


@pytest.mark.parametrize("dims", [[-1, D], [2**62, 2**62], [D], [7, D + 1], []])
def test_shapes_must_fit_the_numbers(dims: list[int]) -> None:
    model = exported()
    (embedding,) = (each for each in model.graph.initializer if each.name == "embedding")
    embedding.dims[:] = dims
    with pytest.raises(ValueError, match="embedding has the shape"):
        reader.read(checksum.seal(model).SerializeToString())
