"""Generate many tokens: memory stays flat, states stay finite, and the pieces make no difference.

Every token of a long text is read by three more runs from their own states, in chunks of 1, 7 and 1000 tokens; states
and logits must have the same bits as those of the generating run. The full setting is --count 100000000.
"""

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests/
from attack.summary import Summary
from random_models import model

from vcdeploy import _native

PIECE = 7000  # tokens per round: a multiple of 7 and 1000
GROWTH = 8 << 20  # bytes; one piece of logits is 0.8 MB, so that a leak of one per round shows within ten rounds
CHUNKS = (1, 7, 1000)
WARM = 10  # rounds until the memory counts as warm


def resident() -> int:
    """Bytes of memory in use now; the peak where the system doesn't say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def soak(precision: str, count: int) -> int:
    """Generate count tokens and return the number of failures."""
    subject = model("vcgru", 32, precision=precision)
    native = subject._model
    session, options = native.session(), [_native.Sampling()]
    first = np.zeros((1, 1), np.int64)
    session.feed(first)
    _, state, last = native.run(first)
    states = [state for _ in CHUNKS]
    random = np.random.default_rng(1)
    made, failures, warm, most, begin = 0, 0, 0, 0, time.monotonic()
    while made < count:
        size = min(PIECE, count - made)
        tokens, m, *_ = session.generate(random.random((size, 1)), options)  # m of the step before each token
        state = session.save()[0]
        outputs = []
        for number, chunk in enumerate(CHUNKS):
            pieces = []
            for start in range(0, size, chunk):
                logits, states[number], fractions = native.run(tokens[start : start + chunk], states[number])
                pieces.append((logits, fractions))
            outputs.append([np.concatenate(each) for each in zip(*pieces, strict=True)])
        sound = np.isfinite(state).all() and all(np.array_equal(each, state) for each in states)
        for logits, fractions in outputs:
            sound &= np.isfinite(logits).all() and np.array_equal(logits, outputs[0][0])
            sound &= np.array_equal(np.concatenate([last, fractions[:-1]]), m) and ((m >= 0) & (m <= 1)).all()
        last = outputs[0][1][-1:]
        failures += not sound
        made += size
        memory = resident()
        if made <= WARM * PIECE:
            warm = max(warm, memory)
        most = max(most, memory)
        if made % (PIECE * 1000) == 0:
            rate = made / (time.monotonic() - begin)
            print(
                f"  {precision}: {made} tokens, {rate:.0f}/s, {memory >> 20} MB, {failures} failures",
                file=sys.stderr,
                flush=True,
            )
    if most > warm + GROWTH:
        failures += 1
        print(f"  {precision}: memory grew from {warm >> 20} to {most >> 20} MB")
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=140_000, help="tokens per precision (default 140000)")
    parser.add_argument("--precisions", nargs="+", default=["f32", "int8"])
    arguments = parser.parse_args()
    summary = Summary()
    for each in arguments.precisions:
        name = f"tokens generated in {each}, read again in chunks of {', '.join(map(str, CHUNKS))}"
        summary.line(name, arguments.count, soak(each, arguments.count))
    summary.exit()


if __name__ == "__main__":
    main()
