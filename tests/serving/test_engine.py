"""The engine: batched streams get what each would get alone, limits hold, and what is not wanted stops."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from exported import VOCAB, exported

import vcdeploy
from vcdeploy.errors import VcdeployError
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.sampling import Sampling, Token
from vcdeploy.serving.engine import Engine, Limits
from vcdeploy.serving.queue import Queue
from vcdeploy.serving.streams import Refused, Request, Stream

PRIME = VOCAB.encode("ab ca dé\nb").tolist()
ENDLESS = 2**30  # tokens: a stream that ends only if it is cancelled


@pytest.fixture(scope="module", params=["native", "torch"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("engine") / "model.onnx"
    onnx.save(exported("vcgru", "int8"), path)
    return vcdeploy.load(path, request.param)


@pytest.fixture
def engine(model: Model) -> Iterator[Engine]:
    made = Engine(model, limits=Limits(streams=4, queue=3, unread=64))
    yield made
    made.close()


def request(length: int = 20, seed: int = 0, **options: Any) -> Request:
    given = {name: options.pop(name) for name in ("prompt", "state", "keep_state", "owner", "timeout", "alternatives",
                                                  "allowed") if name in options}  # fmt: skip
    return Request(given.pop("prompt", PRIME), length, Sampling(seed=seed, **options), **given)


def everything(stream: Stream) -> list[Token]:
    return [token for piece in stream for token in piece]


def ids(tokens: list[Token]) -> list[int]:
    return [token.id for token in tokens]


def wait_for(condition: Any) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.001)


def test_a_stream_gets_what_the_model_generates(model: Model, engine: Engine) -> None:
    """Whatever runs beside it: prompts, lengths and options differ."""
    asked = [
        request(30, 1), request(7, 2, prompt=PRIME[:1], temperature=1.0), request(50, 3, prompt=PRIME * 30),
        request(1, 4, temperature=0), request(40, 5, stop=[tuple(VOCAB.encode("a").tolist())], temperature=2.0),
        request(25, 6, repetition_penalty=1.3), request(12, 7, alternatives=3),
    ]  # fmt: skip
    streams = [engine.submit(each) for each in asked]
    for each, stream in zip(asked, streams, strict=True):
        wanted = list(model.stream(each.prompt, each.length, each.sampling))
        made = everything(stream)
        assert [token[:3] for token in made] == [token[:3] for token in wanted]
        assert stream.finish == ("length" if len(wanted) == each.length else "stop")
    likely = made[0].alternatives
    assert len(likely) == 3 and likely == tuple(sorted(likely, key=lambda pair: -pair[1]))
    logits = model.run(np.array(PRIME)[:, None])[0][-1, 0]
    assert likely[0][0] == logits.argmax()
    assert engine.counts.tokens >= sum(len(everything(stream)) for stream in streams)


def test_a_state_continues_a_stream(model: Model, engine: Engine) -> None:
    wanted = list(model.generate(PRIME, 30, seed=4))
    first = engine.submit(request(10, 4, keep_state=True))
    made = ids(everything(first))
    assert first.state is not None
    rest = engine.submit(request(20, 4, prompt=[], state=first.state))
    assert made + ids(everything(rest)) == wanted


def test_allowed_restricts_a_stream_and_not_the_others(model: Model, engine: Engine) -> None:
    def next_symbol(so_far: Any) -> Any:
        return np.arange(len(VOCAB)) == (so_far[-1] + 1) % len(VOCAB)

    bound, free = engine.submit(request(5, prompt=[2], allowed=next_symbol)), engine.submit(request(20, 1))
    assert ids(everything(bound)) == [3, 4, 5, 6, 0]
    assert ids(everything(free)) == list(model.generate(PRIME, 20, seed=1))


def test_a_stream_that_fails_does_not_stop_the_others(engine: Engine) -> None:
    def fails(so_far: Any) -> Any:
        raise VcdeployError("no form")

    bad, good = engine.submit(request(5, allowed=fails)), engine.submit(request(20))
    with pytest.raises(VcdeployError, match="no form"):
        everything(bad)
    assert bad.finish == "error" and len(everything(good)) == 20
    wrong = engine.submit(request(5, prompt=[], state=b"nonsense"))
    with pytest.raises(VcdeployError, match="no saved session"):
        everything(wrong)
    with pytest.raises(VcdeployError, match="there is no symbol 99"):
        engine.submit(request(prompt=[99]))


def test_a_bug_ends_the_streams_of_its_slice_and_not_the_engine(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(so_far: Any) -> Any:
        raise ZeroDivisionError("a bug")

    with pytest.raises(VcdeployError, match="the engine failed: ZeroDivisionError"):
        everything(engine.submit(request(5, allowed=fails)))
    assert "a bug" in caplog.text and len(everything(engine.submit(request(20)))) == 20


def test_a_cancelled_stream_stops(engine: Engine) -> None:
    """While it generates, while its prompt is read, and while it waits."""
    stream = engine.submit(request(ENDLESS))
    next(iter(stream))
    stream.cancel()
    wait_for(lambda: stream.finish)
    made = stream.made
    assert stream.finish == "cancelled" and engine.running == 0
    long = engine.submit(request(5, prompt=PRIME * 100_000))
    wait_for(lambda: long.read)
    long.cancel()
    wait_for(lambda: long.finish)
    assert long.finish == "cancelled" and long.read < len(long.request.prompt) and not long.made
    running = [engine.submit(request(ENDLESS)) for _ in range(4)]
    wait_for(lambda: engine.running == 4)
    waiting = engine.submit(request())
    waiting.cancel()
    assert waiting.finish == "cancelled" and waiting.started is None and engine.waiting == 0
    for each in running:
        each.cancel()
    assert stream.made == made


def test_a_reader_that_is_slow_pauses_only_its_own_stream(engine: Engine) -> None:
    slow = engine.submit(request(ENDLESS))
    wait_for(lambda: slow.unread >= 64)
    made = slow.made
    assert len(everything(engine.submit(request(500)))) == 500
    assert slow.made == made  # it has not gone on
    slow.take()
    wait_for(lambda: slow.made > made)
    slow.cancel()


def test_a_stream_ends_in_time(engine: Engine) -> None:
    """Also one that waits, and one whose reader is slow."""
    running = [engine.submit(request(ENDLESS, timeout=0.05 * n)) for n in range(1, 5)]
    waiting = engine.submit(request(ENDLESS, timeout=0.01))
    for each in (*running, waiting):
        wait_for(lambda each=each: each.finish)
        assert each.finish == "timeout"
    assert running[3].made and waiting.started is None


def test_what_is_too_much_is_refused(engine: Engine) -> None:
    running = [engine.submit(request(ENDLESS)) for _ in range(4)]
    wait_for(lambda: engine.running == 4)
    waiting = [engine.submit(request(5)) for _ in range(3)]
    with pytest.raises(Refused, match="4 streams run and 3 wait, which is the limit") as error:
        engine.submit(request(5))
    assert 1 <= error.value.retry_after <= 60 and engine.refused == 1
    for each in running:
        each.cancel()
    assert [len(everything(each)) for each in waiting] == [5, 5, 5]


def test_draining_ends_what_takes_too_long(engine: Engine) -> None:
    streams = [engine.submit(request(ENDLESS)), engine.submit(request(ENDLESS, timeout=1000))]
    engine.drain(0.05)
    with pytest.raises(Refused, match="shutting down"):
        engine.submit(request(5))
    for stream in streams:
        wait_for(lambda each=stream: each.finish)
        assert stream.finish == "timeout"


def test_closing_ends_everything(model: Model) -> None:
    engine = Engine(model, workers=2, limits=Limits(streams=1, queue=5))
    streams = [engine.submit(request(ENDLESS)) for _ in range(4)]
    wait_for(lambda: engine.running == 2)  # one on each instance
    engine.close()
    assert [each.finish for each in streams] == ["cancelled"] * 4
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(f"vcdeploy {model.name}")]


def test_owners_take_turns() -> None:
    queue = Queue()
    fake: Any = None
    for owner in "aaaabc":
        queue.add(Stream(request(owner=owner), fake))
    order = [queue.next() for _ in range(3)]
    assert [each.request.owner for each in order] == ["a", "b", "c"]
    queue.done(order[1])
    queue.add(Stream(request(owner="b"), fake))
    assert [queue.next().request.owner for _ in range(len(queue))] == ["b", "a", "a", "a"]
