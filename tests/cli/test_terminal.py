"""What commands send to a terminal and to full, closed or ASCII streams."""

import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import click
import onnx
import pytest
import torch
from click.testing import CliRunner
from small_models import scheduled

from vcdeploy import cli
from vcdeploy.cli import terminal
from vcdeploy.export import build
from vcdeploy.training import checkpoint
from vcdeploy.units import LanguageModel
from vcdeploy.vocabulary import Vocabulary

CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[8m\x9b31m\rgone\x08"  # title, clear screen, hidden, C1, overwritten
STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a text vocabulary that is mostly control characters."""
    vocab = Vocabulary([*CONTROLS, *"\n\t []0;2Jm"])
    torch.manual_seed(6)
    network = scheduled(LanguageModel("vcgru", len(vocab), 12, sharpness=0.5))
    config = {
        "unit": "vcgru", "dim": 12, "layers": 1, "sharpness": 0.5, "epsilon": 1e-3, "precision": "f32",
        "kind": "text", "buffer": 0, "dropout": 0.0, "corpus": "demo",
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("hostile")
    checkpoint.write(folder / "best.safetensors", checkpoint.Checkpoint(config, vocab, network.state_dict(), {}, {}))
    return folder


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> "Run":
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Run(monkeypatch)


class Run:
    """Runs a command in this process with both streams on a terminal; returns what the terminal gets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str | Path) -> str:
        screen = Terminal()
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", screen)
            patch.setattr(sys, "stderr", screen)
            with pytest.raises(SystemExit):
                cli.main([str(each) for each in arguments], prog_name="vcdeploy")
        return screen.getvalue()


def controls(sent: str) -> set[str]:
    """The control characters in what was sent, other than our own styles."""
    return {each for each in STYLE.sub("", sent) if each in CONTROLS}


@pytest.mark.parametrize(
    "arguments",
    [
        ["sample", "MODEL", "--length", "2000", "--temperature", "5"],
        ["sample", "MODEL", "--length", "300", "--temperature", "5", "--show-compute"],
        ["sample", "MODEL", "--prime", HOSTILE[:3], "--length", "3"],
        ["sample", "MODEL", "--prime", "é"],
        ["trace", "MODEL", "--text", "\x1b]0;\x07\x9b2J"],
        ["trace", "MODEL", "--text", "\x1b]0;\x07\x9b2J", "--words", "--classes", "--dimensions"],
        ["sample", HOSTILE],
        ["sample", "MODEL", "--prime-file", HOSTILE],
        ["sample", "MODEL", "--" + HOSTILE],
        ["zoo", HOSTILE],
        ["train", HOSTILE],
        ["corpora", "--data-dir", HOSTILE],
        [HOSTILE],
    ],
    ids=lambda arguments: ascii(" ".join(arguments))[:60],
)
def test_no_control_character_reaches_a_terminal(model: Path, on_terminal: Run, arguments: list[str]) -> None:
    sent = on_terminal(*(model if each == "MODEL" else each for each in arguments))
    assert sent.strip()
    assert controls(sent) == set()
    assert "\x1b[8m" not in sent


