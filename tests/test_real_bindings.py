"""Check the names and arguments used by the GPU code against the real cuda-python and TensorRT bindings.

Neither needs a GPU to be imported. TensorRT's bindings load three libraries of its runtime, which is gigabytes large:
stub libraries export the few symbols the bindings need, and do nothing. stand_in.py is compared with the bindings class
by class and function by function. The other tests run the code on the stand-in, so a name that TensorRT or CUDA does
not have would fail there. Names that are only used in error paths are collected from the sources.
"""

import ast
import ctypes
import enum
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import stand_in

SYMBOLS = (
    "createInferBuilder_INTERNAL", "createInferRefitter_INTERNAL", "createInferRuntime_INTERNAL",
    "getBuilderPluginRegistry", "getPluginRegistry", "initLibNvInferPlugins", "createNvOnnxParser_INTERNAL",
    "createNvOnnxParserRefitter_INTERNAL", "getNvOnnxParserVersion",
)  # fmt: skip
SOURCES = ("vcdeploy.gpu.tensorrt", "vcdeploy.gpu.cuda", "vcdeploy.gpu.engine")


@pytest.fixture(scope="module")
def trt(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The real bindings on top of stub libraries."""
    spec, compiler = find_spec("tensorrt_bindings"), shutil.which("cc")
    if spec is None or spec.origin is None:
        pytest.skip("needs TensorRT's bindings: pip install --no-deps tensorrt_cu13_bindings")
    if compiler is None:
        pytest.skip("needs a C compiler")
    if find_spec("tensorrt_libs") is None:
        folder = tmp_path_factory.mktemp("stubs")
        (folder / "stub.c").write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in SYMBOLS))
        binary = Path(spec.origin).with_name("tensorrt.so").read_bytes()
        needed = re.findall(rb"libnv(?:infer|infer_plugin|onnxparser)\.so\.\d+", binary)
        assert len(set(needed)) == 3
        for name in sorted({each.decode() for each in needed}):
            command = [compiler, "-shared", "-fPIC", "-o", name, "stub.c", f"-Wl,-soname,{name}"]
            subprocess.run(command, cwd=folder, check=True)
            ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)  # later loads find it by name
    return importlib.import_module("tensorrt_bindings")


@pytest.fixture(scope="module")
def cudart() -> ModuleType:
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        pytest.skip("needs cuda-python: pip install cuda-bindings")
    return importlib.import_module("cuda.bindings.runtime")


def split(arguments: str) -> list[str]:
    """Split an argument list at commas outside brackets."""
    parts, depth = [""], 0
    for character in arguments:
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def signatures(function: Any) -> list[list[str]]:
    """The argument names of each overload of a function, without self, from its docstring."""
    found = []
    for line in (function.__doc__ or "").splitlines():
        if match := re.match(
            rf"(?:\d+\. )?{function.__name__}\((.*?)\)(?: -> .*)?$", line.strip().replace("->", " -> ", 0)
        ):
            names = [re.split(r"[:=]", part)[0].split()[-1] for part in split(match[1].replace("->", ""))]
            found.append([name for name in names if name not in ("self", "this")])
    return found


def members(kind: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(kind).items():
        if not name.startswith("_"):
            yield name, value


# Attributes of the stand-in that exist for tests only.
OWN = {("OnnxParser", "plugin_is_taken"), ("Runtime", "refuses")}


@pytest.mark.parametrize("kind", stand_in.TENSORRT_CLASSES, ids=lambda kind: str(kind.__name__))
def test_the_stand_in_has_only_what_tensorrt_has(kind: type, trt: ModuleType) -> None:
    real = getattr(trt, kind.__name__)
    names = {name for name, _ in members(kind)} | assigned(kind)
    for name in sorted(names):
        if (kind.__name__, name) in OWN:
            continue
        assert hasattr(real, name), f"tensorrt.{kind.__name__} has no {name}"
        value = inspect.getattr_static(kind, name, None)
        if inspect.isfunction(value):
            given = [each for each in inspect.signature(value).parameters if each != "self"]
            known = signatures(getattr(real, name))
            assert any(given == each[: len(given)] for each in known), f"{name}{given} is none of {known}"
        else:
            assert (
                isinstance(inspect.getattr_static(real, name), property)
                or not callable(getattr(real, name))
                or (name == "Severity")
            ), f"tensorrt.{kind.__name__}.{name} is a method"


def assigned(kind: type) -> set[str]:
    """The public attributes assigned in a class's methods."""
    return set(re.findall(r"\bself\.([a-z]\w*)\s*(?::[^=\n]+)?=[^=]", inspect.getsource(kind)))


@pytest.mark.parametrize("name", stand_in.CUDA_NAMES)
def test_the_stand_in_has_only_what_cuda_has(name: str, cudart: ModuleType) -> None:
    mine: Any = getattr(stand_in, name)
    real = getattr(cudart, name)
    if isinstance(mine, enum.EnumMeta):
        members_of: list[Any] = list(mine)
        for member in members_of:
            assert hasattr(real, member.name) and int(getattr(real, member.name)) == int(member)
    elif inspect.isfunction(mine):
        assert signatures(real) == [list(inspect.signature(mine).parameters)]
    else:
        assert real == mine


def test_the_properties_of_a_device_are_real(cudart: ModuleType) -> None:
    for name in vars(stand_in.Gpu().properties):
        assert hasattr(cudart.cudaDeviceProp, name)


def chains(module: str, root: str) -> Iterator[list[str]]:
    """The attribute chains after `root` in a module's source, such as ["BuilderFlag", "TF32"]."""
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    for node in ast.walk(ast.parse(Path(spec.origin).read_text())):
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id == root and names:
            yield names
        elif names and names[0] == root:  # self._cudart and the like
            yield names[1:]


@pytest.mark.parametrize("module", SOURCES)
def test_every_name_in_the_sources_is_real(module: str, trt: ModuleType, cudart: ModuleType) -> None:
    counted = 0
    for roots, real in ((("trt",), trt), (("cudart", "_cudart"), cudart)):
        for chain in (chain for root in roots for chain in chains(module, root)):
            found: Any = real
            for name in chain:
                assert hasattr(found, name), f"{module}: {'.'.join(chain)}"
                found = getattr(found, name)
            counted += 1
    assert counted > 5


def test_real_objects_do_what_the_code_asks_of_them(trt: ModuleType) -> None:
    from vcdeploy.errors import VcdeployError
    from vcdeploy.gpu.tensorrt import collecting_logger, create

    logger = collecting_logger(trt)
    logger.log(trt.ILogger.Severity.WARNING, "a warning")
    logger.log(trt.ILogger.Severity.ERROR, "an error\n")
    assert logger.said() == "an error"
    assert 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    assert tuple(trt.Dims((3, 4))) == (3, 4)
    if find_spec("tensorrt_libs") is None:  # the stub libraries return null pointers
        for kind in (trt.Builder, trt.Runtime):
            with pytest.raises(VcdeployError, match="can't start here"):
                create(kind, logger, trt.__version__)


def test_the_real_cuda_says_that_there_is_no_gpu() -> None:
    """In a separate process, because it may load a driver."""
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        pytest.skip("needs cuda-python: pip install cuda-bindings")
    program = "import json; from vcdeploy.gpu import cuda; print(json.dumps(cuda.fault()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    fault = json.loads(done.stdout)
    assert fault is None or "cudaGetDeviceCount" in fault
