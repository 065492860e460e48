"""`vcdeploy doctor` with packages that are there, missing, broken, and worse."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from vcdeploy import checks as module
from vcdeploy.checks import CHECKS, Check, Finding, try_apart, try_here
from vcdeploy.cli import main
from vcdeploy.custom_ops import library
from vcdeploy.extras import EXTRAS
from vcdeploy.gpu import plugin_files


def doctor(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if key != "VCDEPLOY_DATA"}
    return subprocess.run(
        [sys.executable, "-m", "vcdeploy", "doctor", *args],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def findings(result: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in json.loads(result.stdout)}


def test_base_works_here() -> None:
    result = doctor("--json")
    found = findings(result)
    assert result.returncode == 0, result.stderr
    assert list(found) == [check.name for check in CHECKS]
    for name in ("Python", "vcdeploy", "native module", "NumPy", "ONNX"):
        assert found[name]["state"] == "works", found[name]
    for finding in found.values():
        assert bool(finding["fix"]) == (finding["state"] != "works")


def test_broken_packages_are_distinguished_from_missing_ones(tmp_path: Path) -> None:
    # Found before the installed ones, these fail as damaged installations do.
    (tmp_path / "torch.py").write_text("raise OSError('libc10.so: file too short\\nand a second line')\n")
    (tmp_path / "music21.py").write_text("import a_module_that_is_not_there\n")
    (tmp_path / "onnxruntime.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n")
    (tmp_path / "tensorboard.py").write_text("import os\nos._exit(3)\n")
    (tmp_path / "tensorrt.py").write_text("print('a chatty import')\n__version__ = '0.0'\n")
    (tmp_path / "safetensors.py").write_text("raise ModuleNotFoundError(name='safetensors')\n")
    result = doctor("--json", PYTHONPATH=str(tmp_path), VCDEPLOY_DATA=str(tmp_path))
    found = findings(result)

    def told(name: str) -> tuple[str, str, str]:
        return found[name]["state"], found[name]["detail"], found[name]["fix"]

    assert result.returncode == 0, "what is optional never fails the command"
    assert told("PyTorch") == (
        "broken",
        "OSError: libc10.so: file too short",
        "pip install --force-reinstall torch",
    )
    assert told("music21") == (
        "broken",
        "ModuleNotFoundError: No module named 'a_module_that_is_not_there'",
        "pip install --force-reinstall music21",
    )
    assert told("ONNX Runtime") == (
        "broken",
        "it crashed Python: SIGILL",
        "pip install --force-reinstall onnxruntime",
    )
    assert told("TensorBoard")[:2] == ("broken", "it ended Python with exit code 3")
    assert told("TensorRT") == ("works", "0.0, imported only: no engine was run on a GPU", "")
    assert told("safetensors") == (
        "missing",
        "not installed",
        'pip install "torch>=2.8" "onnxscript>=0.4" "safetensors>=0.4.5"',
    )
    assert told("corpora folder") == ("works", str(tmp_path), "")


def test_exit_code_is_1_where_the_base_is_broken(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('compiled for another Python')\n")
    result = doctor(PYTHONPATH=str(tmp_path))
    assert result.returncode == 1
    assert "compiled for another Python" in result.stdout
    assert "pip install --force-reinstall numpy" in result.stdout


def test_a_trial_that_hangs_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "music21.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(module, "PATIENCE", 1.0)
    number = next(number for number, check in enumerate(CHECKS) if check.module == "music21")
    finding = try_apart(number)
    assert (finding.state, finding.detail) == ("broken", "no answer in 1 s")


def test_the_corpora_folder_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check = next(check for check in CHECKS if check.name == "corpora folder")
    folder = tmp_path / "corpora"
    monkeypatch.setenv("VCDEPLOY_DATA", str(folder))
    assert try_here(check) == ("missing", f"{folder} does not exist; the first download creates it")
    folder.write_text("a file")
    assert try_here(check) == ("broken", f"NotADirectoryError: {folder} is not a folder")


def test_the_custom_op_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    check = next(check for check in CHECKS if check.name == "ONNX Runtime op")
    assert try_here(check) == ("works", str(library()))
    assert check.fix("missing") == 'pip install "onnxruntime>=1.20"'  # only onnxruntime itself can be missing
    monkeypatch.setattr(module, "library", lambda: None)
    state, detail = try_here(check)
    assert state == "missing" and "not found" in detail and "densely" in detail


def test_the_plugin_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check = next(check for check in CHECKS if check.name == "TensorRT plugin")
    monkeypatch.setattr(plugin_files, "library", lambda: None)
    assert try_here(check) == ("missing", "not built: exports for TensorRT get no engine")
    assert check.fix("missing") == "vcdeploy plugin build"
    (tmp_path / "wrong.so").write_text("no library")
    monkeypatch.setattr(plugin_files, "library", lambda: tmp_path / "wrong.so")
    state, detail = try_here(check)
    assert state == "broken" and "wrong.so" in detail


def test_what_builds_the_plugin_is_here_or_named() -> None:
    state, detail = try_here(next(check for check in CHECKS if check.name == "plugin's tools"))
    assert state == "works" or (state == "missing" and "\n" not in detail and ":" in detail)


def test_table_prints_commands_as_they_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding(
        "music21", "music", False, "missing", "not installed", 'pip install "music21>=9.1" "verovio>=4.0"'
    )
    monkeypatch.setattr(module, "CHECKS", (Check("music21", str, "music21"),))
    monkeypatch.setattr(module, "try_apart", lambda number: finding)
    # As a user calls it: a command keeps the help option that it was given first, -h comes from the group.
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 0
    assert finding.fix in result.output, "square brackets are not rich's markup"


def test_every_optional_package_has_a_line() -> None:
    assert {check.module.partition(".")[0] for check in CHECKS} >= set(EXTRAS)
