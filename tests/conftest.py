"""Shared test configuration: the corpora folder, and one thread per process for reproducible runs."""

import os
from pathlib import Path

import pytest

# Before anything imports PyTorch or NumPy; subprocesses inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of corpora, from VCDEPLOY_DATA; tests that need it are skipped without one."""
    folder = os.environ.get("VCDEPLOY_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs corpora: set VCDEPLOY_DATA to the folder that holds them")
    return Path(folder)
