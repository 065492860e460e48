"""nvcc compiles every CUDA kernel for every architecture, without spills (not run on a GPU).

Compiling takes minutes, so the tests do it only if the sources have changed since docs/results/ptxas.md was written, or
if VCDEPLOY_PTXAS is set; nvcc is needed only then. `make ptxas` writes the page, with a hash of its sources.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ptxas", ROOT / "plugins" / "tensorrt" / "ptxas.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ptxas"] = module
    spec.loader.exec_module(module)
    return module


ptxas = load()
PAGE = (ROOT / "docs" / "results" / "ptxas.md").read_text()


@pytest.fixture(scope="module")
def nvcc() -> str:
    if ptxas.is_current(PAGE) and not os.environ.get("VCDEPLOY_PTXAS"):
        pytest.skip("docs/results/ptxas.md is up to date: set VCDEPLOY_PTXAS=1 to compile anyway")
    found: str | None = ptxas.find_nvcc()
    if found is None:
        pytest.skip("needs nvcc: install the CUDA toolkit, or set CUDACXX")
    return found


@pytest.mark.parametrize("architecture", ptxas.ARCHITECTURES)
def test_every_kernel_compiles_without_spills(architecture: str, nvcc: str) -> None:
    if architecture not in ptxas.architectures(nvcc):
        pytest.skip(f"nvcc {ptxas.version(nvcc)} does not support sm_{architecture}")
    table = ptxas.resources(nvcc, architecture)
    assert not ptxas.spills({architecture: table})
    assert all(0 < row[0] <= 128 for row in table.values())  # the limit for blocks of 512 threads


def test_the_page_is_what_ptxas_reports(nvcc: str) -> None:
    if f"nvcc {ptxas.version(nvcc)}." not in PAGE:
        pytest.skip(f"the page was not written with nvcc {ptxas.version(nvcc)}")
    tables = {each: ptxas.resources(nvcc, each) for each in ptxas.architectures(nvcc)}
    assert ptxas.page(ptxas.version(nvcc), tables) == PAGE, "run: make ptxas"


def test_the_page_reports_no_spills() -> None:
    """Always checked, even without compiling."""
    assert "Stack frames and spills: none." in PAGE


def test_a_changed_source_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("tensorrt", "common"):
        shutil.copytree(ROOT / "plugins" / folder, tmp_path / folder)
    monkeypatch.setattr(ptxas, "HERE", tmp_path / "tensorrt")
    page = f"Sources: {ptxas.sources_digest()}."
    assert ptxas.is_current(page)
    for changed in ("tensorrt/units.cuh", "common/spec.h"):
        source = tmp_path / changed
        source.write_text(source.read_text() + "// a comment\n")
        assert ptxas.is_current(page)
        source.write_text(source.read_text() + "int changed;\n")
        assert not ptxas.is_current(page)
        page = f"Sources: {ptxas.sources_digest()}."
