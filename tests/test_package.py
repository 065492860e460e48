"""The installed package: version, folders, extras, lazy imports, public API."""

import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

import vcdeploy
from vcdeploy import cli
from vcdeploy.extras import EXTRAS

HEAVY = {"numpy", "onnx", "rich", *EXTRAS}
IMPORT = "import vcdeploy"
HELP = "from vcdeploy.cli import main; main(['--help'], standalone_mode=False)"


@pytest.mark.parametrize("program", [IMPORT, HELP], ids=["import", "help"])
def test_nothing_heavy_is_imported_before_it_is_needed(program: str) -> None:
    code = f"{program}\nimport json, sys\nprint('\\n' + json.dumps(list(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in json.loads(result.stdout.splitlines()[-1])}
    assert not imported & HEAVY


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_of_a_command_needs_no_extra(name: str) -> None:
    code = (
        f"import sys\nfor module in {sorted(EXTRAS)}: sys.modules[module] = None\n"
        f"from vcdeploy.cli import main; main([{name!r}, '--help'])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_version_is_the_one_in_the_metadata() -> None:
    assert importlib.metadata.version("vcdeploy") == vcdeploy.__version__


@pytest.mark.parametrize("name", ["vcdeploy.export", "vcdeploy.bench", "vcdeploy.zoo", "vcdeploy._native"])
def test_folders_outside_the_package_are_installed_in_it(name: str) -> None:
    assert importlib.import_module(name).__doc__


def test_extras_are_those_of_the_metadata() -> None:
    distributions = {"cuda": "cuda-python"}  # modules whose distribution has another name
    brought = set()
    for requirement in importlib.metadata.requires("vcdeploy") or []:
        if match := re.match(r"([\w-]+).*extra == ['\"](\w+)['\"]", requirement):
            brought.add(match.groups())
    assert {(distributions.get(module, module), extra) for module, extra in EXTRAS.items()} <= brought


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for below in command.list_commands(context):
            child = command.get_command(context, below)
            assert child is not None
            yield from commands(child, f"{name} {below}")


def test_every_command_and_every_option_has_help() -> None:
    for name, command in commands(cli.main, "vcdeploy"):
        assert command.help, name
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, f"{name} {option.opts[0]}"


def test_the_public_api_is_listed() -> None:
    assert {"load", "Model", "Sampling", "VCRNN", "VCGRU", "VCLSTM", "Vocabulary", "attach_functions"} <= set(
        dir(vcdeploy)
    )
    for name in vcdeploy.__all__:
        assert getattr(vcdeploy, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        vcdeploy.lode  # noqa: B018


def test_help_lists_the_public_api_without_pytorch() -> None:
    code = "import sys; sys.modules['torch'] = None; import vcdeploy; help(vcdeploy)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "load(" in result.stdout and "class Model" in result.stdout


def test_without_pytorch_a_unit_says_what_is_missing() -> None:
    code = "import sys; sys.modules['torch'] = None; import vcdeploy; vcdeploy.VCGRU"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode and "vcdeploy.VCGRU needs torch" in result.stderr
