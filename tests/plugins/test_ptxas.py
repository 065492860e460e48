"""nvcc compiles every CUDA kernel for every architecture, without spills; needs nvcc alone (not run on a GPU).

The first time that is a minute or two of processor time; after it build/ptxas has the answers for the same sources.
"""

import importlib.util
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


@pytest.fixture(scope="module")
def nvcc() -> str:
    found: str | None = ptxas.find_nvcc()
    if found is None:
        pytest.skip("needs nvcc: install the CUDA toolkit, or set CUDACXX")
    return found


@pytest.mark.parametrize("architecture", ptxas.ARCHITECTURES)
def test_every_kernel_compiles_without_spills(architecture: str, nvcc: str) -> None:
    if architecture not in ptxas.architectures(nvcc):
        pytest.skip(f"nvcc {ptxas.version(nvcc)} does not know sm_{architecture}")
    table = ptxas.resources(nvcc, architecture)
    assert not ptxas.spills({architecture: table})
    assert all(0 < row[0] <= 128 for row in table.values())  # blocks of 512 threads leave no more


def test_the_page_is_what_ptxas_says(nvcc: str) -> None:
    page = (ROOT / "docs" / "results" / "ptxas.md").read_text()
    if f"nvcc {ptxas.version(nvcc)}." not in page:
        pytest.skip(f"the page was written with another nvcc than {ptxas.version(nvcc)}")
    tables = {each: ptxas.resources(nvcc, each) for each in ptxas.architectures(nvcc)}
    assert ptxas.page(ptxas.version(nvcc), tables) == page, "run: make ptxas"
