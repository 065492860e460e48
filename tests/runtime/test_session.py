"""Sessions: one interface with the same results on every backend."""

import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from exported import VOCAB, D, exported

import vcdeploy
from vcdeploy import _native
from vcdeploy.errors import Cancelled, TimedOut, VcdeployError
from vcdeploy.runtime.backends import RunSequences
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.native import NativeSequences
from vcdeploy.runtime.sampling import MOST_HISTORY, Sampling, Token
from vcdeploy.spec import PRECISIONS, QUANTIZED_PRECISIONS

NATIVE = [f"native:{isa}" for isa in _native.instruction_sets()]
BACKENDS = [*NATIVE, "onnxruntime", "onnxruntime:function", "torch"]
PRIME = VOCAB.encode("ab ca dé\nb")
EVERYTHING: dict[str, Any] = {
    "temperature": 0.9, "top_k": 6, "top_p": 0.95, "min_p": 0.02, "repetition_penalty": 1.4, "repetition_window": 5
}  # fmt: skip


@pytest.fixture(scope="module", params=QUANTIZED_PRECISIONS)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("session") / "model.onnx"
    onnx.save(exported("vclstm", request.param), path)
    return path


def load(file: Path, backend: str) -> Model:
    name, _, isa = backend.partition(":")
    return vcdeploy.load(file, name, isa=isa) if name == "native" else vcdeploy.load(file, backend)


@pytest.fixture(params=BACKENDS)
def model(request: pytest.FixtureRequest, file: Path) -> Model:
    return load(file, request.param)


def ids(tokens: list[Token]) -> list[int]:
    return [token.id for token in tokens]


def test_a_session_is_a_run_that_goes_on(model: Model) -> None:
    """If quantized, all backends compute the same bits, in any batch and in any pieces."""
    tokens = np.random.default_rng(0).integers(0, len(VOCAB), (20, 3))
    logits, state, m = model.run(tokens)
    session = model.session(batch=3)
    assert not session.state.any() and not session.logits.any() and not session.m.any()
    session.feed(tokens[:15])
    np.testing.assert_array_equal(session.logits, logits[14])
    np.testing.assert_array_equal(session.m, m[14])
    for t in range(15, 20):
        np.testing.assert_array_equal(session.step(tokens[t]), logits[t])
    np.testing.assert_array_equal(session.state, state)
    np.testing.assert_array_equal(session.m, m[-1])


def test_a_step_takes_an_int_or_ids_of_any_type(model: Model) -> None:
    wanted = model.run(np.array([[1], [2], [3], [1]]))[0][:, 0]
    session = model.session()
    given = 1, np.array([2], np.int32), [3], np.int64(1)
    for token, row in zip(given, wanted, strict=True):
        np.testing.assert_array_equal(session.step(token), row[None])
    assert session.step(1) is session.step(2)  # the same memory


def test_run_returns_the_logits_that_are_asked_for(model: Model) -> None:
    tokens = np.arange(12).reshape(6, 2) % len(VOCAB)
    everything = model.run(tokens)
    every_limit: list[dict[str, Any]] = [{}, {"timeout": 1000.0}]
    for limits in every_limit:
        for name, rows in (("all", slice(None)), ("last", slice(-1, None)), ("none", slice(0))):
            logits, *others = model.run(tokens, logits=name, **limits)
            np.testing.assert_array_equal(logits, everything[0][rows])
            for got, wanted in zip(others, everything[1:], strict=True):
                np.testing.assert_array_equal(got, wanted)
    with pytest.raises(VcdeployError, match="logits must be all, last or none, not 'first'"):
        model.run(tokens, logits="first")


