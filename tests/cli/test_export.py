"""`vcdeploy export` as a user types it: what is written, what is said, and what happens when the check fails."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from small_models import write_checkpoint

from vcdeploy import cli
from vcdeploy.format import graph
from vcdeploy.format.checksum import seal
from vcdeploy.runtime.onnxruntime import OnnxRuntimeModel
from vcdeploy.spec import DENSE_UNITS, VARIABLE_UNITS


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.main, ["export", *map(str, arguments)], prog_name="vcdeploy")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder."""
    write_checkpoint(tmp_path / "run" / "best.safetensors", "vcgru")
    return tmp_path / "run"


@pytest.mark.parametrize("unit", VARIABLE_UNITS + DENSE_UNITS)
def test_writes_and_reports_the_difference(unit: str, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "best.safetensors", unit)
    result = run(path, "-o", tmp_path / "new" / "model.onnx")
    assert result.exit_code == 0, result.output
    assert "largest difference" in result.output
    assert "PyTorch" in result.output and "onnx evaluator" in result.output
    assert "TOO FAR" not in result.output
    assert f"wrote {tmp_path / 'new' / 'model.onnx'}: {unit}-32, f32, 0.0 MB" in result.output.replace("\n", "")
    onnx.checker.check_model(tmp_path / "new" / "model.onnx", full_check=True)


def test_int8_says_that_stock_runtimes_are_faster_in_f16(folder: Path) -> None:
    for precision in ("f16", "int8"):
        result = run(folder, "--precision", precision)
        assert ("use --precision f16" in result.output.replace("\n", " ")) == (precision == "int8")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ([], "best.onnx"),
        (["--precision", "int8"], "best-int8.onnx"),
        (["--precision", "w8a8"], "best-w8a8.onnx"),
        (["--bucketed"], "best-bucketed.onnx"),
        (["--portable"], "best-portable.onnx"),
        (["--precision", "bf16", "--bucketed", "--opset", "21"], "best-bf16-bucketed.onnx"),
    ],
)
def test_the_file_is_next_to_the_checkpoint(options: list[str], name: str, folder: Path) -> None:
    result = run(folder, *options)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in folder.iterdir()) == sorted(["best.safetensors", name])
    model = onnx.load(folder / name)
    assert model.opset_import[0].version == (21 if "--opset" in options else 18)


def test_json_is_one_document(folder: Path) -> None:
    result = run(folder, "--precision", "f16", "--json")
    document = json.loads(result.stdout)
    assert document["passed"] is True
    assert document["written"] == [str(folder / "best-f16.onnx")]
    assert document["bytes"] == (folder / "best-f16.onnx").stat().st_size
    assert all(row["within"] and row["largest"] <= row["tolerance"] for row in document["differences"])


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_nothing_but_the_file_goes_to_standard_output(folder: Path, tmp_path: Path, options: list[str]) -> None:
    """Whether it is a pipe or redirected into a file."""
    link = tmp_path / "link"
    link.symlink_to("/proc/self/fd/1")  # as /dev/stdout is, which a mistake would replace
    command = [sys.executable, "-m", "vcdeploy", "export", str(folder), "-o", str(link), *options]
    piped = subprocess.run(command, capture_output=True)
    assert piped.returncode == 0, piped.stderr
    assert ('"passed": true' if options else f"wrote {link}: vcgru") in piped.stderr.decode()
    onnx.checker.check_model(onnx.load_from_string(piped.stdout))
    with open(tmp_path / "out.onnx", "wb") as out:
        subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, check=True)
    assert (tmp_path / "out.onnx").read_bytes() == piped.stdout


