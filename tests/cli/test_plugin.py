"""`vcdeploy plugin`: what a build finds and runs, where the library goes, and what is said where it fails."""

import os
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vcdeploy import cli
from vcdeploy.gpu import plugin_build, plugin_files

CMAKE = """#!/bin/sh
# Stands in for CMake: notes what it is called with, and makes what an install makes.
echo "$@" >> "{log}"
case "$1" in
  --build) exit {code} ;;
  --install) mkdir -p "$4" && echo library > "$4/libvcdeploy_tensorrt.so" ;;
esac
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.main, ["plugin", *words], prog_name="vcdeploy")


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package's folder with sources, and an empty cache."""
    folder = tmp_path / "package" / "plugins" / "tensorrt"
    folder.mkdir(parents=True)
    (folder / "CMakeLists.txt").write_text("project(one)\n")
    monkeypatch.setattr(plugin_files, "_package", lambda: tmp_path / "package")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH", "TENSORRT_INCLUDE_DIR", "TENSORRT_LIBRARY_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(plugin_build, "PREFIXES", ())
    monkeypatch.setattr(plugin_build, "_package_folders", lambda module: [])
    return folder


@pytest.fixture
def tools(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """tools(code): an nvcc, headers, and a CMake whose build ends with that code; the file that notes its calls."""

    def make(code: int = 0) -> Path:
        folder, log = tmp_path / "bin", tmp_path / "calls"
        (tmp_path / "include").mkdir(exist_ok=True)
        (tmp_path / "include" / "NvInfer.h").touch()
        folder.mkdir(exist_ok=True)
        for name, text in (("cmake", CMAKE.format(log=log, code=code)), ("nvcc", "#!/bin/sh\n")):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
        monkeypatch.setenv("TENSORRT_INCLUDE_DIR", str(tmp_path / "include"))
        return log

    return make


def test_build_and_path(tools: Callable[..., Path], tmp_path: Path, sources: Path) -> None:
    log = tools()
    assert run("path").exit_code == 1
    result = run("build", "--arch", "80,90")
    assert result.exit_code == 0, result.output
    library = Path(result.stdout.strip())
    assert library.is_file() and library.is_relative_to(tmp_path / "cache" / "vcdeploy" / "plugin")
    assert "libvcdeploy_tensorrt_register.so is left out" in result.stderr
    configure, build, install = log.read_text().splitlines()
    assert configure.startswith(f"-S {sources} -B ") and "-DVCDEPLOY_CUDA_ARCHITECTURES=80;90" in configure
    assert f"-DTENSORRT_INCLUDE_DIR={tmp_path / 'include'}" in configure
    assert f"-DCMAKE_CUDA_COMPILER={tmp_path / 'bin' / 'nvcc'}" in configure
    assert build.startswith("--build ") and install.startswith("--install ")
    assert run("path").stdout.strip() == str(library)
    assert {path.name for path in library.parent.iterdir()} == {library.name, "build.log"}
    # Other sources, another library: this one is not theirs.
    (sources / "CMakeLists.txt").write_text("project(two)\n")
    assert run("path").exit_code == 1


@pytest.mark.parametrize("arch", ["sm_89", "8.9", "89 90", "", "native,80", "hopper"])
def test_an_architecture_that_is_none(arch: str, tools: Callable[..., Path]) -> None:
    log = tools()
    result = run("build", "--arch", arch)
    assert result.exit_code == 2 and "which is not an architecture: give compute capabilities" in result.stderr
    assert not log.exists()


def test_architectures_as_cmake_wants_them() -> None:
    assert plugin_build.read_architectures("80, 90a-real;120-virtual") == "80;90a-real;120-virtual"
    assert plugin_build.read_architectures("native") == "native"


def test_what_is_missing_is_named_with_what_brings_it(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(os, "access", lambda *_: False)
    result = run("build")
    assert result.exit_code == 1
    assert "nvcc, CUDA's compiler: pip install nvidia-cuda-nvcc" in result.stderr
    assert "cmake: pip install cmake" in result.stderr
    assert "apt install libnvinfer-headers-dev" in result.stderr and "TENSORRT_INCLUDE_DIR" in result.stderr


def test_a_build_that_fails_shows_its_end_and_leaves_the_old_library(tools: Callable[..., Path]) -> None:
    tools()
    library = Path(run("build").stdout.strip())
    library.write_text("the one of before")
    tools(2)
    result = run("build")
    assert result.exit_code == 1
    assert "the plugin did not compile; the full log is" in result.stderr
    assert library.read_text() == "the one of before"


def test_a_libnvinfer_that_is_not_linked_with_is_said(
    tools: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tools()
    (tmp_path / "include" / "libnvinfer.so.10").touch()
    monkeypatch.setenv("TENSORRT_LIBRARY_DIR", str(tmp_path / "include"))
    result = run("build")
    assert result.exit_code == 0, result.output
    assert f"-DTENSORRT_LIBRARY_DIR={tmp_path / 'include'}" in log.read_text()
    assert "libvcdeploy_tensorrt_register.so is left out: libnvinfer in" in result.stderr


@pytest.mark.parametrize("variable", ["TENSORRT_INCLUDE_DIR", "TENSORRT_LIBRARY_DIR", "CUDACXX"])
def test_a_variable_that_points_nowhere(
    variable: str, tools: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tools()
    monkeypatch.setenv(variable, "/nowhere/at/all")
    result = run("build")
    assert result.exit_code == 1
    assert f"{variable} is /nowhere/at/all, but there is no" in result.stderr


def test_path_says_how_to_get_it(sources: Path) -> None:
    result = run("path", "--register")
    assert result.exit_code == 1
    assert "which is built only where libnvinfer is found: run `vcdeploy plugin build`" in result.stderr
    assert "run `vcdeploy plugin build`, which lists what it needs" in run("path").stderr


def test_the_library_of_the_package_is_found(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "package" / plugin_files.CORE).touch()
    assert run("path").stdout.strip() == str(tmp_path / "package" / plugin_files.CORE)


def test_nvcc_of_the_pip_packages_is_found(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("cu12", "cu13"):
        nvcc = tmp_path / "site" / "nvidia" / version / "bin" / "nvcc"
        nvcc.parent.mkdir(parents=True)
        nvcc.touch(0o755)
    spec = ModuleSpec("nvidia", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path / "site" / "nvidia")]
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(plugin_build, "find_spec", lambda name: spec)
    monkeypatch.setattr(
        plugin_build, "Path", lambda *parts: Path("/nowhere") if parts == ("/usr/local/cuda",) else Path(*parts)
    )
    assert plugin_build.find_nvcc() == tmp_path / "site" / "nvidia" / "cu13" / "bin" / "nvcc"


def test_the_sources_come_with_the_package() -> None:
    assert (plugin_files.sources() / "CMakeLists.txt").is_file()
