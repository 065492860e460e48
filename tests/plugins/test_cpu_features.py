"""The native module detects the same instruction sets as the operating system."""

import ast
import platform
from pathlib import Path

import pytest

import vcdeploy
from vcdeploy import _native

CPUINFO = Path("/proc/cpuinfo")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64") or not CPUINFO.exists(), reason="needs Linux on x86")
def test_features_are_those_the_kernel_reports() -> None:
    line = next(line for line in CPUINFO.read_text().splitlines() if line.startswith("flags"))
    flags = set(line.partition(":")[2].split())
    features = _native.cpu_features()
    assert features == {name: name in flags for name in features}


@pytest.mark.skipif("avx512" not in _native.instruction_sets(), reason="needs AVX-512")
def test_floats_take_half_a_register_where_instructions_of_512_bits_run_in_two_halves() -> None:
    described = CPUINFO.read_text().split("\n\n")[0]
    of = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in described.splitlines()}
    zen_4 = of["vendor_id"] == "AuthenticAMD" and int(of["cpu family"]) <= 25
    assert _native.instruction_sets()[:2] == (["avx512vl", "avx512"] if zen_4 else ["avx512", "avx512vl"])


@pytest.mark.skipif(platform.machine() not in ("aarch64", "arm64"), reason="needs 64-bit Arm")
def test_arm_has_neon_and_no_x86_kernels() -> None:
    assert [name for name, present in _native.cpu_features().items() if present] == ["neon"]


def test_stub_names_what_the_module_has() -> None:
    stub = ast.parse((Path(vcdeploy.__file__).parent / "_native.pyi").read_text())
    declared = {node.name for node in stub.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    declared |= {ast.unparse(node.target) for node in stub.body if isinstance(node, ast.AnnAssign)}
    assert declared == {name for name in dir(_native) if not name.startswith("_")}
