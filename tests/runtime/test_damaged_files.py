"""Damaged and hostile files: a few hundred of the thousands that `make fuzz` tries."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fuzz import RAN, REFUSED, SOUND, examine, fuzz, write_originals

from vcdeploy.runtime import backends, model


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("originals")
    write_originals(folder)
    return folder


def need(backend: str) -> None:
    if backend == "native" and (fault := backends.native_fault()) is not None:
        pytest.skip(f"needs the native module: {fault}")
    if backend == "onnxruntime":
        pytest.importorskip("onnxruntime")


@pytest.mark.parametrize(
    ("kind", "backend", "count", "megabytes"),
    [
        ("onnx", "native", 400, 3_000),
        ("onnx", "onnxruntime", 60, 8_000),
        ("onnx", "torch", 60, 12_000),
        ("checkpoint", "native", 80, 12_000),
        ("checkpoint", "torch", 40, 12_000),
    ],
)
def test_a_file_is_refused_or_runs(kind: str, backend: str, count: int, megabytes: int, originals: Path) -> None:
    """Runs in a limited address space, where absurd allocations fail."""
    need(backend)
    results = fuzz(originals, kind, backend, count, seed="tests", limit=megabytes)
    assert len(results) == count
    assert [each for each in results if each["outcome"] not in SOUND] == []
    outcomes = Counter(each["outcome"] for each in results)
    assert outcomes[REFUSED] > count / 3 and outcomes[RAN] > count / 30  # the test must cover both outcomes


def test_the_originals_are_sound(originals: Path) -> None:
    need("native")
    for path in sorted(originals.iterdir()):
        assert examine(path, "auto", None) == RAN, path.name


def test_a_crash_is_a_fault(originals: Path, tmp_path: Path) -> None:
    (tmp_path / "aborts.py").write_text("import os\nclass Model:\n    def __init__(*_, **__): os.abort()\n")
    results = fuzz(originals, "onnx", "native", 12, seed="tests", module=tmp_path / "aborts.py")
    assert len(results) == 12
    assert {each["outcome"] for each in results if each["outcome"] != REFUSED} == {"ended with -6: "}


def test_another_exception_is_a_fault(originals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("dim")

    monkeypatch.setattr(model.Model, "run", fail)
    assert examine(originals / "0.onnx", "torch", None) == "KeyError: 'dim'"