def test_bundle(folder: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    result = run(folder, "--bundle", bundle)
    assert result.exit_code == 0, result.output
    assert not list(folder.glob("*.onnx"))
    assert {path.name for path in bundle.iterdir()} == {"model.onnx", "manifest.json", "samples.npz", "report.json"}
    manifest = json.loads((bundle / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        content = (bundle / name).read_bytes()
        assert entry == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert {"vcdeploy", "python", "torch", "onnx", "numpy"} <= manifest["versions"].keys()
    source = (folder / "best.safetensors").read_bytes()
    assert manifest["checkpoint"] == {"name": "best.safetensors", "sha256": hashlib.sha256(source).hexdigest()}
    assert str(tmp_path) not in json.dumps(manifest)
    assert json.loads((bundle / "report.json").read_text())["passed"] is True


def test_a_web_page_gets_one_model_after_another(folder: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    result = run(folder, "--web", site)
    assert result.exit_code == 0, result.output
    assert run(write_checkpoint(tmp_path / "other.safetensors", "vclstm"), "--web", site).exit_code == 0
    listed = json.loads((site / "models.json").read_text())
    assert [(each["id"], each["file"], each["unit"]) for each in listed] == [
        ("best", "best.onnx", "vcgru"),
        ("other", "other.onnx", "vclstm"),
    ]
    page = Path(cli.__file__).parents[1] / "serving" / "page"
    copied = {path.relative_to(page) for path in page.rglob("*") if path.is_file()} - {Path("server.js")}
    assert {path.relative_to(site) for path in site.rglob("*") if path.is_file()} == copied | {
        Path("models.json"), Path("best.onnx"), Path("other.onnx")
    }  # fmt: skip
    assert 'from "./browser.js"' in (site / "engine.js").read_text()
    assert "--force" in run(folder, "--web", site).output
    assert run(folder, "--web", site, "--force").exit_code == 0
    assert [each["id"] for each in json.loads((site / "models.json").read_text())] == ["other", "best"]


@pytest.mark.parametrize(
    ("unit", "options", "said"),
    [
        ("gru", [], "variable unit, not a gru of text"),
        ("vcgru", ["--bucketed"], "leave out --trt, --bucketed and --portable"),
        ("vcgru", ["--portable"], "leave out --trt, --bucketed and --portable"),
        ("vcgru", ["--trt"], "leave out --trt, --bucketed and --portable"),
    ],
)
def test_what_a_web_page_cannot_run(unit: str, options: list[str], said: str, tmp_path: Path) -> None:
    result = run(write_checkpoint(tmp_path / "best.safetensors", unit), "--web", tmp_path / "site", *options)
    assert result.exit_code == 2 and said in " ".join(result.output.split())
    assert not (tmp_path / "site").exists()


def test_a_list_of_models_that_is_none(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "models.json").write_text("[1]")
    result = run(folder, "--web", tmp_path)
    assert result.exit_code == 1 and "is no list of models" in result.output
    assert not (tmp_path / "best.onnx").exists()


def test_an_exported_file_is_exported_in_another_form(folder: Path, tmp_path: Path) -> None:
    """As if it had been written from the checkpoint; f16 and back to f32 has the rounded weights."""
    first, again, direct = (tmp_path / name for name in ("first.onnx", "again.onnx", "direct.onnx"))
    for source, precision, target in ((folder, "f32", first), (first, "f16", again), (folder, "f16", direct)):
        assert run(source, "--precision", precision, "-o", target).exit_code == 0

    def weights(path: Path) -> dict[str, bytes]:
        return {each.name: each.SerializeToString() for each in onnx.load(path).graph.initializer}

    assert weights(again) == weights(direct)
    result = run(again, "--bucketed")  # in its own precision, beside it
    assert result.exit_code == 0, result.output
    assert weights(tmp_path / "again-bucketed.onnx") == weights(direct)


def test_it_does_not_write_over_the_model_it_reads(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    assert run(folder, "-o", path).exit_code == 0
    before = path.read_bytes()
    for options in ([], ["-o", str(path)], ["--bundle", str(tmp_path)]):
        result = run(path, *options)
        assert result.exit_code == 1
        assert "is the model itself" in result.stderr
    assert path.read_bytes() == before


def test_a_pretrained_model_is_written_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("irish", "--precision", "int8")
    assert result.exit_code == 0, result.output
    assert "wrote irish-int8.onnx: vcgru-512, int8" in result.output


def test_samples_of_a_bundle_are_what_the_model_does(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    run(folder, "--bundle", tmp_path / "bundle", "--precision", "int8", "-o", tmp_path / "too.onnx")
    assert (tmp_path / "too.onnx").read_bytes() == (tmp_path / "bundle" / "model.onnx").read_bytes()
    with np.load(tmp_path / "bundle" / "samples.npz") as file:
        samples = dict(file)
    model = OnnxRuntimeModel(tmp_path / "bundle" / "model.onnx")
    got = model.run(samples["tokens"], samples["state"])
    # As in tests/export/test_graph.py, for 24 steps.
    tolerance = 8 * 2.0**-24 * 24 * ((2 * 32) ** 0.5 + 0.6 * 32 / 2)
    for one, name in zip(got, ("logits", "state_out", "compute"), strict=True):
        assert np.abs(one - samples[name]).max() <= tolerance


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export whose output layer is off by a thousandth."""
    build: Callable[..., Any] = graph.build

    def wrong(*arguments: Any, **settings: Any) -> onnx.ModelProto:
        model: onnx.ModelProto = build(*arguments, **settings)
        (bias,) = (each for each in model.graph.initializer if each.name == "output.bias")
        array = onnx.numpy_helper.to_array(bias) + np.float32(1e-3)
        bias.CopyFrom(onnx.numpy_helper.from_array(array, "output.bias"))
        return seal(model)

    monkeypatch.setattr("vcdeploy.export.pipeline.build", wrong)


@pytest.mark.usefixtures("broken")
def test_a_failed_check_is_exit_code_1_and_writes_nothing(folder: Path, tmp_path: Path) -> None:
    (folder / "best.onnx").write_bytes(b"the file of before")
    result = run(folder, "--bundle", tmp_path / "bundle", "-o", folder / "best.onnx", "--force")
    assert result.exit_code == 1
    assert "TOO FAR" in result.stdout
    assert "differs from PyTorch by more than rounding: logits in" in result.stderr
    assert "Nothing was written" in result.stderr
    assert (folder / "best.onnx").read_bytes() == b"the file of before"
    assert not (tmp_path / "bundle").exists()
    assert {path.name for path in folder.iterdir()} == {"best.onnx", "best.safetensors"}


def test_an_existing_file_is_replaced_only_with_force(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"mine")
    for option, path in (("-o", tmp_path / "model.onnx"), ("--bundle", tmp_path)):
        result = run(folder, option, path)
        assert result.exit_code == 1
        assert f"{tmp_path / 'model.onnx'} exists: give --force to replace it" in result.stderr
        assert not (tmp_path / "manifest.json").exists()
        assert (tmp_path / "model.onnx").read_bytes() == b"mine"
    assert run(folder, "-o", tmp_path / "model.onnx", "--force").exit_code == 0
    assert (tmp_path / "model.onnx").stat().st_size > 1000


def test_a_log_gets_lines_of_progress(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcdeploy.cli.terminal.EVERY", 0.0)
    lines = run(folder).stderr.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d export: ", line) for line in lines)
    assert [line.partition("export: ")[2].split()[0] for line in lines][:2] == ["loading", "building"]
    assert any("running the model in native" in line for line in lines) and "done in" in lines[-1]


@pytest.mark.usefixtures("broken")
def test_a_failed_check_is_in_the_json(folder: Path) -> None:
    result = run(folder, "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["passed"] is False
    assert document["written"] == []


@pytest.mark.parametrize(
    ("unit", "options", "said"),
    [
        ("crnn", [], "crnn is a training-only baseline and cannot be exported"),
        ("gru", ["--bucketed"], "--bucketed skips inactive dimensions, but gru has none: leave it out"),
        ("gru", ["--portable"], "--portable replaces our ops by standard ones, but gru is one already: leave it out"),
        ("vcgru", ["--portable", "--bucketed"], "--bucketed and --portable are two forms of a file: choose one"),
        ("vcgru", ["--opset", "99"], "--opset must be 18 to"),
    ],
)
def test_what_cannot_be_exported_says_so(unit: str, options: list[str], said: str, tmp_path: Path) -> None:
    result = run(write_checkpoint(tmp_path / "best.safetensors", unit), *options)
    assert result.exit_code == (2 if options else 1)
    assert said in result.stderr
    assert not list(tmp_path.glob("*.onnx"))


def test_wrong_checkpoints(tmp_path: Path) -> None:
    assert "no model at" in run(tmp_path / "no.safetensors").stderr
    (tmp_path / "bad.safetensors").write_bytes(b"not one")
    result = run(tmp_path / "bad.safetensors")
    assert result.exit_code == 1
    assert "is not a complete vcdeploy checkpoint" in result.stderr


def test_a_place_that_cannot_be_written(folder: Path) -> None:
    (folder / "file").write_text("in the way")
    result = run(folder, "-o", folder / "file" / "model.onnx")
    assert result.exit_code == 1
    assert f"could not write {folder / 'file' / 'model.onnx'}" in result.stderr


def test_every_option_has_help() -> None:
    command: Any = cli.main.get_command(None, "export")  # type: ignore[arg-type]
    for option in command.params:
        assert option.param_type_name == "argument" or option.help
