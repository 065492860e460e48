"""Our declarations of ONNX Runtime's C API (plugins/onnxruntime/ort_c_api.h), compared with its own header.

The header is searched for in ORT_INCLUDE_DIR, else in the system's include folders (Debian 13: libonnxruntime-dev).
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from headers import header_missing, need_tensorrt

ROOT = Path(__file__).parents[2]
OURS = ROOT / "plugins" / "onnxruntime" / "ort_c_api.h"
HEADER = "onnxruntime_c_api.h"
SYSTEM = ("/usr/include", "/usr/local/include")
BELOW = (
    ".",
    "onnxruntime",
    "onnxruntime/core/session",
    "core/session",
    "include",
    "include/onnxruntime",
    "include/onnxruntime/core/session",
)


def ort_headers() -> Path:
    """The folder of ONNX Runtime's C header."""
    named = os.environ.get("ORT_INCLUDE_DIR")
    places = [Path(top) / below for top in ([named] if named else SYSTEM) for below in BELOW]
    found = next((place for place in places if (place / HEADER).exists()), None)
    if found is not None:
        return found
    if named:
        pytest.fail(f"ORT_INCLUDE_DIR is {named}, which contains no {HEADER}: unset it or correct it")
    return header_missing(
        f"needs ONNX Runtime's {HEADER}: install libonnxruntime-dev (Debian 13), or set ORT_INCLUDE_DIR to the include "
        "folder of an ONNX Runtime release"
    )


def compile_check(folder: Path) -> subprocess.CompletedProcess[str]:
    """Compile the comparison with the ort_c_api.h in this folder."""
    headers = ort_headers()
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if not compiler:
        pytest.skip("needs a C++ compiler")
    source = Path(__file__).with_name("ort_c_api_check.cpp")
    flags = ["-std=c++20", "-fsyntax-only", "-isystem", str(headers), "-I", str(folder)]
    return subprocess.run([compiler, *flags, str(source)], capture_output=True, text=True, check=False)


def test_positions_signatures_and_values_are_those_of_onnxruntime() -> None:
    done = compile_check(OURS.parent)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("ENTRY(65, ", "ENTRY(66, ", "position of GetTensorTypeAndShape"),
        ("(93, void, ReleaseStatus,", "(94, void, ReleaseStatus,", "position of ReleaseStatus"),
        ("(const OrtKernelInfo*, const char*, float*)", "(const OrtKernelInfo*, const char*, double*)", "signature of"),
        ("VALUE(OrtErrorCode, ORT_FAIL, 1)", "VALUE(OrtErrorCode, ORT_FAIL, 3)", "value of ORT_FAIL"),
        ("ENTRY(8, void, KernelCompute,", "ENTRY(8, void, KernelDestroy,", "position of KernelDestroy"),
        ("ENTRY(25, void, ReleaseAliasMap, (int*, int*))", "ENTRY(25, void, ReleaseAliasMap, (int*))", "signature of"),
    ],
)
def test_a_wrong_declaration_does_not_compile(right: str, wrong: str, message: str, tmp_path: Path) -> None:
    text = OURS.read_text()
    assert text.count(right) == 1
    (tmp_path / OURS.name).write_text(text.replace(right, wrong))
    done = compile_check(tmp_path)
    assert done.returncode != 0
    assert message in done.stderr


def test_every_declared_function_is_used() -> None:
    """Functions that nothing calls should be removed from the list of OrtApi."""
    block = OURS.read_text().partition("#define VCDEPLOY_ORT_API_ENTRIES")[2].partition("#define")[0]
    names = re.findall(r"ENTRY\(\d+, [\w ]+\*?, (\w+),", block)
    sources = "".join(
        each.read_text() for each in OURS.parent.iterdir() if each.suffix in (".cpp", ".h") and each != OURS
    )
    assert len(names) == block.count("ENTRY(") - 1 > 0
    assert [name for name in names if not re.search(rf"api_?(\.|->){name}\(", sources)] == []


@pytest.mark.parametrize("variable", ["", "0", "1", "yes"])
def test_a_missing_header_fails_where_headers_are_required(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCDEPLOY_REQUIRE_HEADERS", variable)
    monkeypatch.delenv("TENSORRT_INCLUDE_DIR", raising=False)
    wanted = pytest.fail.Exception if variable in ("1", "yes") else pytest.skip.Exception
    with pytest.raises(wanted, match="0 or 1, not 'yes'" if variable == "yes" else "TENSORRT_INCLUDE_DIR"):
        need_tensorrt()
