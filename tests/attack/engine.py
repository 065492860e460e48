"""Attack the native engine: writes during a run, forks, cancels, timeouts, signals.

A call returns the same bits as alone, or raises what it says; nothing hangs, and the model works afterwards. Every
attack runs in a process of its own, which a deadline ends: a crash or a hang is a failure like any other.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vcdeploy import _native
from vcdeploy.errors import Cancelled, TimedOut, VcdeployError
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.sampling import Sampling
from vcdeploy.runtime.session import generate

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests/
from attack.summary import Summary
from random_models import VOCAB, model

DEADLINE = 60  # seconds for one process, which needs a fraction of one; longer is a hang
FOREVER = 50_000_000  # tokens: hours


def tokens(count: int = 40, batch: int = 2) -> Any:
    return np.random.default_rng(2).integers(0, len(VOCAB), (count, batch))


def large(threads: int, precision: str = "f32") -> Any:
    """A model whose steps are large enough to be split over threads."""
    return model("vcgru", 192, bias=2.0, threads=threads, precision=precision)


def facade(runner: Any) -> Model:
    return Model("native", {"unit": "vcgru", "layers": 1, "dim": runner.dim}, VOCAB, "f32", "the model", runner)


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def ended(pid: int) -> bool:
    """Whether a child ends with 0 before the deadline; kills it if it does not end."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def forked(work: Callable[[], bool]) -> bool:
    """Whether work() returns True in a forked process."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if work() else 2
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)
    return ended(pid)


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Any:
    """Repeats work in another thread."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def forks_while_idle(threads: int, count: int) -> int:
    runner = large(threads)
    expected = runner.run(tokens())
    return sum(not forked(lambda: same(runner.run(tokens()), expected)) for _ in range(count))


def forks_while_running(threads: int, count: int) -> int:
    runner = large(threads)
    expected = runner.run(tokens())
    written = list(generate(runner, np.array([1]), 20, Sampling()))

    def child() -> bool:
        # In a fork of a fork as well, and from another thread of it.
        found = []
        thread = threading.Thread(target=lambda: found.append(runner.run(tokens())))
        thread.start()
        generated = list(generate(runner, np.array([1]), 20, Sampling()))
        thread.join()
        return (
            same(found[0], expected) and generated == written and forked(lambda: same(runner.run(tokens()), expected))
        )

    with meanwhile(lambda: runner.run(tokens())):
        return sum(not forked(child) for _ in range(count))


def forks_between_short_runs(count: int) -> int:
    """Other threads take and give turns all the time: at the moment of the fork a lock may be held."""
    runner, one = model("vcgru", 8), tokens(1, 1)
    expected = runner.run(one)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(meanwhile(lambda: runner.run(one)))
        return sum(not forked(lambda: same(runner.run(one), expected)) for _ in range(count))


def forks_with_a_session(threads: int, count: int) -> int:
    """The session is in use by another thread at the moment of the fork."""
    session = facade(large(threads)).session(batch=2)
    session.feed(tokens())
    content, wanted = session.save(), session.generate(20, seed=1)

    def child() -> bool:
        session.restore(content)
        return session.generate(20, seed=1) == wanted

    with meanwhile(lambda: session.generate(50)):
        return sum(not forked(child) for _ in range(count))


def train(threads: int = 2) -> list[Any]:
    """Y and M of a training pass."""
    T, B, D = 6, 8, 96
    random = np.random.default_rng(3)
    X, H0, U, V, u, v = (
        (random.standard_normal(shape) * 0.1).astype(np.float32)
        for shape in ((T, B, D), (B, D), (3 * D, D), (3 * D, D), (D,), (D,))
    )
    Y, M = np.empty((T, B, D), np.float32), np.empty((T, B), np.float32)
    gates = np.empty(T * B * 3 * D, np.float32)
    _native.train_forward("vcgru", X, H0, U, V, u, v, 2.0, None, Y, M, gates, sharpness=1.0, epsilon=1e-3,
                          threads=threads)  # fmt: skip
    return [Y, M]


def forks_while_training(count: int) -> int:
    expected = train()
    with meanwhile(train):
        return sum(not forked(lambda: same(train(), expected)) for _ in range(count))


def writes_during_a_run(count: int) -> int:
    """Another thread writes ids that do not exist; a run uses the ids it has checked."""

    def child() -> bool:
        runner, sound = model("vcgru", 32), True
        ids = tokens(20_000)
        good, expected = ids.copy(), runner.run(ids)
        for delay in np.random.default_rng(6).uniform(0, 0.02, 5):

            def write(delay: float = delay) -> None:
                time.sleep(delay)
                ids[:] = 2**40

            ids[:] = good
            thread = threading.Thread(target=write)
            thread.start()
            with suppress(VcdeployError):  # the ids were there before it began
                sound &= same(runner.run(ids), expected)
            thread.join()
        return sound

    return sum(not forked(child) for _ in range(count))


