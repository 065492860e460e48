"""The command table: help, errors, exit codes and shell completion."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from vcdeploy import __version__, cli
from vcdeploy.cli import Entry
from vcdeploy.errors import VcdeployError


def run(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vcdeploy", *args],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def add_command(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> None:
    """Put a command named `added` into the table, its module made of `source`."""
    text = f"import click\n\n@click.command()\ndef added():\n    {source}\n"
    (folder / "added_command.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "added_command", raising=False)
    monkeypatch.setitem(cli.COMMANDS, "added", Entry("added_command:added", "Added."))


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command(flag: str) -> None:
    result = CliRunner().invoke(cli.main, [flag])
    assert result.exit_code == 0
    for name, entry in cli.COMMANDS.items():
        assert f"  {name} " in result.output
        assert entry.summary in result.output
    assert "_VCDEPLOY_COMPLETE=bash_source" in result.output


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_line_of_the_table_is_how_the_help_of_the_command_begins(name: str) -> None:
    command = cli.main.get_command(click.Context(cli.main), name)
    assert command is not None
    assert command.help is not None
    assert command.help.startswith(cli.COMMANDS[name].summary.removesuffix("."))


@pytest.mark.parametrize("name", cli.COMMANDS)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_has_help(name: str, flag: str) -> None:
    result = CliRunner().invoke(cli.main, [name, flag], prog_name="vcdeploy")
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"Usage: vcdeploy {name}")


def test_version() -> None:
    result = run("--version")
    assert (result.returncode, result.stdout) == (0, f"vcdeploy, version {__version__}\n")


@pytest.mark.parametrize(
    ("typed", "said"),
    [("trian", "there is no command 'trian'; did you mean 'train'?"), ("xyz", "there is no command 'xyz'.")],
)
def test_a_misspelt_command_suggests_the_nearest(typed: str, said: str) -> None:
    result = CliRunner().invoke(cli.main, [typed])
    assert result.exit_code == 2
    assert said in result.output


def test_error_is_one_line_and_exit_code_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add_command(
        monkeypatch,
        tmp_path,
        "from vcdeploy.errors import VcdeployError; raise VcdeployError('no corpus here; name another')",
    )
    result = CliRunner().invoke(cli.main, ["added"])
    assert result.exit_code == 1
    assert result.stderr == "error: no corpus here; name another\n"
    assert result.stdout == ""


def test_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add_command(monkeypatch, tmp_path, "import torch.nn")
    monkeypatch.setitem(sys.modules, "torch", None)  # makes the import fail as if it were not installed
    monkeypatch.delitem(sys.modules, "torch.nn", raising=False)
    result = CliRunner().invoke(cli.main, ["added"])
    assert result.exit_code == 1
    assert result.stderr == (
        "error: vcdeploy added needs torch, which is not installed; run: "
        'pip install "torch>=2.8" "onnxscript>=0.4" "safetensors>=0.4.5"\n'
    )


def test_a_missing_module_of_no_extra_is_not_explained_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add_command(monkeypatch, tmp_path, "import no_such_module_anywhere")
    result = CliRunner().invoke(cli.main, ["added"])
    assert isinstance(result.exception, ModuleNotFoundError)


def test_require_says_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from vcdeploy import extras

    monkeypatch.setitem(extras.EXTRAS, "no_such_module_anywhere", "music")
    with pytest.raises(VcdeployError, match=r'a tune needs no_such_module_anywhere.*"music21>=9\.1"'):
        extras.require("no_such_module_anywhere", for_="a tune")


def test_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add_command(monkeypatch, tmp_path, "raise KeyboardInterrupt")
    result = CliRunner().invoke(cli.main, ["added"])
    assert result.exit_code == 128 + signal.SIGINT
    assert result.output == "\n"


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX pipes")
def test_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        result = subprocess.run(
            [sys.executable, "-m", "vcdeploy", "--help"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert result.returncode == 1
    assert result.stderr == ""


def completions(shell: str, words: list[str]) -> list[str]:
    """What the shell offers for the last of `words`, by the protocol between click and that shell."""
    # bash and zsh give the number of the word that is completed; fish gives the word itself.
    current = words[-1] if shell == "fish" else str(len(words) - 1)
    result = run(_VCDEPLOY_COMPLETE=f"{shell}_complete", COMP_WORDS=" ".join(words).rstrip(), COMP_CWORD=current)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    if shell == "zsh":
        return lines[1::3]  # three lines an item: its type, its text, its help
    return [line.partition(",")[2].partition("\t")[0] for line in lines]


SHELLS = ["bash", "zsh", "fish"]


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script_is_for_this_command(shell: str) -> None:
    # bash is asked for its version; where it is too old or absent click warns and prints the script anyway.
    result = run(_VCDEPLOY_COMPLETE=f"{shell}_source")
    assert result.returncode == 0
    assert f"_VCDEPLOY_COMPLETE={shell}_complete" in result.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_complete(shell: str) -> None:
    assert completions(shell, ["vcdeploy", ""]) == list(cli.COMMANDS)
    assert completions(shell, ["vcdeploy", "do"]) == ["doctor"]
    assert "--version" in completions(shell, ["vcdeploy", "--"])


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", cli.COMMANDS)
def test_options_of_a_command_complete(shell: str, name: str) -> None:
    command = cli.main.get_command(click.Context(cli.main), name)
    assert command is not None
    long = {flag for option in command.params for flag in option.opts if flag.startswith("--")}
    assert long | {"--help"} <= set(completions(shell, ["vcdeploy", name, "--"]))


@pytest.mark.parametrize(("kind", "code"), [("VcdeployError", 1), ("BadValue", 2), ("NoGpu", 3)])
def test_exit_codes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, code: int) -> None:
    add_command(monkeypatch, tmp_path, f"from vcdeploy.errors import {kind}; raise {kind}('no')")
    result = CliRunner().invoke(cli.main, ["added"])
    assert (result.exit_code, result.stderr) == (code, "error: no\n")


@pytest.mark.parametrize("source", ["raise MemoryError", "raise RuntimeError('CPU: cannot allocate memory: 9 GB')"])
def test_too_little_memory_is_no_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str) -> None:
    add_command(monkeypatch, tmp_path, source)
    result = CliRunner().invoke(cli.main, ["added"])
    assert result.exit_code == 1 and "there is not enough memory" in result.stderr
    add_command(monkeypatch, tmp_path, "raise RuntimeError('a bug')")
    assert isinstance(CliRunner().invoke(cli.main, ["added"]).exception, RuntimeError)


def all_commands(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(name, command)]
    context = click.Context(command)
    inner = ((each, command.get_command(context, each)) for each in command.list_commands(context))
    return [found for each, it in inner if it is not None for found in all_commands(it, f"{name} {each}")]


def test_threads_seeds_and_batches_have_the_same_limits_everywhere() -> None:
    found = {"--threads": 0, "--seed": 0, "--batch": 0}
    for name, command in all_commands(cli.main, "vcdeploy"):
        for option in command.params:
            flag = option.opts[0]
            if flag in found and not (flag == "--batch" and name.endswith((" train", " export"))):
                limits = {"--threads": (1, 256), "--seed": (0, 2**63 - 1), "--batch": (1, 4096)}[flag]
                assert isinstance(option.type, click.IntRange), (name, flag)
                assert (option.type.min, option.type.max) == limits, (name, flag)
                found[flag] += 1
    assert found["--threads"] >= 7 and found["--seed"] >= 5 and found["--batch"] >= 2


@pytest.mark.parametrize(
    "words",
    [
        ["sample", "--threads", "0"], ["sample", "--seed", "-1"], ["sample", "--temperature", "nan"],
        ["sample", "--meter", "6/8"], ["trace", "--text", "\u2603"], ["eval", "--batch", "99999999"],
        ["export", "--batch", "1:1:4"], ["export", "--opset", "99"], ["bench", "--m", "7"],
        ["train", "--seed", "-1"], ["train", "--dim", "99999999999"],
    ],
)  # fmt: skip
def test_a_bad_value_is_exit_code_2(words: list[str]) -> None:
    result = CliRunner().invoke(cli.main, words)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("words", [["bench", "--device", "cuda"], ["gpu-check"], ["sample", "--backend", "tensorrt"]])
def test_a_missing_gpu_is_exit_code_3(words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import stand_in

    stand_in.uninstall(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli.main, words).exit_code == 3


def test_commands_to_install_name_packages_on_the_index() -> None:
    """vcdeploy itself is on none; the others are the ones pyproject.toml declares, which `make` installs from there."""
    from vcdeploy import extras

    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for module in extras.EXTRAS:
        command, *packages = extras.install_command(module).split(' "')
        assert command == "pip install" and packages
        assert all(f'"{each}' in project and "vcdeploy" not in each for each in packages)
