"""Loading: every kind of path on every backend gives the same model, and failures are explained."""

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from small_models import scheduled

import vcdeploy
from vcdeploy.errors import VcdeployError
from vcdeploy.export import assemble, build
from vcdeploy.format.checksum import seal
from vcdeploy.runtime import backends
from vcdeploy.runtime.backends import BACKENDS
from vcdeploy.runtime.model import Model, load
from vcdeploy.runtime.sampling import Reader
from vcdeploy.spec import DENSE_UNITS, PRECISIONS, QUANTIZED_PRECISIONS, VARIABLE_UNITS
from vcdeploy.training import checkpoint
from vcdeploy.training.checkpoint import Checkpoint
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

VOCAB = Vocabulary("\n abcdefé")
D, SHARPNESS = 24, 0.5

LESS_PRECISE = [name for name in PRECISIONS if name != "f32"]
ON_CPU = [name for name, row in BACKENDS.items() if not row.gpu and ":" not in name]


def need(backend: str) -> None:
    """Skip the test if a backend is not available."""
    if backend == "native" and (fault := backends.native_fault()) is not None:
        pytest.skip(f"needs the native module: {fault}")
    if backend.startswith("onnxruntime"):
        pytest.importorskip("onnxruntime")


def untrained(unit: str, layers: int = 2, vocab: Vocabulary = VOCAB) -> Checkpoint:
    torch.manual_seed(5)
    network = scheduled(LanguageModel(unit, len(vocab), D, layers=layers, sharpness=SHARPNESS))
    config = {
        "unit": unit, "dim": D, "layers": layers, "sharpness": SHARPNESS, "epsilon": 1e-3, "precision": "f32",
        "kind": vocab.kind, "buffer": vocab.buffer, "dropout": 0.0, "corpus": "demo",
    }  # fmt: skip
    return Checkpoint(config, vocab, network.state_dict(), {}, {"step": 1})


def write(folder: Path, unit: str, layers: int = 2, precision: str = "f32") -> tuple[Path, Path]:
    """Write a run's folder and the file exported from it."""
    saved = untrained(unit, layers)
    checkpoint.write(folder / "best.safetensors", saved)
    onnx.save(build(saved, precision=precision), folder / "exported.onnx")
    return folder, folder / "exported.onnx"


