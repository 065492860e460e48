"""Draw docs/pictures/sample.svg: the terminal output of `vcdeploy sample --show-compute` (`make pictures`)."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COMMAND = 'vcdeploy sample --prime "The prime min" --length 440 --show-compute'
WIDTH = 110  # columns


def draw() -> str:
    result = subprocess.run(
        [sys.executable, "-m", *shlex.split(COMMAND)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"FORCE_COLOR": "1", "TERM": "xterm-256color"},
    )
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, highlight=False)
        console.print(f"[bold]$ {COMMAND}", markup=True)
        for line in result.stdout.splitlines():
            console.print(Text.from_ansi(line), overflow="fold")
        console.print(result.stderr.strip(), style="dim")
        return console.export_svg(title="vcdeploy sample", unique_id="sample")


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw(), encoding="utf-8")
