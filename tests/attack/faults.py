"""I/O errors at every file operation of train, export and sample, one at a time.

Every write, fsync, rename, mkdir and open for writing below the output folder fails: with ENOSPC from there on, once
with EIO, once with EINTR, once as a short write. Afterwards the old or the new file is there and complete, nothing is
left behind, and running the command again gives the same result as without the error.
"""

import argparse
import errno
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from attack.summary import Summary
from victims import FAIL, FAIL_FROM_HERE_ON, SHORT, under_shim, victims

KINDS = {
    "ENOSPC": (FAIL_FROM_HERE_ON, errno.ENOSPC),
    "EIO": (FAIL, errno.EIO),
    "EINTR": (FAIL, errno.EINTR),
    "short write": (SHORT, 0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=24, help="attacks per command, drawn at random; 0 for every point")
    parser.add_argument("--commands", default="train,resume,export,bundle,sample")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    under_shim()
    summary = Summary()
    with victims(*arguments.commands.split(",")) as chosen:
        for victim in chosen:
            points = [(at, kind) for at in range(1, victim.operations() + 1) for kind in KINDS]
            every = len(points)
            if arguments.count and arguments.count < every:
                points = random.Random(arguments.seed).sample(points, arguments.count)
            wrong = 0
            for at, kind in points:
                with victim.folder() as folder:
                    found = victim.check(folder, *victim.run(folder, at, *KINDS[kind]))
                wrong += bool(found)
                for each in found:
                    print(f"{victim.name}, {kind} at operation {at}: {each}", file=sys.stderr)
            summary.line(f"I/O errors in {victim.name} ({every} points)", len(points), wrong)
    summary.exit()


if __name__ == "__main__":
    main()
