"""The TensorRT plugin on the host: compiled with the real headers and nvcc, every method called (not run on a GPU).

Needs TensorRT's headers (TENSORRT_INCLUDE_DIR) and nvcc, but neither libnvinfer nor a GPU. Compiles one architecture;
`make ptxas` compiles all.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from headers import need_tensorrt

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "plugins" / "tensorrt"


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


@pytest.fixture(scope="module")
def built() -> Path:
    """The build folder of the plugin and its host test, recompiled if sources have changed."""
    headers = Path(need_tensorrt())
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if not nvcc:
        pytest.skip("needs nvcc: install the CUDA toolkit, or set CUDACXX")
    build, fake = ROOT / "build" / "tensorrt", ROOT / "build" / "fake_nvinfer"
    source = ROOT / "tests" / "plugins" / "fake_nvinfer.cpp"
    major = re.search(r"(?:NV_TENSORRT_MAJOR|TRT_MAJOR_ENTERPRISE) +(\d+)", (headers / "NvInferVersion.h").read_text())
    assert major is not None
    name = f"libnvinfer.so.{major[1]}"  # the name in the pip packages
    shutil.rmtree(fake, ignore_errors=True)
    fake.mkdir(parents=True)
    flags = "-x", "c++", "-std=c++17", "-shared", "-cudart", "none", "-Xcompiler", "-fPIC", "-isystem", headers
    configure = "cmake", "-S", SOURCES, "-B", build, "-G", "Ninja"
    for command in (
        (nvcc, *flags, source, "-Xlinker", f"-soname={name}", "-o", fake / name),
        (*configure, "-DVCDEPLOY_CUDA_ARCHITECTURES=90", f"-DTENSORRT_LIBRARY_DIR={fake}"),
        ("cmake", "--build", build, "--target", "all", "host_test"),
    ):
        done = run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
    return build


def test_every_method_on_the_host(built: Path) -> None:
    done = run(built / "host_test", built / "libvcdeploy_tensorrt.so", VCDEPLOY_TENSORRT_PATH="auto")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("checks, 0 failed")
    assert done.stderr == "vcdeploy: VCRNN node: epsilon must be between 0 and 0.5, not 0.000000\n"


def test_a_logger_of_another_major_is_not_called(built: Path) -> None:
    """The logger's class differs between TensorRT 10 and 11; errors then go to stderr."""
    done = run(built / "host_test", built / "libvcdeploy_tensorrt.so", "99", VCDEPLOY_TENSORRT_PATH="auto")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("checks, 0 failed")
    assert "vcdeploy: VCLSTM: no GPU to run on" in done.stderr or Path("/dev/nvidia0").exists()


def test_the_library_needs_no_tensorrt_and_exports_two_functions(built: Path) -> None:
    library = built / "libvcdeploy_tensorrt.so"
    needed = run("readelf", "--dynamic", library).stdout
    assert "NEEDED" in needed and "nvinfer" not in needed and "cudart" not in needed
    exported = run("nm", "--dynamic", "--defined-only", library).stdout
    assert {line.split()[-1] for line in exported.splitlines()} == {"getCreators", "setLoggerFinder"}


def test_the_twin_registers_the_creators_when_it_is_loaded(built: Path) -> None:
    load = sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(built / 'libvcdeploy_tensorrt_register.so')!r})"
    done = run(*load)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["VCRNN 1 ''", "VCGRU 1 ''", "VCLSTM 1 ''"]
    done = run(*load, FAKE_NVINFER_VERSION="990000")
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing was registered" in done.stderr and "but TensorRT 99 is loaded; rebuild it" in done.stderr


def test_a_missing_header_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    done = run("cmake", "-S", SOURCES, "-B", tmp_path, "-G", "Ninja", f"-DTENSORRT_INCLUDE_DIR={tmp_path}/none")
    if done.returncode == 127:
        pytest.skip("needs cmake")
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "NvInfer.h was not found in" in said and "set TENSORRT_INCLUDE_DIR" in said
