"""A sample of the attacks on files; tests/attack/faults.py and kills.py run all of them."""

import subprocess
import sys
from pathlib import Path

import pytest

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
