"""SIGKILL at any moment of a run, and aimed at its file operations.

Half of the kills come after a random time, half in the middle of a random write, fsync, rename or open. Afterwards
every file is the old or the new one, and resuming the run ends with the same weights and metrics as a run that was
never killed.
"""

import argparse
import os
import random
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from attack.summary import Summary
from victims import KILL, Victim, under_shim, victims


def random_kill(victim: Victim, folder: Path, longest: float, draw: random.Random) -> int:
    """Kill the command after a random time; returns its exit code."""
    process = victim.start(folder)
    time.sleep(draw.uniform(0, longest))
    os.kill(process, signal.SIGKILL)  # a process that has ended is a zombie until waitpid
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=16, help="kills in all")
    parser.add_argument("--commands", default="resume,sample")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    under_shim()
    draw, summary = random.Random(arguments.seed), Summary()
    with victims(*arguments.commands.split(",")) as chosen:
        for victim in chosen:
            operations = victim.operations()
            for kind in ("random", "aimed at file operations"):
                count, tries, wrong = arguments.count // (2 * len(chosen)), 0, 0
                start = time.monotonic()
                with victim.folder() as folder:
                    victim.run(folder)
                longest = time.monotonic() - start
                while tries < count:
                    with victim.folder() as folder:
                        if kind == "random":
                            code = random_kill(victim, folder, longest, draw)
                        else:
                            code, _ = victim.run(folder, draw.randint(1, operations), KILL)
                        if code != -signal.SIGKILL:  # it had ended before
                            longest *= 0.98
                            continue
                        found = victim.check(folder, code, "")
                    tries, wrong = tries + 1, wrong + bool(found)
                    for each in found:
                        print(f"{victim.name}, {kind} kill {tries}: {each}", file=sys.stderr)
                summary.line(f"SIGKILL of {victim.name}, {kind}", tries, wrong)
    summary.exit()


if __name__ == "__main__":
    main()