def test_a_warning_is_a_message(model: Path, tmp_path: Path) -> None:
    exported = build(checkpoint.read(model / "best.safetensors"))
    for each in exported.metadata_props:
        if each.key == "vcdeploy.checksum":
            each.key = "removed"
    onnx.save(exported, tmp_path / "old.onnx")
    command = [sys.executable, "-m", "vcdeploy", "sample", str(tmp_path / "old.onnx"), "--length", "3"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert said.startswith(f"warning: {tmp_path}/old.onnx has no checksum")
    assert "UserWarning" not in said


def test_our_own_colours_still_reach_it(model: Path, on_terminal: Run) -> None:
    sent = on_terminal("sample", model, "--length", "20", "--show-compute")
    assert len(re.findall(r"\x1b\[38;5;\d+;48;5;\d+m", sent)) >= 20


def test_paths_and_markup_are_printed_as_they_are(
    tmp_path: Path, on_terminal: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "small.txt"
    text.write_text("the prime minister of the state\n" * 40)
    monkeypatch.chdir(tmp_path)
    for name in ("x[/y]", "[red]x", ":smile:", "\x1b[2J", "a[bold]b[/bold]"):
        sent = on_terminal("train", text, "--dim", "8", "--batch", "2", "--bptt", "10", "--epochs", "0.1",
                           "--sample", "0", "--out", name)  # fmt: skip
        assert "Traceback" not in sent
        shown = terminal.visible(name)
        assert f"\n{shown}: " in STYLE.sub("", sent)
        assert f"next: vcdeploy eval {shown if name == ':smile:' else repr(shown)}" in STYLE.sub("", sent)
        assert (tmp_path / name / "best.safetensors").exists()
        piped = CliRunner().invoke(cli.main, ["eval", name, str(text), "--split", "train"])
        assert piped.exit_code == 0, piped.output
        assert piped.stdout.startswith(f"{name}/best.safetensors on ")


def test_a_pipe_gets_every_byte(model: Path) -> None:
    result = CliRunner().invoke(cli.main, ["sample", str(model), "--length", "2000", "--temperature", "5"])
    assert result.exit_code == 0
    # click removes whole sequences from what is no terminal; single characters stay.
    assert {"\x07", "\x1b", "\x9b", "\x00"} <= set(result.stdout_bytes.decode())


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_real_terminal(model: Path, stream: str) -> None:
    """The same through a pseudoterminal; the terminal itself turns a newline into \\r\\n."""
    master, slave = pty.openpty()
    seen = bytearray()

    def read() -> None:
        try:
            while chunk := os.read(master, 65536):
                seen.extend(chunk)
        except OSError:  # Linux: all copies of the other side are closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    arguments = ["sample", str(model), "--length", "2000", "--temperature", "5"]
    if stream == "stderr":
        arguments = ["sample", HOSTILE]
    try:
        subprocess.run(
            [sys.executable, "-m", "vcdeploy", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=slave if stream == "stdout" else subprocess.DEVNULL,
            stderr=slave if stream == "stderr" else subprocess.DEVNULL,
            timeout=60,
        )
    finally:
        os.close(slave)
        reader.join()
        os.close(master)
    text = seen.decode().replace("\r\n", "\n")
    assert "␛" in text
    assert controls(text) == set()


def run(*arguments: str, **more: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "vcdeploy", *arguments]
    return subprocess.run(command, text=True, timeout=60, **more)  # type: ignore[call-overload]


@pytest.mark.parametrize("arguments", [["--help"], ["zoo"], ["sample", "--length", "20"], ["corpora", "--json"]])
def test_a_full_device_is_an_error(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # what stays in a buffer would fail again at exit
    with open("/dev/full", "w") as full:
        result = run(*arguments, stdout=full, stderr=subprocess.PIPE)
        assert result.returncode == 1
        assert result.stderr == "error: standard output: No space left on device\n"
        assert run("zoo", "none", stdout=subprocess.PIPE, stderr=full).returncode == 1


def test_a_full_device_does_not_end_a_run_without_saving(tmp_path: Path) -> None:
    text = tmp_path / "small.txt"
    text.write_text("the prime minister of the state\n" * 100)
    settings = ["--dim", "8", "--batch", "2", "--bptt", "10", "--epochs", "1", "--threads", "1"]
    with open("/dev/full", "w") as full:
        result = run("train", str(text), *settings, "--out", str(tmp_path / "run"), stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == 1
    assert result.stderr.startswith("error: standard output: No space left on device")
    assert "Traceback" not in result.stderr


def test_ascii_streams(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    text = tmp_path / "small.txt"
    text.write_text("the prime minister of the state\n" * 40)
    arguments = ["train", str(text), "--dim", "8", "--batch", "2", "--bptt", "10", "--epochs", "0.1", "--threads", "1"]
    result = run(*arguments, "--out", str(tmp_path / "é"), capture_output=True, env=environment)
    assert result.returncode == 0, result.stderr
    assert "loss " in result.stdout and r" \xb7 " in result.stdout and r"/\xe9: " in result.stdout
    assert result.stdout.isascii()
    said = run("sample", "--length", "5", capture_output=True, env=environment)
    assert said.returncode == 0
    assert r" \xb7 " in said.stderr


def test_file_names_that_are_no_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(bytes(tmp_path) + b"/\xff.txt")
    for command in (["sample", name], ["sample", "--length", "5", "-o", name]):
        result = run(*command, capture_output=True)
        assert "Traceback" not in result.stderr
        assert r"\udcff.txt" in result.stderr


def test_closed_streams() -> None:
    code = "import os, sys; os.close(int(sys.argv[1])); os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"

    def closed(descriptor: int, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", code, str(descriptor), "-m", "vcdeploy", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    said = closed(0, "sample", "--prime-file", "-")
    assert said.returncode == 1
    assert said.stderr.startswith("error: cannot read the prime of standard input: it is closed")
    for descriptor in (1, 2):
        assert closed(descriptor, "zoo").returncode == 0
        assert "Traceback" not in closed(descriptor, "zoo", "none").stderr


def test_input_that_never_ends() -> None:
    for name in ("/dev/zero", "-"):
        with open("/dev/zero") as endless:
            said = run("sample", "--prime-file", name, stdin=endless, capture_output=True)
        assert said.returncode == 1
        assert "is longer than 256 MiB" in said.stderr


@pytest.mark.parametrize("error", [OSError(13, "Permission denied", "/some/file"), OSError(5, "Input/output error")])
def test_an_error_of_the_system_is_one_line(
    error: OSError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("vcdeploy.zoo.names", fail)
    with pytest.raises(SystemExit) as left:
        cli.main(["zoo"])
    assert left.value.code == 1
    place = "/some/file: " if error.filename else ""
    assert capsys.readouterr().err == f"error: {place}{error.strerror}\n"


def test_streams_cannot_bypass_the_filter_and_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.BytesIO()
    stream = io.TextIOWrapper(screen, encoding="utf-8", write_through=True)
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", stream)
    before = sys.stdout, sys.stderr
    with terminal.guarded_output():
        assert not hasattr(sys.stdout, "buffer")
        click.echo(b"\x1b[2J")
    assert (sys.stdout, sys.stderr) == before
    assert screen.getvalue().decode() == "␛[2J\n"