@pytest.mark.parametrize("options", [{}, EVERYTHING, {"temperature": 0}, {"stop": ["ab", "é"], "temperature": 1.0}])
def test_the_same_seed_gives_the_same_tokens_everywhere(model: Model, file: Path, options: dict[str, Any]) -> None:
    alone = load(file, NATIVE[-1])
    wanted = []
    for seed in (3, 4, 5):
        session = alone.session()
        session.feed(PRIME)
        wanted.append(session.generate(40, seed=seed, **options)[0])
    session = model.session(batch=3)
    session.feed(np.stack([PRIME] * 3, axis=1))
    made: list[list[Token]] = [[], [], []]
    for length in (1, 32, 7):  # in pieces
        for tokens, piece in zip(made, session.generate(length, seed=3, **options), strict=True):
            tokens += piece
    assert made == wanted
    if "stop" not in options:
        assert ids(made[1]) == list(model.generate(PRIME, 40, seed=4, **options))


def test_what_was_generated_has_been_read(model: Model) -> None:
    session = model.session()
    session.feed(PRIME)
    made = ids(session.generate(12, seed=1)[0])
    logits, state, m = model.run(np.concatenate([PRIME, made])[:, None])
    np.testing.assert_array_equal(session.logits, logits[-1])
    np.testing.assert_array_equal(session.state, state)
    np.testing.assert_array_equal(session.m, m[-1])


def test_forked_saved_and_restored_sessions_go_on_the_same_way(model: Model, file: Path) -> None:
    session = model.session(batch=2)
    session.feed(np.stack([PRIME, PRIME[::-1]], axis=1))
    session.generate(9, seed=1, **EVERYTHING)
    content, fork = session.save(), session.fork()
    wanted = session.generate(30, seed=1, **EVERYTHING)
    assert fork.generate(30, seed=1, **EVERYTHING) == wanted
    for other in (model, load(file, "torch"), load(file, NATIVE[0])):
        restored = other.session(batch=2)
        restored.step([0, 1])
        restored.restore(content)
        assert restored.save() == content
        assert restored.generate(30, seed=1, **EVERYTHING) == wanted
    np.testing.assert_array_equal(session.state, fork.state)


def test_reset_starts_some_sequences_again(model: Model) -> None:
    session = model.session(batch=3)
    tokens = np.stack([PRIME] * 3, axis=1)
    session.feed(tokens)
    before = session.generate(10, seed=2)
    session.reset([1])
    assert not session.state[:, 1].any() and not session.logits[1].any() and session.state[:, 2].any()
    with pytest.raises(VcdeployError, match="sequence 1 has read nothing to go on from"):
        session.generate(1)
    session.feed(tokens)
    assert session.generate(10, seed=2)[1] == before[1]
    session.reset()
    assert not session.state.any()
    with pytest.raises(VcdeployError, match="there is no sequence 3"):
        session.reset([0, 3])


def test_some_sequences_go_on_without_the_others(model: Model, file: Path) -> None:
    """With rows= each gets what it would get alone: fed in turn, with lengths of their own, saved and restored."""
    alone = []
    for seed, length in ((7, 12), (8, 5)):
        session = model.session()
        session.feed(PRIME[seed - 7 :])
        alone.append(session.generate(length, seed=seed)[0])
    session = model.session(batch=4)
    session.feed(PRIME, rows=[2])
    session.feed(PRIME[1:], rows=[0])
    both = [Sampling(seed=8), Sampling(seed=7)]
    first = session.generate([2, 6], both, rows=[0, 2])
    content = session.save(rows=[2])
    rest = session.generate([3, 6], both, rows=[0, 2])
    assert [first[1] + rest[1], first[0] + rest[0]] == alone
    session.restore(content, rows=[3])
    assert session.generate(6, seed=7, rows=[3]) == [alone[0][6:]]
    single = model.session()
    single.restore(content)
    assert single.generate(6, seed=7) == [alone[0][6:]]
    assert not session.state[:, 1].any()
    for rows, message in (
        ([4], "there is no sequence 4"),
        ([1, 1], "different sequences"),
        ([], "different sequences"),
    ):
        with pytest.raises(VcdeployError, match=message):
            session.feed(PRIME, rows=rows)
    with pytest.raises(VcdeployError, match="this call is for 2 sequences, but there are 1 lengths"):
        session.generate([1], rows=[0, 2])


