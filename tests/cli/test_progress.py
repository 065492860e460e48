"""Progress of long commands: lines with the time in a log, a status line on a terminal."""

import io
import re

import pytest
from rich.console import Console

from vcdeploy.cli import terminal as module


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    monkeypatch.setattr("vcdeploy.cli.terminal.time.monotonic", lambda: now)
    with module.progress("bench") as tell:
        for number in range(26):
            tell(f"round {number} [/x]")
            now += 1.0
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in lines] == [
        "bench: round 0 [/x]", "bench: round 10 [/x]", "bench: round 20 [/x]", "bench: done in 26 s"
    ]  # fmt: skip


def test_a_short_command_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with module.progress("export") as tell:
        tell("loading english")
        tell("building the graph")
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_terminal_gets_a_status_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=60)
    monkeypatch.setattr("vcdeploy.cli.terminal.console", lambda **_: terminal)
    with module.progress("bench") as tell:
        tell("part [1/2]")
        terminal.print("")  # draws the status again
    assert "part [1/2]" in screen.getvalue()