def many_callers(count: int) -> int:
    runner = large(2, "int8")
    expected, failures = runner.run(tokens()), []

    def call() -> None:
        for _ in range(count):
            if not same(runner.run(tokens()), expected):
                failures.append(1)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    return len(failures)


def ends_with(error: type[BaseException], call: Callable[[], Any], runner: Any, expected: Any) -> bool:
    """Whether the call raises the error, and the model still works."""
    try:
        call()
    except error:
        return same(runner.run(tokens()), expected)
    return False


def cancels_and_timeouts(count: int) -> int:
    runner = large(2)
    expected, limited, endless = runner.run(tokens()), facade(runner), np.zeros((100_000, 1), np.int64)
    delays = np.random.default_rng(4).uniform(0.001, 0.05, count)

    def cancelled(delay: float) -> bool:
        event = threading.Event()
        threading.Timer(delay, event.set).start()
        return ends_with(Cancelled, lambda: limited.run(endless, cancel=event), runner, expected)

    def timed_out(delay: float) -> bool:
        return ends_with(TimedOut, lambda: list(limited.generate([1], FOREVER, timeout=delay)), runner, expected)

    def waiting(delay: float) -> bool:
        """A call ends while it waits for another."""
        event = threading.Event()
        thread = threading.Thread(target=lambda: ends_with(Cancelled, lambda: limited.run(endless, cancel=event),
                                                           runner, expected))  # fmt: skip
        thread.start()
        ended = ends_with(TimedOut, lambda: limited.run(endless, timeout=delay), runner, expected)
        event.set()
        thread.join()
        return ended

    attacks = (cancelled, timed_out, waiting)
    return sum(not forked(partial(each, delay)) for delay in delays for each in attacks)


def signals(count: int) -> int:
    """Ctrl-C, and a SIGTERM whose handler uses the model and forks.

    Python runs the handler at the latest when the call returns, so the call is one that takes longer than DEADLINE.
    """
    endless = np.zeros((4_000_000, 1), np.int64)

    def make() -> Any:
        return model("vcgru", 512, bias=2.0, threads=2)

    def interrupted(delay: float) -> bool:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        runner = make()
        expected = runner.run(tokens())

        def run() -> None:
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()
            runner.run(endless, logits="none")

        return ends_with(KeyboardInterrupt, run, runner, expected)

    def terminated(delay: float) -> bool:
        runner = make()
        expected = runner.run(tokens())

        def handler(*_: Any) -> None:
            sound = same(runner.run(tokens()), expected) and forked(lambda: same(runner.run(tokens()), expected))
            raise SystemExit(0 if sound else 1)

        signal.signal(signal.SIGTERM, handler)
        try:
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGTERM)).start()
            runner.run(endless, logits="none")
        except SystemExit as error:
            return error.code == 0
        return False

    delays = np.random.default_rng(5).uniform(0.001, 0.05, count)
    attacks = (interrupted, terminated)
    return sum(not forked(partial(each, delay)) for delay in delays for each in attacks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10, help="tries of each kind (default 10)")
    n = parser.parse_args().count
    attacks: list[tuple[str, int, Callable[[], int]]] = [
        ("a forked child runs, threads=1", n, lambda: forks_while_idle(1, n)),
        ("a forked child runs, threads=2", n, lambda: forks_while_idle(2, n)),
        ("fork while another thread runs, threads=1", n, lambda: forks_while_running(1, n)),
        ("fork while another thread runs, threads=2", n, lambda: forks_while_running(2, n)),
        ("fork between short runs of other threads", 4 * n, lambda: forks_between_short_runs(4 * n)),
        ("fork while another thread uses a session", 2 * n, lambda: sum(forks_with_a_session(t, n) for t in (1, 2))),
        ("fork while another thread trains", n, lambda: forks_while_training(n)),
        ("ids overwritten during a run", n, lambda: writes_during_a_run(n)),
        ("four callers of one model", 4 * n, lambda: many_callers(n)),
        ("cancel and timeout, also while waiting", 3 * n, lambda: cancels_and_timeouts(n)),
        ("Ctrl-C, and SIGTERM whose handler runs and forks", 2 * n, lambda: signals(n)),
    ]
    summary = Summary()
    for what, tries, attack in attacks:
        summary.line(what, tries, attack())
    summary.exit()


if __name__ == "__main__":
    main()
