"""Run the commands and code blocks of the README and the guides as written; training and benchmarks are shortened."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ("README", "docs/train", "docs/pretrained", "docs/export", "docs/trace", "docs/python", "docs/custom-networks")
BENCH = "docs/bench"  # only the commands that need no earlier report
MEASURED = "--quick --rounds 1 --scenario step --engines native"  # appended to `bench`
TRAINED = ("vcdeploy train", "runs/demo-vcgru-256")  # a reader has trained this model before most guides
SHORT = "--epochs 0.01 --sample 20 --threads 1"  # appended to `train`: the last value of an option wins


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    return [shlex.join(shlex.split(line, comments=True)) for line in lines if line.strip()]


def steps(page: str) -> list[tuple[str, str]]:
    """The steps of a page to run: commands, then code."""
    if page == BENCH:
        return [("command", each) for each in commands(page) if "old" not in each]
    found = [("command", each) for each in commands(page) if each.startswith(("vcdeploy", "torchrun"))]
    return [*found, *(("code", each) for each in blocks(page, "python"))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The reader's working folder, with a text to train on."""
    (tmp_path / "my-book.txt").write_text("It was a bright cold day in the kitchen, and the clock had stopped.\n" * 600)
    return tmp_path


def test_every_command_is_one_this_test_can_run() -> None:
    known = ("make demo", "make test", "pip install", "vcdeploy ", "torchrun ")
    found = [each for page in PAGES for each in commands(page)]
    assert len(found) >= 25
    assert all(command.startswith(known) for command in found)


@pytest.mark.parametrize("page", [*PAGES, BENCH])
def test_steps(page: str, folder: Path, subtests: pytest.Subtests) -> None:
    train, run = TRAINED
    found = steps(page)
    assert found
    if ("command", train) not in found and any(run in source for _, source in found):
        run_command(train, folder)
    for kind, source in found:
        with subtests.test(source):
            run_command(source, folder) if kind == "command" else run_code(source, folder)


def run_command(command: str, folder: Path) -> None:
    words = shlex.split(command)
    if words[:3] == ["vcdeploy", "bench", "train"]:
        words += ["--dim", "32", "--rounds", "1"]
    elif "--full" in words or words[:3] == ["vcdeploy", "bench", "report"]:
        words += ["--dim", "16", "--rounds", "1", "--parts", "size"]
    elif "bench" in words and "paper" not in words:
        synthetic = {"--unit", "--dim", "--m"} & {*words}
        words += shlex.split(MEASURED) + (["--dim", "32"] if synthetic else [])
    elif "train" in words:
        words += shlex.split(SHORT)
    words = ["-m", "torch.distributed.run", *words[1:]] if words[0] == "torchrun" else ["-m", *words]
    # This test does not compile the plugin.
    environment = {**os.environ, "TENSORRT_INCLUDE_DIR": ""}
    result = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300, env=environment
    )
    engine_is_left_out = "--trt" in words and result.returncode == 3
    assert result.returncode == 0 or engine_is_left_out, result.stderr
    assert result.stdout or (folder / words[words.index("-o") + 1]).stat().st_size
    if "--show-compute" in words and command in commands("README"):
        assert_sample(result.stdout)
    if words[2] == "export" and command in commands("README"):
        assert_shown(result.stdout + result.stderr, "wrote model.onnx")


def run_code(code: str, folder: Path) -> None:
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    if code in blocks("README", "python"):
        assert_shown(result.stdout, "next:")


def assert_shown(output: str, start: str) -> None:
    """Check that the README shows the output line that starts with `start`."""
    (line,) = (each for each in output.splitlines() if each.startswith(start))
    assert f"{line.strip()}\n" in blocks("README", "text")


def assert_sample(output: str) -> None:
    """Check the README's sample: the same text, and m to within one tenth, because of rounding."""
    text, digits = output.strip().splitlines()
    shown = next(each.splitlines() for each in blocks("README", "text") if each.startswith(text))
    assert all(abs(int(now) - int(then)) <= 1 for now, then in zip(digits, shown[1], strict=True))


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize(
    "page", [*PAGES, "CONTRIBUTING", "docs/design", "docs/gpu", "docs/tensorrt", "docs/glossary", BENCH]
)
def test_links_lead_to_files(page: str) -> None:
    here = ROOT / f"{page}.md"
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", here.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (here.parent / link).exists(), link


def test_the_install_command_names_real_extras() -> None:
    (command,) = (each for each in commands("README") if each.startswith("pip install"))
    extras = re.search(r"\.\[(.*?)\]", command)
    assert extras is not None
    project = (ROOT / "pyproject.toml").read_text()
    for extra in extras[1].split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra
    assert (ROOT / "constraints.txt").exists()