def test_alternatives_are_the_most_likely_symbols(model: Model) -> None:
    session = model.session()
    session.feed(PRIME)
    logits = session.logits[0].astype(np.float64)
    plain, (token,) = model.session(), session.generate(1, alternatives=4, seed=3)[0]
    plain.feed(PRIME)
    assert plain.generate(1, seed=3)[0] == [token._replace(alternatives=())]
    order = np.argsort(-logits, kind="stable")[:4]
    assert [id_ for id_, _ in token.alternatives] == order.tolist()
    wanted = logits[order] - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    np.testing.assert_allclose([value for _, value in token.alternatives], wanted, rtol=1e-12)
    with pytest.raises(VcdeployError, match="alternatives must be from 0 to 7, not 8"):
        session.generate(1, alternatives=8)


def test_allowed_restricts_every_sequence_by_its_mask(model: Model) -> None:
    session = model.session(batch=2)
    session.feed(np.stack([PRIME] * 2, axis=1))
    mask = np.zeros((2, len(VOCAB)), bool)
    mask[0, [1, 3]], mask[1, [2, 4]] = True, True
    made = session.generate(20, allowed=mask, temperature=2.0, top_p=1.0)
    assert [set(ids(tokens)) for tokens in made] == [{1, 3}, {2, 4}]
    with pytest.raises(VcdeployError, match="no symbol is allowed to follow"):
        session.generate(1, allowed=np.zeros(len(VOCAB), bool))
    with pytest.raises(VcdeployError, match=r"allowed must have the shape \[2, 7\], not \[3\]"):
        session.generate(1, allowed=[True, True, False])


def test_allowed_as_a_function_sees_all_ids(model: Model) -> None:
    seen: list[list[int]] = []

    def next_symbol(so_far: Any) -> Any:
        seen.append(list(so_far))
        return np.arange(len(VOCAB)) == (so_far[-1] + 1) % len(VOCAB)

    assert list(model.generate([2], 6, allowed=next_symbol)) == [3, 4, 5, 6, 0, 1]
    assert seen == [[2, *[3, 4, 5, 6, 0, 1][:n]] for n in range(6)]


def test_generation_ends_before_a_stop_string(model: Model) -> None:
    plain = list(model.generate(PRIME, 60, seed=7, temperature=1.5, top_p=1.0))
    text = VOCAB.decode(plain)
    for stop in (text[20:23], text[30], (text[40:44], text[10:12]), tuple(plain[5:7])):
        strings = [VOCAB.decode(stop)] if not isinstance(stop, str) and isinstance(stop[0], int) else [*stop]
        strings = [stop] if isinstance(stop, str) else strings
        end = min(at for at in range(len(text)) if any(text[: at + 1].endswith(each) for each in strings))
        longest = max(len(each) for each in strings if text[: end + 1].endswith(each))
        options: dict[str, Any] = {"seed": 7, "temperature": 1.5, "top_p": 1.0}
        given = [stop] if isinstance(stop, tuple) and isinstance(stop[0], int) else stop
        assert list(model.generate(PRIME, 60, stop=given, **options)) == plain[: end + 1 - longest]
        session = model.session()
        session.feed(PRIME)
        (made,) = session.generate(60, stop=given, **options)
        assert ids(made) == plain[: end + 1]  # a session has read the stop string, and returns it
        assert session.generate(60, stop=given, **options) == [[]]
        session.step(plain[end + 1])
        assert session.generate(1, **options) != [[]]


@pytest.mark.parametrize("isa", _native.instruction_sets())
def test_the_smallest_nucleus_is_one_symbol(isa: str) -> None:
    """Also if top_p is so small that kernels which flush denormals read it as 0; those of floats do."""
    model = vcdeploy.load("english", isa=isa)
    wanted = list(model.generate(PRIME, 5, temperature=0))
    for top_p in (5e-324, 1e-300, 1e-9):
        assert list(model.generate(PRIME, 5, top_p=top_p)) == wanted


