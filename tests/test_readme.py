"""The README's commands and code, run as they stand there; training and measuring are cut short, no more."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
MEASURED = "--quick --rounds 1 --scenario step --contenders native"  # appended to `bench`
SHORT = "--epochs 0.01 --sample 20 --threads 1"  # appended to `train`: the last one of an option counts


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = "".join(blocks("sh")).replace("\\\n", " ").splitlines()
    return [shlex.join(shlex.split(line, comments=True)) for line in lines if line.strip()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader would type: with a book of theirs."""
    path = tmp_path_factory.mktemp("reader")
    (path / "my-book.txt").write_text("It was a bright cold day in the kitchen, and the clock had stopped.\n" * 600)
    return path


def test_every_command_is_one_this_test_can_run() -> None:
    known = ("make demo", "make test", "pip install", "vcdeploy ", "torchrun ")
    assert len(commands()) >= 10
    assert all(command.startswith(known) for command in commands())


@pytest.mark.parametrize("command", [each for each in commands() if each.startswith(("vcdeploy", "torchrun"))])
def test_command(command: str, folder: Path) -> None:
    words = shlex.split(command)
    if words[:3] == ["vcdeploy", "bench", "train"]:
        words += ["--dim", "32", "--rounds", "1"]
    elif "--full" in words:
        words += ["--dim", "16", "--rounds", "1", "--parts", "size"]
    elif "bench" in words and "paper" not in words:
        made_up = {"--unit", "--dim", "--share"} & {*words}
        words += shlex.split(MEASURED) + (["--dim", "32"] if made_up else [])
    elif "train" in words:
        words += shlex.split(SHORT)
    words = ["-m", "torch.distributed.run", *words[1:]] if words[0] == "torchrun" else ["-m", *words]
    # Compiling the plugin is not for this test.
    environment = {**os.environ, "TENSORRT_INCLUDE_DIR": ""}
    result = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300, env=environment
    )
    engine_is_left_out = "--trt" in words and result.returncode == 3
    assert result.returncode == 0 or engine_is_left_out, result.stderr
    assert result.stdout or (folder / words[words.index("-o") + 1]).stat().st_size


@pytest.mark.parametrize("code", blocks("python"))
def test_code(code: str, folder: Path) -> None:
    """After the commands, whose files it may use."""
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


def test_the_install_command_names_real_extras() -> None:
    (command,) = (each for each in commands() if each.startswith("pip install"))
    extras = re.search(r"\.\[(.*?)\]", command)
    assert extras is not None
    project = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    for extra in extras[1].split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra
    assert (Path(__file__).parent.parent / "constraints.txt").exists()