@pytest.fixture(scope="module")
def vcgru(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write(tmp_path_factory.mktemp("vcgru"), "vcgru")


def rounding(steps: int) -> float:
    """The float32 rounding bound after `steps` steps, as in tests/runtime/test_native.py, for each of two layers."""
    return 2 * 2.0**-24 * (2 * D) ** 0.5 * (1 + SHARPNESS * D / 4) ** steps


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("unit", VARIABLE_UNITS)
@pytest.mark.parametrize("backend", ON_CPU)
def test_every_backend_runs_every_path_the_same(backend: str, unit: str, layers: int, tmp_path: Path) -> None:
    need(backend)
    folder, exported = write(tmp_path, unit, layers)
    reference = load(folder, "torch")
    tokens = np.random.default_rng(0).integers(0, len(VOCAB), (4, 3))
    prime = VOCAB.encode("ab cé")
    several: list[dict[str, Any]] = [{}, {"temperature": 1.1, "top_k": 5, "top_p": 0.9, "seed": 3}]
    wanted_ids = [list(reference.generate(prime, 24, **settings)) for settings in several]
    for path in (folder, folder / "best.safetensors", exported):
        model = load(path, backend)
        assert (model.backend, model.vocab, model.precision) == (backend, VOCAB, "f32")
        assert (model.config["unit"], model.config["dim"], model.config["layers"]) == (unit, D, layers)
        state: Any = None
        wanted_state: Any = None
        for position in (0, 2):  # the state carries over
            *outputs, m = model.run(tokens[position : position + 2], state, position)
            *wanted, wanted_m = reference.run(tokens[position : position + 2], wanted_state, position)
            for got, want in zip((*outputs, m), (*wanted, wanted_m), strict=True):
                assert got.shape == want.shape
                assert np.abs(got - want).max() <= rounding(position + 2)
            state, wanted_state = outputs[1], wanted[1]
        assert [list(model.generate(prime, 24, **settings)) for settings in several] == wanted_ids


@pytest.mark.parametrize("precision", LESS_PRECISE)
@pytest.mark.parametrize("backend", ["native", "onnxruntime", "onnxruntime:function"])
@pytest.mark.parametrize("unit", VARIABLE_UNITS)
def test_a_file_of_less_precision_gives_the_same_symbols_everywhere(
    unit: str, backend: str, precision: str, tmp_path: Path
) -> None:
    need(backend)
    _, exported = write(tmp_path, unit, precision=precision)
    model, reference = load(exported, backend), load(exported, "torch")
    assert model.precision == reference.precision == precision
    prime = VOCAB.encode("ab cé")
    for seed in range(4):
        assert list(model.generate(prime, 50, seed=seed)) == list(reference.generate(prime, 50, seed=seed))


@pytest.mark.parametrize("unit", DENSE_UNITS)
@pytest.mark.parametrize("precision", ["f32", *QUANTIZED_PRECISIONS])
def test_dense_units_run_from_a_file_too(unit: str, precision: str, tmp_path: Path) -> None:
    folder, exported = write(tmp_path, unit, precision=precision)
    assert load(exported).backend == load(folder).backend == "native"
    prime = VOCAB.encode("ab")
    wanted = list(load(exported, "torch").generate(prime, 40))
    assert list(load(exported).generate(prime, 40)) == wanted


@pytest.mark.parametrize("precision", LESS_PRECISE)
def test_native_takes_another_precision_than_the_file(precision: str, vcgru: tuple[Path, Path]) -> None:
    need("native")
    for path in vcgru:
        model = load(path, "native", precision)
        assert model.precision == precision
        assert len(list(model.generate([1, 2], 40))) == 40
        assert np.abs(model.run(np.array([[2]]))[0] - load(path, "native").run(np.array([[2]]))[0]).max() > 0


@pytest.mark.parametrize("backend", ["onnxruntime", "torch"])
def test_others_do_not(backend: str, vcgru: tuple[Path, Path]) -> None:
    for path in vcgru:
        with pytest.raises(VcdeployError, match=r"is f32, and the .* backend.*export --precision int8"):
            load(path, backend, "int8")


def test_a_description_that_no_unit_takes(tmp_path: Path) -> None:
    saved = untrained("vcgru")
    config = {**saved.config, "epsilon": 0.5}
    onnx.save(assemble(config, saved.vocab, saved.parameters()), tmp_path / "half.onnx")
    with pytest.raises(VcdeployError, match=r"the description of .*half\.onnx is invalid.*epsilon between 0 and 0\.5"):
        load(tmp_path / "half.onnx", "torch")


def test_auto_takes_the_first_that_is_here(vcgru: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"onnxruntime": True, "torch": True}
    monkeypatch.setattr(backends, "find_spec", lambda name: found.get(name))
    monkeypatch.setattr(backends, "native_fault", lambda: None)
    assert backends.choose("vcgru").name == "native"
    assert backends.choose("gru").name == "native"
    assert backends.choose("crnn").name == "torch"
    monkeypatch.setattr(backends, "native_fault", lambda: "no such file")
    assert backends.choose("vcgru").name == "onnxruntime"
    found["onnxruntime"] = False
    assert backends.choose("vcgru").name == "torch"
    assert load(vcgru[1]).backend == "torch"
    found["torch"] = False
    with pytest.raises(VcdeployError, match=r"no backend here runs vcgru.*onnxruntime>=1\.20.*torch>=2\.8"):
        backends.choose("vcgru")


def test_a_named_backend_runs_or_is_an_error(vcgru: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "native_fault", lambda: "undefined symbol: x")
    with pytest.raises(VcdeployError, match=r"native backend can't be used here \(undefined symbol: x\).*doctor"):
        load(vcgru[0], "native")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(VcdeployError, match=r'onnxruntime backend needs onnxruntime.*"onnxruntime>=1\.20"'):
        load(vcgru[1], "onnxruntime")
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(VcdeployError, match=r'tensorrt backend needs tensorrt.*"onnxruntime-gpu.*"tensorrt>=10\.0"'):
        load(vcgru[1], "tensorrt")
    with pytest.raises(VcdeployError, match="no backend 'cuda'; choose from auto, native"):
        load(vcgru[1], "cuda")
    with pytest.raises(VcdeployError, match="no precision 'fp8'"):
        load(vcgru[1], precision="fp8")
    with pytest.raises(VcdeployError, match="threads must be from 1 to 256, not 0"):
        load(vcgru[1], threads=0)


def test_onnxruntime_reports_its_form_and_can_use_the_function_body(vcgru: tuple[Path, Path]) -> None:
    need("onnxruntime")
    reference = list(load(vcgru[0], "torch").generate([1], 20))
    for path in vcgru:
        usual, body = load(path, "onnxruntime"), load(path, backends.FUNCTION_BODY)
        assert usual.backend == body.backend == "onnxruntime"
        assert (usual.detail, body.detail) == ("custom op", "function body")
        assert list(usual.generate([1], 20)) == list(body.generate([1], 20)) == reference
    assert load(vcgru[0], "torch").detail == ""


def test_native_refuses_a_crnn(tmp_path: Path) -> None:
    need("native")
    checkpoint.write(tmp_path / "best.safetensors", untrained("crnn", 1))
    with pytest.raises(VcdeployError, match="doesn't run 'crnn'"):
        load(tmp_path, "native")


def test_a_crnn_runs_in_pytorch_only(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "last.safetensors", untrained("crnn", 1, Vocabulary("01", "bits")))
    model = load(tmp_path)
    assert model.backend == "torch"
    _, state, _ = model.run(np.array([[1]]))
    assert len(list(model.generate([0, 1], 20))) == 20
    model.run(np.array([[1]]), state, 1)
    with pytest.raises(VcdeployError, match="cannot be exported"):
        load(tmp_path, "onnxruntime")


def test_without_pytorch_a_checkpoint_names_the_extra(
    vcgru: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(VcdeployError, match=r'loading a checkpoint needs torch.*"torch>=2\.8"'):
        load(vcgru[0])
    with pytest.raises(VcdeployError, match=r"torch backend needs torch"):
        load(vcgru[1], "torch")


@pytest.mark.parametrize("backend", ["native", "onnxruntime"])
def test_an_exported_file_needs_no_pytorch(backend: str, vcgru: tuple[Path, Path]) -> None:
    need(backend)
    code = (
        "import sys; sys.modules['torch'] = sys.modules['safetensors'] = None; import vcdeploy; "
        "assert not {'onnx', 'numpy'} & set(sys.modules); "
        f"print(len(list(vcdeploy.load({str(vcgru[1])!r}, {backend!r}).generate([1], 3))))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "3\n"), result.stderr


def test_load_is_there_without_an_import(vcgru: tuple[Path, Path]) -> None:
    assert vcdeploy.load is load
    assert isinstance(vcdeploy.load(str(vcgru[1]), "torch"), Model)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        vcdeploy.lode  # noqa: B018


def test_a_file_by_another_name_is_known_by_its_content(vcgru: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes((vcgru[0] / "best.safetensors").read_bytes())
    (tmp_path / "two").write_bytes(vcgru[1].read_bytes())
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "model.onnx").write_bytes(vcgru[1].read_bytes())
    made = [list(load(path, "torch").generate([1], 20)) for path in (tmp_path / "one", tmp_path / "two", bundle)]
    assert made[0] == made[1] == made[2]


def test_paths_that_hold_no_model(tmp_path: Path) -> None:
    with pytest.raises(VcdeployError, match=r"no model at .*no\.onnx: give the file of `vcdeploy export`"):
        load(tmp_path / "no.onnx")
    with pytest.raises(VcdeployError, match=r"holds no best\.safetensors"):
        load(tmp_path)
    for content in (b"", b"text, of any kind"):
        (tmp_path / "notes.onnx").write_bytes(content)
        with pytest.raises(VcdeployError, match=r"notes\.onnx"):
            load(tmp_path / "notes.onnx")
    (tmp_path / "notes.safetensors").write_bytes(b"text, of any kind")
    with pytest.raises(VcdeployError, match="not a complete vcdeploy checkpoint"):
        load(tmp_path / "notes.safetensors")


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize(
    ("changes", "lost", "said"),
    [
        ({"dim": 10**6}, "", r"embedding has the shape \[9, 24\] and type 1, not \[9, 1000000\]"),
        ({"dim": 25}, "", r"embedding has the shape \[9, 24\] and type 1, not \[9, 25\]"),
        ({"dim": 23}, "", r"embedding has the shape \[9, 24\] and type 1, not \[9, 23\]"),
        ({"layers": 10**6}, "", "it has 13 weights for 1000000 layers"),
        ({"layers": 10**12}, "", "is incomplete or invalid"),
        ({"sharpness": None}, "", "has sharpness = None, which is invalid"),
        ({"epsilon": 0}, "", "has epsilon = 0, which is invalid"),
        ({"precision": ["f32"]}, "", r"has precision = \['f32'\], which is invalid"),
        ({"layers": 3}, "", r"it has no weights layers\.2\.U"),
        ({}, "layers.1.U", r"it has no weights layers\.1\.U"),
        ({}, "output.weight", r"it has no weights output\.weight"),
        ({"unit": "vclstm"}, "", r"layers\.0"),
    ],
)
def test_a_file_that_contradicts_itself(
    backend: str, changes: dict[str, Any], lost: str, said: str, vcgru: tuple[Path, Path], tmp_path: Path
) -> None:
    need(backend)
    model = onnx.load(vcgru[1])
    for each in model.metadata_props:
        if each.key == "vcdeploy.config":
            each.value = json.dumps(json.loads(each.value) | changes)
    kept = [each for each in model.graph.initializer if each.name != lost]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    onnx.save(seal(model), tmp_path / "model.onnx")
    with pytest.raises(VcdeployError, match=said):
        load(tmp_path / "model.onnx", backend)


def test_too_little_memory_is_said(vcgru: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def starve(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("vcdeploy.runtime.torch.start", starve)
    with pytest.raises(VcdeployError, match="needs more memory than is available: use a smaller"):
        load(vcgru[1], "torch")


@pytest.mark.parametrize("backend", ON_CPU)
def test_other_integers_are_tokens_too(backend: str, vcgru: tuple[Path, Path]) -> None:
    need(backend)
    model, tokens = load(vcgru[1], backend, threads=2), np.array([[1], [2]])
    for one, other in zip(model.run(tokens), model.run(tokens.astype(np.uint8)), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("backend", ON_CPU)
def test_wrong_arrays_get_the_same_message(backend: str, vcgru: tuple[Path, Path]) -> None:
    need(backend)
    model = load(vcgru[1], backend)
    with pytest.raises(VcdeployError, match=r"integers of shape \[T, B\].*not float64 \[1, 1\]"):
        model.run(np.array([[0.5]]))
    with pytest.raises(VcdeployError, match=r"integers of shape \[T, B\]"):
        model.run(np.array([1, 2]))
    with pytest.raises(VcdeployError, match=r"not int64 \[0, 1\]"):
        model.run(np.zeros((0, 1), np.int64))
    with pytest.raises(VcdeployError, match="no symbol -1"):
        model.run(np.array([[3, -1]]))
    with pytest.raises(VcdeployError, match=r"no symbol 9; the ids of .* are 0 to 8"):
        model.run(np.array([[9]]))
    with pytest.raises(VcdeployError, match=r"state of shape \[2, 1, 24\] here, not \[1, 1, 24\]"):
        model.run(np.array([[1]]), np.zeros((1, 1, D), np.float32))
    # These errors are raised before the first symbol is requested.
    with pytest.raises(VcdeployError, match="no symbol -1"):
        model.generate([-1])
    with pytest.raises(VcdeployError, match="at least one symbol"):
        model.generate([])
    with pytest.raises(VcdeployError, match=r"pass model\.vocab\.encode\(prime\)"):
        model.generate("ab")
    with pytest.raises(VcdeployError, match=r"ids of model\.vocab\.encode, not float64"):
        model.generate([0.5])
    for wrong in ({"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0.0}, {"length": -1}):
        with pytest.raises(VcdeployError, match=next(iter(wrong))):
            model.generate([1], **wrong)


@pytest.mark.parametrize("backend", ON_CPU)
def test_symbols_come_one_by_one_and_the_seed_decides(backend: str, vcgru: tuple[Path, Path]) -> None:
    need(backend)
    model = load(vcgru[1], backend)
    whole = list(model.generate([1], 50, seed=4))
    tokens = model.generate([1], 10**9, seed=4)  # never fully generated
    assert [next(tokens) for _ in range(50)] == whole
    assert list(model.generate([1], 50, seed=5)) != whole
    assert list(model.generate([1], 0)) == []


@pytest.mark.parametrize("backend", ON_CPU)
def test_a_reader_returns_bits_and_m(backend: str, vcgru: tuple[Path, Path]) -> None:
    need(backend)
    model = load(vcgru[1], backend)
    ids = VOCAB.encode("ab cadé\nfe")
    logits, _, m = model.run(ids.reshape(-1, 1))
    logits = logits[:, 0].astype(np.float64)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    reader = Reader(model)
    pieces = [reader.read(ids[:4]), reader.read(ids[4:5]), reader.read(ids[5:])]
    bits, fractions = (np.concatenate(each) for each in zip(*pieces, strict=True))
    assert np.isnan(bits[0])
    # Single steps and a whole run may round differently, as any two backends may.
    assert bits[1:] == pytest.approx(-np.log2(p[np.arange(len(ids) - 1), ids[1:]]), abs=rounding(4))
    assert fractions == pytest.approx(m[:, 0].mean(-1), abs=rounding(4))


@pytest.mark.parametrize("backend", ON_CPU)
def test_a_model_is_pickled_by_its_source(
    backend: str, vcgru: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(backend)
    monkeypatch.chdir(vcgru[1].parent)
    model = load(vcgru[1].name, backend)
    content = pickle.dumps(model)
    assert len(content) < 1000  # no weights
    monkeypatch.chdir(tmp_path)
    for again in (pickle.loads(content), copy.deepcopy(model)):
        assert (again.backend, again.detail, again.precision) == (model.backend, model.detail, model.precision)
        for one, other in zip(model.run(np.array([[1], [2]])), again.run(np.array([[1], [2]])), strict=True):
            assert np.array_equal(one, other)
    model.origin = None
    with pytest.raises(VcdeployError, match="only models of load can be pickled"):
        pickle.dumps(model)


def test_a_pickled_model_keeps_its_options(vcgru: tuple[Path, Path]) -> None:
    need("native")
    model = pickle.loads(pickle.dumps(load(vcgru[1], precision="int8", threads=2, isa="portable")))
    assert (model.backend, model.precision, model.detail) == ("native", "int8", "portable")
    assert pickle.loads(pickle.dumps(load("irish"))).name == load("irish").name


def test_the_instruction_set_can_be_chosen(vcgru: tuple[Path, Path]) -> None:
    need("native")
    from vcdeploy import _native

    for isa in _native.instruction_sets():
        assert load(vcgru[1], isa=isa).detail == isa
    assert load(vcgru[1], isa="auto").detail == _native.instruction_sets()[0]
    with pytest.raises(VcdeployError, match="no instruction set 'sse'; choose from avx512, avx512vl, avx2, portable"):
        load(vcgru[1], isa="sse")
    with pytest.raises(VcdeployError, match="only the native backend has instruction sets"):
        load(vcgru[1], "torch", isa="avx2")


untyped: Any = load  # to call it with wrong types


@pytest.mark.parametrize(
    "call",
    [
        lambda model, path: untyped(None),
        lambda model, path: untyped(3),
        lambda model, path: untyped("x" * 5000),
        lambda model, path: untyped(path, threads="2"),
        lambda model, path: untyped(path, threads=1.5),
        lambda model, path: untyped(path, threads=10**6),
        lambda model, path: untyped(path, "torch", threads="2"),
        lambda model, path: untyped(path, "torch", threads=0),
        lambda model, path: untyped(path, ["native"]),
        lambda model, path: untyped(path, precision=["f32"]),
        lambda model, path: model.run([[1], [2, 3]]),
        lambda model, path: model.run(None),
        lambda model, path: model.run("ab"),
        lambda model, path: model.run(np.array([[1]]), "x"),
        lambda model, path: model.run(np.array([[1]]), [[1], [2, 3]]),
        lambda model, path: model.run(np.array([[2**63]], np.uint64)),
        lambda model, path: model.generate([[1], [2, 3]]),
        lambda model, path: model.generate([1], "x"),
        lambda model, path: model.generate([1], 1.5),
        lambda model, path: model.generate([1], 3, warmth=1),
        lambda model, path: model.generate([1], 3, temperature="x"),
        lambda model, path: model.generate([1], 3, 5),
        lambda model, path: model.generate([1], 3, seed=-1),
        lambda model, path: model.generate([1], 3, seed="x"),
        lambda model, path: model.generate([2**70], 3),
        lambda model, path: model.vocab.encode(5),
        lambda model, path: model.vocab.decode(["x"]),
        lambda model, path: model.vocab.decode([2**70]),
    ],
)
def test_every_error_is_one_of_ours(call: Callable[[Any, Any], Any], vcgru: tuple[Path, Path]) -> None:
    need("native")
    with pytest.raises(VcdeployError):
        call(load(vcgru[1], "native"), vcgru[1])
