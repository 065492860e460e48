"""Run every program in examples/ as described in its header."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import vcdeploy
from vcdeploy import custom_ops, zoo

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(*words: str | Path, cwd: Path) -> str:
    result = subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def greedy(length: int) -> tuple[str, list[int]]:
    """A prime, and the ids of a greedy continuation."""
    model, prime = vcdeploy.load("english"), "The prime min"
    return prime, list(model.generate(model.vocab.encode(prime), length=length, temperature=0))


def test_custom_network(tmp_path: Path) -> None:
    output = run(sys.executable, EXAMPLES / "custom_network/train_and_export.py", "network.onnx", cwd=tmp_path)
    numbers = re.search(r"loss (\S+) -> (\S+); mean m (\S+) on marked steps, (\S+) on others", output)
    assert numbers is not None
    first, last, marked, others = map(float, numbers.groups())
    assert last < first / 2
    assert marked > others
    assert (tmp_path / "network.onnx").stat().st_size


def test_silence(tmp_path: Path) -> None:
    output = run(sys.executable, EXAMPLES / "silence/classify.py", "--steps", "250", cwd=tmp_path)
    numbers = re.search(r"accuracy (\S+); mean m (\S+) on sound, (\S+) on silence", output)
    assert numbers is not None
    accuracy, on_sound, on_silence = map(float, numbers.groups())
    assert accuracy > 0.8
    assert on_sound > on_silence + 0.1
    assert output.count("largest difference in") == 2


def test_onnxruntime_python(tmp_path: Path) -> None:
    prime, ids = greedy(40)
    program = EXAMPLES / "onnxruntime_python/generate.py"
    output = run(sys.executable, program, zoo.model_file("english"), prime, cwd=tmp_path)
    assert output.startswith(prime + vcdeploy.load("english").vocab.decode(ids))
    assert "import vcdeploy" not in program.read_text()


def test_streaming(tmp_path: Path) -> None:
    prime, ids = greedy(40)
    output = run(sys.executable, EXAMPLES / "streaming/stream.py", cwd=tmp_path)
    assert output.startswith(prime + vcdeploy.load("english").vocab.decode(ids))
    assert len(re.findall(r" m 0\.\d\d ", output)) == 40


def onnxruntime_headers() -> Path | None:
    folders = [os.environ.get("ORT_INCLUDE_DIR", ""), "/usr/include/onnxruntime", "/usr/local/include/onnxruntime"]
    return next((Path(each) for each in folders if each and (Path(each) / "onnxruntime_cxx_api.h").exists()), None)


def test_onnxruntime_cpp(tmp_path: Path) -> None:
    """Links with the library of the pip package, which must be at least as new as the headers."""
    headers, op = onnxruntime_headers(), custom_ops.library()
    if headers is None:
        pytest.skip("onnxruntime_cxx_api.h not found: set ORT_INCLUDE_DIR to the include folder of ONNX Runtime")
    if op is None:
        pytest.skip("the custom op was not built: `vcdeploy doctor` says why")
    package = find_spec("onnxruntime")
    assert package is not None and package.origin is not None
    library = next((Path(package.origin).parent / "capi").glob("libonnxruntime.so.*"))
    # The linker records the library's SONAME; the pip package has no file of that name.
    (tmp_path / "libonnxruntime.so.1").symlink_to(library)
    cmake = [sys.executable, "-m", "cmake"] if find_spec("cmake") else ["cmake"]
    source = EXAMPLES / "onnxruntime_cpp"
    settings = [f"-DORT_INCLUDE_DIR={headers}", f"-DORT_LIBRARY={tmp_path}/libonnxruntime.so.1"]
    run(*cmake, "-S", source, "-B", "build", *settings, cwd=tmp_path)
    run(*cmake, "--build", "build", cwd=tmp_path)

    prime, ids = greedy(20)
    tokens = vcdeploy.load("english").vocab.encode(prime)
    output = run("build/generate", zoo.model_file("english"), op, "20", *map(str, tokens), cwd=tmp_path)
    lines = [line.split() for line in output.splitlines()]
    assert [int(token) for token, _ in lines] == ids
    _, _, m = vcdeploy.load("english").run(np.array([*tokens, *ids[:-1]])[:, None])
    np.testing.assert_allclose([float(each) for _, each in lines], m[len(tokens) - 1 :, 0, 0], atol=2e-3)