def test_a_stop_string_must_be_generated_as_a_whole(model: Model) -> None:
    """Not one that ends the prime, nor one that begins in it."""
    plain = list(model.generate(PRIME, 1, temperature=0))
    for stop in (PRIME[-2:].tolist(), [PRIME[-1], *plain]):
        assert list(model.generate(PRIME, 1, stop=[stop], temperature=0)) == plain


def test_the_repetition_penalty_looks_at_the_window_and_the_prime(model: Model) -> None:
    """At a huge penalty, greedy generation repeats a symbol only after the window."""
    for window in (1, 3, 5):
        options: dict[str, Any] = {"temperature": 0, "repetition_penalty": 1e6, "repetition_window": window}
        made = [*PRIME.tolist(), *model.generate(PRIME, 50, **options)]
        logits = model.run(np.array(made)[:, None])[0][:, 0]
        for at in range(len(PRIME), len(made)):
            recent = made[at - window : at]
            before = logits[at - 1]
            penalized = [
                float(each) * 1e6 if n in recent and each <= 0 else float(each) / 1e6 if n in recent else float(each)
                for n, each in enumerate(before)
            ]
            assert made[at] == int(np.argmax(penalized))


def test_the_history_is_bounded(file: Path) -> None:
    tokens = np.random.default_rng(0).integers(0, len(VOCAB), (MOST_HISTORY + 300, 1))
    results = []
    for backend in (NATIVE[0], "onnxruntime"):
        session = load(file, backend).session()
        session.feed(tokens)
        content = session.save()
        first = session.generate(40, repetition_penalty=1.2, repetition_window=MOST_HISTORY)
        session.restore(content)
        assert session.generate(40, repetition_penalty=1.2, repetition_window=MOST_HISTORY) == first
        results.append((content, first))
    assert results[0] == results[1]


def test_every_sequence_may_have_its_own_sampling(model: Model) -> None:
    several = [Sampling(seed=9), Sampling(temperature=0), Sampling(1.0, top_p=1.0, seed=2, stop="é")]
    session = model.session(batch=3)
    session.feed(np.stack([PRIME] * 3, axis=1))
    made = session.generate(25, several)
    for tokens, sampling in zip(made, several, strict=True):
        one = model.session()
        one.feed(PRIME)
        assert [tokens] == one.generate(25, sampling)
    with pytest.raises(VcdeployError, match="this call is for 3 sequences, but sampling is for 1"):
        session.generate(1, several[:1])


def test_limits_end_a_call(model: Model) -> None:
    session = model.session()
    event = threading.Event()
    event.set()
    with pytest.raises(Cancelled):
        session.feed(np.ones(50_000, np.int64), cancel=event)
    session.reset()
    session.feed(PRIME)
    with pytest.raises(TimedOut):
        session.generate(200_000, timeout=0.01)
    session.reset()
    session.feed(PRIME)
    assert session.generate(5, timeout=1000.0, cancel=threading.Event())[0]


def test_what_is_wrong_is_said(model: Model) -> None:
    with pytest.raises(VcdeployError, match="from 1 to 65536 sequences, not 0"):
        model.session(0)
    session = model.session(batch=2)
    for wrong in (7, [1], [1, 2, 3], [[1, 2]], [1.5, 2.0], None, [[1], [2, 3]], "ab"):
        with pytest.raises(VcdeployError):
            session.step(wrong)  # type: ignore[arg-type]
    for outside in ([1, 7], [-1, 1], np.array([2, 7])):
        with pytest.raises(VcdeployError, match=r"there is no symbol (7|-1); the ids of .* are 0 to 6"):
            session.step(outside)
    with pytest.raises(VcdeployError, match=r"of shape \[T, 2\], T at least 1, not int64 \[0, 2\]"):
        session.feed(np.zeros((0, 2), np.int64))
    with pytest.raises(VcdeployError, match="has read nothing"):
        session.generate(1)
    with pytest.raises(VcdeployError, match="length must be from 0"):
        session.generate(-1)
    with pytest.raises(VcdeployError, match="warmth"):
        session.generate(1, warmth=1)
    with pytest.raises(VcdeployError, match="U\\+0051"):
        session.generate(1, stop="Q")
    stops: list[Any] = [5, [5], [[1.5]], [[7]], [[-1]], [""], [[]]]
    for stop in stops:
        with pytest.raises(VcdeployError, match="stop"):
            session.generate(1, stop=stop)
    session.step([1, 2])
    assert session.generate(0) == [[], []]
    with pytest.raises(VcdeployError, match="too small to divide by"):
        session.generate(1, temperature=1e-310)
    with pytest.raises(VcdeployError, match="makes a logit infinite"):
        session.generate(1, repetition_penalty=1e-300)


