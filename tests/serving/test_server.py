"""`vcdeploy serve` as its clients see it: a server process for the module."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from running import TOKEN, Running, start, wait_for

import vcdeploy
from vcdeploy.runtime.model import Model

PRIME = "The prime min"
ENDLESS = 2**20  # tokens, the most this server lets one ask for
LONG = {"prompt": PRIME, "max_tokens": ENDLESS}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    running = start("english", "irish", "--streams", "2", "--queue", "2", "--max-tokens", str(ENDLESS),
                    "--max-body", "200000", "--patience", "1")  # fmt: skip
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def model() -> Model:
    return vcdeploy.load("english")


def idle(server: Running) -> None:
    wait_for(lambda: not server.metric("streams_running") and not server.metric("streams_waiting"))


def complete(server: Running, **fields: Any) -> Any:
    """The choice of a completion."""
    answer = server.json("/v1/completions", {"model": "english", "prompt": PRIME, "seed": 3, **fields})
    (choice,) = answer["choices"]
    return choice


# Completions


def test_a_completion_is_what_the_model_generates(server: Running, model: Model) -> None:
    prime = model.vocab.encode(PRIME)
    wanted = list(model.stream(prime, 60, seed=3))
    choice = complete(server, max_tokens=60, logprobs=2, m=True)
    assert choice["text"] == model.vocab.decode([token.id for token in wanted])
    assert choice["finish_reason"] == "length" and choice["seed"] == 3
    assert choice["m"] == [round(token.m, 4) for token in wanted]
    listed = choice["logprobs"]
    assert listed["tokens"] == list(choice["text"]) and listed["text_offset"] == list(range(60))
    assert listed["token_logprobs"] == [round(token.log_probability, 6) for token in wanted]
    logits = model.run(prime[:, None], logits="last")[0][0, 0]
    likely = [model.vocab.symbols[id_] for id_ in np.argsort(-logits)[:2]]
    assert list(listed["top_logprobs"][0]) == likely
    assert choice["compute"]["m"] == pytest.approx(np.mean([token.m for token in wanted]), abs=1e-4)
    assert 0 < choice["compute"]["dense_gru"] < 0.5


def test_the_stream_is_the_same_text_in_pieces(server: Running) -> None:
    wanted = complete(server, max_tokens=3000, logprobs=0, m=True)
    options = {"include_usage": True}
    *events, usage = server.events({"prompt": PRIME, "seed": 3, "max_tokens": 3000, "logprobs": 0, "m": True,
                                    "stream_options": options})  # fmt: skip
    choices = [event["choices"][0] for event in events]
    assert len(choices) > 2 and len({event["id"] for event in events}) == 1
    assert "".join(choice["text"] for choice in choices) == wanted["text"]
    assert [m for choice in choices for m in choice["m"]] == wanted["m"]
    for name in ("tokens", "token_logprobs", "text_offset"):
        assert [each for choice in choices for each in choice["logprobs"][name]] == wanted["logprobs"][name]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert choices[-1]["compute"] == wanted["compute"]
    assert usage["choices"] == [] and usage["usage"]["total_tokens"] == len(PRIME) + 3000


def test_a_state_or_the_text_continues_a_stream(server: Running) -> None:
    whole = complete(server, max_tokens=50)["text"]
    first = complete(server, max_tokens=20, return_state=True)
    assert first["text"] + complete(server, prompt="", max_tokens=30, state=first["state"])["text"] == whole
    greedy = {"max_tokens": 10, "temperature": 0}
    after = complete(server, prompt=PRIME + first["text"], **greedy)["text"]
    assert complete(server, prompt="", state=first["state"], **greedy)["text"] == after
    bent = first["state"][:-8] + ("AAAAAAA=" if first["state"][-8:] != "AAAAAAA=" else "BBBBBBB=")
    for state in ("nonsense", "é", "", bent):
        status, _, content = server.ask("/v1/completions", {"state": state, "prompt": ""})
        assert status == 400 and b"state" in content


def test_stop_strings_and_several_texts(server: Running) -> None:
    text = complete(server, max_tokens=60)["text"]
    choice = complete(server, max_tokens=60, stop=[text[20:24], "never this"])
    assert choice["text"] == text[: text.index(text[20:24])] and choice["finish_reason"] == "stop"
    streamed = list(server.events({"prompt": PRIME, "seed": 3, "max_tokens": 60, "stop": text[20:24]}))
    assert "".join(event["choices"][0]["text"] for event in streamed) == choice["text"]
    body = {"prompt": [PRIME, "It is "], "n": 2, "seed": 3, "max_tokens": 60, "echo": True}
    several = server.json("/v1/completions", body)["choices"]
    assert [each["index"] for each in several] == [0, 1, 2, 3] and several[0]["text"] == PRIME + text
    assert [each["text"][:6] for each in several[2:]] == ["It is ", "It is "] and several[1]["seed"] == 4
    assert server.json("/v1/completions", {"prompt": PRIME, "max_tokens": 5})["choices"][0]["seed"] >= 0


@pytest.mark.parametrize(("body", "field", "message"), [
    ({"temperature": -1}, "temperature", "must be from 0 to 10, not -1"),
    ({"temperature": 0.001}, "temperature", "must be 0, or from 0.01 on"),
    ({"temperature": "hot"}, "temperature", "must be a number, not a? ?string"),
    ({"max_tokens": True}, "max_tokens", "must be an integer"),
    ({"max_tokens": ENDLESS + 1}, "max_tokens", "must be from 0"),
    ({"temprature": 1}, "temprature", "did you mean 'temperature'"),
    ({"prompt": "日本"}, "prompt", "is not among the 180 symbols"),
    ({"prompt": [1, "a"]}, "prompt", "must be a text, a list of texts, or a list of ids"),
    ({"prompt": [999]}, "prompt", "ids of this model are 0 to 179"),
    ({"prompt": []}, "prompt", "must be a text"),
    ({"n": 16, "prompt": ["a", "b"]}, "prompt", "asks for 32 texts"),
    ({"best_of": 3}, "best_of", "the same as n"),
    ({"logit_bias": {"1": 2}}, "logit_bias", "must be empty"),
    ({"presence_penalty": 1}, "presence_penalty", "must be from 0 to 0"),
    ({"stop": [""]}, r"stop[0]", "from 1 to 1024 characters"),
    (b"[1]", None, "must be a JSON object"),
    (b'{"temperature": NaN}', None, "NaN"),
    (b"{", None, "no JSON"),
    (b"", None, "empty"),
    (b"[" * 100_000, None, "no JSON"),
    (b"\xff", None, "no JSON"),
])  # fmt: skip
def test_bad_requests_are_refused(server: Running, body: Any, field: str | None, message: str) -> None:
    import re

    status, _, content = server.ask("/v1/completions", body)
    error = json.loads(content)["error"]
    assert status == 400 and error["type"] == "invalid_request_error" and error["param"] == field
    assert re.search(message, error["message"]), error["message"]


# Limits


def test_a_token_is_needed_except_for_health_and_the_page(server: Running) -> None:
    for wrong in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}s"):
        status, headers, content = server.ask("/v1/models", headers={"Authorization": wrong})
        assert status == 401 and headers["www-authenticate"] == "Bearer" and b"token" in content
    for path in ("/", "/health/live", "/health/ready", "/v2/health/live"):
        assert server.ask(path, headers={"Authorization": ""})[0] == 200
    for path in ("/metrics", "/openapi.json", "/v2", "/v2/models/english", "/v1/models/english"):
        assert server.ask(path, headers={"Authorization": ""})[0] == 401
        assert server.ask(path)[0] == 200


def test_other_sites_hosts_and_paths_are_refused(server: Running) -> None:
    body = {"prompt": PRIME, "max_tokens": 1}
    assert server.ask("/v1/completions", body, headers={"Origin": "https://evil.example"})[0] == 403
    assert server.ask("/v1/completions", body, headers={"Origin": server.url})[0] == 200
    assert "access-control-allow-origin" not in server.ask("/v1/models", headers={"Origin": server.url})[1]
    assert server.ask("/v1/models", headers={"Host": "evil.example"})[0] == 421
    assert server.json("/nothing", status=404)["error"]["message"] == "there is no /nothing"
    assert server.ask("/v1/completions")[0] == 405
    assert server.json("/v1/completions", {"model": "none"}, 404)["error"]["message"].endswith("english, irish")
    assert server.ask("/../../etc/passwd")[0] == 404


def test_long_and_slow_requests_end(server: Running) -> None:
    """A body beyond the limit; one that comes too slowly, as a slow-loris; a head that does; a client that goes."""
    assert server.ask("/v1/completions", {"prompt": "a" * 200_000})[0] == 413
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
    for sent, wanted in (
        (head + b"Content-Length: 100\r\n\r\n{", b"HTTP/1.1 408"),
        (head, b""),
        (b"", b""),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000, b"HTTP/1.1 400"),
    ):
        with server.connect() as connection:
            connection.sendall(sent)
            assert connection.recv(12) == wanted
    with server.begin(LONG) as connection:
        connection.shutdown(socket.SHUT_WR)  # half-closed
        assert connection.recv(1) == b""
    idle(server)


def test_a_client_that_goes_away_stops_the_work(server: Running) -> None:
    """In all four cases: streaming, not streaming, while its prompt is read, and while it waits."""

    def cancelled() -> float:
        return server.metric("streams_total", finish="cancelled")

    def wait_until(count: int) -> None:
        wait_for(lambda: cancelled() == before + count)

    before = cancelled()
    for n, body in enumerate([{**LONG, "stream": True}, LONG, {"prompt": PRIME * 4000, "max_tokens": ENDLESS}], 1):
        connection = server.begin(body)
        wait_for(lambda: server.metric("streams_running") == 1)
        connection.close()
        wait_until(n)
        idle(server)
    running = [server.begin({**LONG, "stream": True}) for _ in range(2)]
    wait_for(lambda: server.metric("streams_running") == 2)
    waiting = server.begin(LONG)
    wait_for(lambda: server.metric("streams_waiting") == 1)
    waiting.close()
    wait_until(4)
    assert server.metric("streams_running") == 2
    for connection in running:
        connection.close()
    idle(server)
    made = server.metric("tokens_total")
    assert server.metric("tokens_total") == made  # nothing goes on


def test_what_is_too_much_is_told_to_come_back(server: Running) -> None:
    """Clients that do not read pause their own streams and keep their places; health does not wait behind them."""
    clients = [server.begin({**LONG, "stream": True}) for _ in range(4)]
    wait_for(lambda: server.metric("streams_running") == 2 and server.metric("streams_waiting") == 2)
    status, headers, content = server.ask("/v1/completions", LONG)
    assert status == 429 and 1 <= int(headers["retry-after"]) <= 60 and b"the limit" in content
    assert server.ask("/v1/completions", {**LONG, "stream": True})[0] == 429
    assert server.json("/health/ready")["status"] == "ok"
    assert server.json("/v1/tunes", {"seed": 1})["complete"]  # another model has places of its own
    for connection in clients:
        connection.close()
    idle(server)


def test_the_log_has_one_line_per_request_and_no_text(server: Running) -> None:
    def lines() -> list[str]:
        return [each for each in server.log if "model=english prompt=12 tokens=7 end=length" in each]

    before = len(lines())  # the lines of earlier requests may still be on their way
    complete(server, prompt="Zebra quartz", max_tokens=7)
    wait_for(lambda: len(lines()) > before)
    (line,) = lines()[before:]
    assert "POST /v1/completions 200" in line
    assert not any("Zebra" in each or TOKEN in each for each in server.log)


# Tunes and inference


def test_tunes(server: Running) -> None:
    irish = vcdeploy.load("irish").vocab
    tune = server.json("/v1/tunes", {"meter": "6/8", "key": "Gmaj", "seed": 3})
    assert tune["complete"] and (tune["meter"], tune["key"], tune["model"]) == ("6/8", "Gmaj", "irish")
    assert len(tune["symbols"]) == len(tune["m"]) == len(tune["logprobs"]) and tune["m"][0] is None
    assert irish.encode(tune["abc"]).tolist() == irish.encode(" ".join(tune["symbols"])).tolist()
    abc = server.ask("/v1/tunes", {"meter": "6/8", "key": "Gmaj", "seed": 3, "format": "abc"})
    assert abc[2].decode() == tune["abc"] and abc[1]["content-type"].startswith("text/vnd.abc")
    midi = server.ask("/v1/tunes", {"seed": 3, "format": "midi"})
    assert midi[2].startswith(b"MThd") and midi[1]["content-type"] == "audio/midi"
    start = tune["symbols"][: tune["symbols"].index("|") + 1]
    after = server.json("/v1/tunes", {"start": " ".join(start), "seed": 4})
    assert after["symbols"][: len(start)] == start and after["m"][len(start)] is not None
    for body, message in (
        ({"key": "H"}, "knows no key 'H'"), ({"model": "english"}, "no model of tunes"), ({"format": "wav"}, "format"),
        ({"start": "M:6/8 K:Gmaj", "key": "Dmaj"}, "own meter and key"), ({"title": "a\nb"}, "title"),
    ):  # fmt: skip
        assert message in server.json("/v1/tunes", body, 400)["error"]["message"]


def test_inference_is_the_model(server: Running, model: Model) -> None:
    tokens = np.random.default_rng(0).integers(0, len(model.vocab), (5, 2))
    _, state, _ = model.run(tokens)
    logits, after, m = model.run(tokens, state)
    tensor = {"name": "tokens", "datatype": "INT64", "shape": [5, 2], "data": tokens.tolist()}
    given = {"name": "state", "datatype": "FP32", "shape": list(state.shape), "data": state.ravel().tolist()}
    answer = server.json("/v2/models/english/infer", {"id": "7", "inputs": [tensor, given]})
    assert answer["id"] == "7" and [each["name"] for each in answer["outputs"]] == ["logits", "state_out", "compute"]
    for output, wanted in zip(answer["outputs"], (logits, after, m), strict=True):
        np.testing.assert_array_equal(np.array(output["data"], np.float32).reshape(output["shape"]), wanted)
    for change, message in (
        ({"shape": [5, 3]}, "as many as the shape says"), ({"shape": [10]}, "must have the shape"),
        ({"data": [[1] * 2] * 4 + [[999, 1]]}, "there is no symbol 999"), ({"datatype": "FP32"}, "must be INT64"),
        ({"name": "token"}, "the inputs are tokens and state"), ({"data": None}, "has no data"),
        ({"parameters": {"binary_data_size": 8}}, "binary_data_size"),
    ):  # fmt: skip
        assert message in server.json("/v2/models/english/infer", {"inputs": [{**tensor, **change}]}, 400)["error"]


# Clients


def test_the_openai_client(server: Running) -> None:
    openai = pytest.importorskip("openai", reason="needs the openai client: pip install openai")
    wanted = complete(server, max_tokens=40, logprobs=3, m=True)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=TOKEN) as client:
        asked: dict[str, Any] = {"model": "english", "prompt": PRIME, "seed": 3, "max_tokens": 40, "logprobs": 3}
        made = client.completions.create(**asked, extra_body={"m": True, "top_k": 0})
        assert made.choices[0].text == wanted["text"] and made.choices[0].model_extra["m"] == wanted["m"]
        assert made.choices[0].logprobs.tokens == wanted["logprobs"]["tokens"] and made.usage.completion_tokens == 40
        pieces = list(client.completions.create(**asked, stream=True))
        assert "".join(each.choices[0].text for each in pieces) == wanted["text"]
        assert [each.id for each in client.models.list()] == ["english", "irish"]
        with pytest.raises(openai.BadRequestError, match="must be above 0 and at most 1") as error:
            client.completions.create(**asked, top_p=2)
        assert error.value.param == "top_p"


def test_triton_client(server: Running, model: Model) -> None:
    client = pytest.importorskip(
        "tritonclient.http", reason="needs Triton's HTTP client: pip install tritonclient[http]"
    )
    tokens = np.arange(64).reshape(64, 1)
    wanted = model.run(tokens)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with client.InferenceServerClient(f"127.0.0.1:{server.port}") as connection:
        assert connection.is_server_live() and connection.is_server_ready()
        assert connection.get_model_metadata("english", headers=headers)["inputs"][0]["name"] == "tokens"
        given = client.InferInput("tokens", [64, 1], "INT64")
        given.set_data_from_numpy(tokens)
        for binary in (True, False):
            outputs = [client.InferRequestedOutput(name, binary_data=binary) for name in ("compute", "logits")]
            result = connection.infer("english", [given], outputs=outputs, headers=headers)
            np.testing.assert_array_equal(result.as_numpy("logits"), wanted[0])
            np.testing.assert_array_equal(result.as_numpy("compute"), wanted[2])


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl(server: Running) -> None:
    body = json.dumps({"prompt": PRIME, "seed": 3, "max_tokens": 200, "stream": True})
    command = ["curl", "-sN", f"{server.url}/v1/completions", "-H", f"Authorization: Bearer {TOKEN}", "-d", body]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[-2] == "data: [DONE]" and len(lines) >= 6


def test_schemathesis_finds_no_server_error() -> None:
    pytest.importorskip("schemathesis", reason="needs schemathesis: pip install schemathesis")
    server = start("english", "irish", "--max-tokens", "64", "--max-prompt", "1000")
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--seed", "1"]
    command += ["--checks", "not_a_server_error", "--max-examples", "20", "--header", f"Authorization: Bearer {TOKEN}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert server.stop() == 0
    assert done.returncode == 0, done.stdout[-4000:]


# Start and end


def test_sigterm_lets_requests_finish() -> None:
    server = start("english", "--lazy", "--drain", "600", token=False)
    with server.begin({"prompt": PRIME, "max_tokens": 4096, "stream": True}) as client:
        content = client.recv(4096)
        server.process.terminate()
        while more := client.recv(1 << 16):
            content += more
    assert b'"finish_reason":"length"' in content and b"[DONE]" in content
    assert server.wait() == 0
    assert any("SIGTERM: draining" in line for line in server.log)


def test_models_are_loaded_on_first_use_under_their_names() -> None:
    """Two instances share the weights; a web site that is named may call."""
    origin = "https://site.example"
    server = start("mine=english", "--lazy", "--workers", "2", "--cors", origin, "--streams", "1", token=False)
    assert server.json("/v1/models")["data"][0] == {
        "id": "mine", "object": "model", "created": 0, "owned_by": "vcdeploy", "loaded": False
    }  # fmt: skip
    assert server.ask("/v2/models/mine/ready")[0] == 503
    body = {"prompt": PRIME, "max_tokens": 5, "seed": 3, "n": 2}
    status, headers, content = server.ask("/v1/completions", body, headers={"Origin": origin})
    assert status == 200 and headers["access-control-allow-origin"] == origin
    first = json.loads(content)["choices"]
    assert len({each["text"] for each in first}) == 2
    assert server.json("/v1/completions", {**body, "seed": 4, "n": 1})["choices"][0]["text"] == first[1]["text"]
    assert server.json("/v1/models/mine")["loaded"] and server.ask("/v2/models/mine/ready")[0] == 200
    assert server.stop() == 0


def test_bad_commands_fail() -> None:
    for arguments, message in (
        (["none.onnx"], "none.onnx"), (["english", "english"], "two models are named 'english'"),
        (["english", "--token-file", "/dev/null"], "is empty"),
        (["english", "--host", "300.1.1.1"], "could not listen"),
    ):  # fmt: skip
        with pytest.raises(AssertionError, match=message) as error:
            start(*arguments)
        assert "Traceback" not in str(error.value)
