"""`make attack`: run every attack, two at a time, and print what they found as a table.

The settings are those of docs/reliability.md; they take less than 20 minutes on two cores.
"""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
COMMANDS = (
    "faults.py --count 0 --commands resume,export,bundle,sample",
    "kills.py --count 300 --commands train,resume,sample",
    "faults.py --count 60 --commands train",
    "files.py --count 1500 --megabytes 100",
    "layouts.py --count 4",
    "soak.py --count 2100000",
    "engine.py --count 50",
)
LINE = re.compile(r"(.+): ([\d,]+) tries, ([\d,]+) failures, (\d+) s")


def attack(command: str) -> tuple[list[str], bool]:
    """Run one command and show what it prints; the rows of the table, and whether all went well."""
    script, *arguments = command.split()
    rows = []
    with subprocess.Popen(
        [sys.executable, HERE / script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if found := LINE.fullmatch(line.strip()):
                rows.append(f"| {' | '.join(found.groups())} | `{command}` |")
    return rows, process.returncode == 0 and bool(rows)


def main() -> None:
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(attack, COMMANDS))
    print("\n| attack | tries | failures | seconds | tests/attack/… |\n|---|---|---|---|---|")
    for rows, _ in results:
        print(*rows, sep="\n")
    if failed := [command for command, (_, fine) in zip(COMMANDS, results, strict=True) if not fine]:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