def test_restore_checks_what_it_gets(model: Model) -> None:
    session = model.session(batch=2)
    session.feed(np.stack([PRIME] * 2, axis=1))
    content = session.save()
    session.step([1, 1])
    for at in (20, 60, 200, len(content) - 1):
        damaged = bytearray(content)
        damaged[at] ^= 1
        with pytest.raises(VcdeployError, match="damaged"):
            session.restore(bytes(damaged))
    for wrong in (b"", b"vcdeploy", content[:-1], content[:30], "text", None):
        with pytest.raises(VcdeployError, match=r"no saved session|damaged"):
            session.restore(wrong)  # type: ignore[arg-type]
    with pytest.raises(VcdeployError, match=r"saved with 2 sequences, but this one has 1: use model.session\(2\)"):
        model.session().restore(content)
    session.restore(content)
    assert session.save() == content


def test_restore_refuses_another_model(file: Path, tmp_path: Path) -> None:
    onnx.save(exported("vcgru", "int8"), tmp_path / "other.onnx")
    other = vcdeploy.load(tmp_path / "other.onnx").session()
    with pytest.raises(VcdeployError, match="saved with another model"):
        other.restore(vcdeploy.load(file).session().save())


def test_hostile_saved_sessions_are_refused(file: Path) -> None:
    """With a valid checksum and any header, a session is restored or refused with an error."""
    import hashlib
    import json

    from vcdeploy.runtime.session import MAGIC

    session = vcdeploy.load(file).session()
    session.feed(PRIME)
    body = session.save()[len(MAGIC) + 32 :]
    size = int.from_bytes(body[:8], "little")
    header, rest = json.loads(body[8 : 8 + size]), body[8 + size :]
    counts = [[-1, 0, 0, 0], [2**70, 0, 0, 9], [5, 9, 0, 5], [9, 9, 99, 9], [9, 0, 0, 2**40], ["9", 0, 0, 9], [9, 0, 0]]
    changed: list[Any] = [{**header, "counts": [each]} for each in counts]
    wrong: list[Any] = [[], 5, None, [[]], "x"]
    changed += [{**header, "counts": each} for each in wrong]
    changed += [[], 5, {}]
    for each, tail in itertools.product(changed, (rest, rest + b"more")):
        written = json.dumps(each).encode()
        for length in (len(written), 2**60):
            content = length.to_bytes(8, "little") + written + tail
            with pytest.raises(VcdeployError, match="can't be read"):
                session.restore(MAGIC + hashlib.sha256(content).digest() + content)
    content = body[: 8 + size] + np.full(len(PRIME), 7, "<i8").tobytes() + rest[8 * len(PRIME) :]
    with pytest.raises(VcdeployError, match="outside the vocabulary"):
        session.restore(MAGIC + hashlib.sha256(content).digest() + content)


