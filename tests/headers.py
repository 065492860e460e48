"""Third-party headers for tests that compile; VCDEPLOY_REQUIRE_HEADERS=1 turns a missing header into a failure."""

import os
from typing import NoReturn

import pytest


def header_missing(reason: str) -> NoReturn:
    """Skip the test, or fail it if the environment requires the headers."""
    wanted = os.environ.get("VCDEPLOY_REQUIRE_HEADERS", "")
    if wanted not in ("", "0", "1"):
        pytest.fail(f"VCDEPLOY_REQUIRE_HEADERS must be 0 or 1, not {wanted!r}")
    if wanted == "1":
        pytest.fail(f"{reason} (VCDEPLOY_REQUIRE_HEADERS is 1)")
    pytest.skip(reason)


def need_tensorrt() -> str:
    """The folder of TensorRT's headers."""
    folder = os.environ.get("TENSORRT_INCLUDE_DIR")
    if not folder:
        header_missing("needs TensorRT's headers: set TENSORRT_INCLUDE_DIR to the folder that holds NvInfer.h")
    return folder
