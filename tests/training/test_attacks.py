"""A sample of the attacks on files; tests/attack/faults.py and kills.py run all of them."""

import subprocess
import sys
from pathlib import Path

import pytest
from attack.__main__ import COMMANDS, LINE

ATTACKS = Path(__file__).parents[1] / "attack"


@pytest.mark.parametrize(
    ("script", "arguments", "lines"),
    [
        ("faults.py", ["--count", "6", "--commands", "resume,bundle,sample"], 3),
        ("kills.py", ["--count", "12", "--commands", "resume"], 2),
    ],
)
def test_a_sample_of_the_attacks(script: str, arguments: list[str], lines: int) -> None:
    result = subprocess.run([sys.executable, ATTACKS / script, *arguments], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(": 6 tries, 0 failures, ") == lines
    assert all(LINE.fullmatch(line) for line in result.stdout.splitlines())


def test_the_documentation_lists_what_make_attack_runs() -> None:
    page = (ATTACKS.parents[1] / "docs" / "reliability.md").read_text()
    assert all(f"`{command}` |" in page for command in COMMANDS)