def test_sessions_of_one_model_run_at_the_same_time(file: Path) -> None:
    model = load(file, NATIVE[0])
    wanted = list(model.generate(PRIME, 300, seed=1))
    results: list[list[int]] = [[] for _ in range(4)]

    def work(n: int) -> None:
        session = model.session()
        session.feed(PRIME)
        for _ in range(10):
            results[n] += ids(session.generate(30, seed=1)[0])

    threads = [threading.Thread(target=work, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [wanted] * 4


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("isa", _native.instruction_sets())
def test_a_batch_has_the_bits_of_single_sequences(precision: str, isa: str, tmp_path: Path) -> None:
    """70 sequences: more than run takes side by side; also the generic sequences over the same model."""
    onnx.save(exported("vcgru", precision), tmp_path / "model.onnx")
    model = vcdeploy.load(tmp_path / "model.onnx", "native", isa=isa)
    tokens = np.random.default_rng(1).integers(0, len(VOCAB), (7, 70))
    alone = [model.run(tokens[:, n : n + 1]) for n in range(70)]
    together = model.run(tokens)
    for each, parts in zip(together, zip(*alone, strict=True), strict=True):
        np.testing.assert_array_equal(each, np.concatenate(parts, axis=1))
    native, generic = NativeSequences(model.runner._model.session(70)), RunSequences(model.runner, 70)  # type: ignore[attr-defined]
    uniforms = np.random.default_rng(2).random((5, 70))
    drawn = []
    for sequences in (native, generic):
        sequences.feed(tokens)
        drawn.append(sequences.generate(uniforms, [Sampling(1.0, top_p=0.9)] * 70))
    for number in (0, 2, 3):
        np.testing.assert_array_equal(drawn[0][number], drawn[1][number])
    assert native.save()[0].shape == (2, 70, D)


def test_a_set_event_and_a_short_timeout_end_every_call(model: Model) -> None:
    session, event = model.session(), threading.Event()
    session.feed(PRIME)
    event.set()
    for limit, error in (({"cancel": event}, Cancelled), ({"timeout": 1e-9}, TimedOut)):
        for call in (
            lambda limit=limit: session.generate(1, **limit),
            lambda limit=limit: session.feed(PRIME, **limit),
            lambda limit=limit: model.run(PRIME.reshape(-1, 1), **limit),
        ):
            with pytest.raises(error):
                call()


def test_views_are_read_only(model: Model) -> None:
    session = model.session()
    for view in (session.logits, session.step(int(PRIME[0])), session.logits, session.m):
        with pytest.raises(ValueError, match="read-only"):
            view[:] = 0
    expected = session.fork().generate(5, seed=1)
    session.restore(session.save())
    with pytest.raises(ValueError, match="read-only"):
        session.logits[:] = 0
    assert session.generate(5, seed=1) == expected


def test_calls_of_any_size_and_type_are_refused_with_a_message(model: Model) -> None:
    session = model.session(2)
    session.feed([[1, 2]])
    for call in (
        lambda: session.generate(10**12),
        lambda: session.generate(2**70),
        lambda: session.generate(5, 3),  # type: ignore[arg-type]
        lambda: session.reset(0),  # type: ignore[arg-type]
        lambda: session.reset(["a"]),  # type: ignore[list-item]
        lambda: session.reset([1.7]),  # type: ignore[list-item]
        lambda: model.session(2**31),
        lambda: list(model.generate(PRIME, 5, allowed=lambda ids: np.ones(5000, bool))),
        lambda: list(model.generate(PRIME, 5, allowed=lambda ids: np.ones(3, bool))),
    ):
        with pytest.raises(VcdeployError):
            call()
    assert model.session(np.int64(4)).batch == 4


def test_numbers_of_numpy_sample_like_pythons(model: Model) -> None:
    numpys = Sampling(np.float32(0.75), np.uint8(3), 1.0, np.uint64(2**64 - 1), 1.0, repetition_window=np.uint8(64))
    pythons = Sampling(0.75, 3, 1.0, 2**64 - 1, 1.0, repetition_window=64)
    assert numpys == pythons and type(numpys.seed) is int
    found = []
    for sampling in (numpys, pythons):
        session = model.session(2)
        session.feed([[1, 2], [3, 4]])
        found.append(session.generate(10, sampling))
    assert found[0] == found[1]


def test_a_checkpoint_and_its_export_share_sessions(file: Path) -> None:
    model = vcdeploy.load(file, "native")
    session = model.session()
    session.feed(PRIME)
    content, expected = session.save(), session.generate(5)
    model.config = {name: each for name, each in model.config.items() if name != "training"}  # as in a checkpoint
    other = model.session()
    other.restore(content)
    assert other.generate(5) == expected
