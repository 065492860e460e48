"""The web page in a headless Chromium, on `vcdeploy serve` and as `vcdeploy export --web` writes it."""

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browser import Browser
from in_node import PAGE

import vcdeploy
from vcdeploy.colours import RAMP
from vcdeploy.export.web import write_web
from vcdeploy.runtime.sources import open_source

MODELS = ("english", "irish")


@contextmanager
def running(command: list[str], port: int, **variables: str) -> Iterator[str]:
    environment = {**os.environ, **variables}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(address).close()
                break
            except OSError:
                assert process.poll() is None, "the server ended"
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def serve(*models: str, port: int) -> list[str]:
    pytest.importorskip("uvicorn")
    return [sys.executable, "-m", "vcdeploy", "serve", "--port", str(port), *models]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


ON_BOTH = pytest.mark.parametrize("address", ["server", "browser"], indirect=True, scope="module")
ON_SERVER = pytest.mark.parametrize("address", ["server"], indirect=True, scope="module")
ON_ONE = pytest.mark.parametrize("address", ["browser"], indirect=True, scope="module")


@pytest.fixture(scope="module")
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page with both pretrained models, on one of its engines."""
    port = free_port()
    if request.param == "server":
        command = serve(*MODELS, port=port)
    else:
        folder = tmp_path_factory.mktemp("site")
        for name in MODELS:
            source = open_source(name)
            write_web(folder, name, source.file.read_bytes(), source.config)
        command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "-d", str(folder), str(port)]
    with running(command, port) as found:
        yield found


@pytest.fixture
def page(address: str, tmp_path: Path) -> Iterator[Browser]:
    browser = Browser(tmp_path)
    try:
        browser.open(address)
        browser.wait_for("'ready' in document.body.dataset")
        yield browser
        assert browser.problems == []
        assert {urlsplit(url).netloc for url in browser.requests if not url.startswith("data:")} == {
            urlsplit(address).netloc
        }
    finally:
        browser.close()


def generate(page: Browser, form: str) -> None:
    page.evaluate(f"document.querySelector('#{form}-form [name=go]').click()")
    page.wait_for(f"!document.querySelector('#{form}-form [name=go]').disabled")
    assert page.evaluate(f"document.getElementById('{form}-error').hidden"), page.evaluate(
        f"document.getElementById('{form}-error').textContent"
    )


TEXT = "[...document.querySelectorAll('#text [data-at]')].map(each => each.textContent).join('')"


@ON_BOTH
def test_text_is_typed_generated_and_explained(page: Browser) -> None:
    page.evaluate("document.querySelector('#text-form [name=prompt]').value = ''")
    page.evaluate("document.querySelector('#text-form [name=prompt]').focus()")
    page("Input.insertText", text="Madam Presid")
    page.evaluate("document.querySelector('#text-form [name=length]').value = 300")
    generate(page, "text")
    model = vcdeploy.load("english")
    expected = model.vocab.decode(list(model.generate(model.vocab.encode("Madam Presid"), 300, seed=1)))
    text = page.evaluate(TEXT)
    assert text.replace("⏎\n", "\n") == expected
    assert page.evaluate("document.querySelector('#text-figures [data-of=tokens]').textContent") == "300"
    share = page.evaluate("document.querySelector('#text-figures [data-of=share]').textContent")
    assert re.fullmatch(r"\d+(\.\d)? %", share)
    # The same figures by keyboard and by mouse.
    page.evaluate("document.querySelector('#text [tabindex=\"0\"]').focus()")
    for _ in range(4):
        page.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.at") == "4"
    said = page.evaluate("document.getElementById('detail').textContent")
    assert re.match(rf"\s*{re.escape({' ': '␣'}.get(expected[4], expected[4]))} m 0\.\d\d, probability \d", said), said
    assert page.evaluate("document.querySelectorAll('#detail li').length") == 5
    page.point_at("document.querySelector('[data-at=\"2\"]')")
    assert page.evaluate("document.querySelector('#text .chosen').dataset.at") == "2"
    page.evaluate("document.querySelector('#text-form [name=more]').click()")
    page.wait_for("!document.querySelector('#text-form [name=more]').disabled")
    assert page.evaluate("document.querySelector('#text .prompt').textContent") == "Madam Presid" + expected


@ON_SERVER
def test_text_appears_as_it_arrives(page: Browser) -> None:
    """With a stand-in for the server that sends when it is told to, in pieces that end anywhere."""
    page.evaluate(
        "const real = fetch; globalThis.fetch = (url, options) => String(url).endsWith('v1/completions')"
        " ? new Response(new ReadableStream({start(controller) { globalThis.stream = controller }}))"
        " : real(url, options);"
        "globalThis.send = (text) => stream.enqueue(new TextEncoder().encode(text));"
        "document.querySelector('#text-form [name=go]').click()"
    )
    page.wait_for("globalThis.stream !== undefined")

    def event(letter: str) -> str:
        logprobs = {"tokens": [letter], "token_logprobs": [-0.5], "top_logprobs": [{letter: -0.5}]}
        return f"data: {json.dumps({'choices': [{'m': [0.25], 'logprobs': logprobs}]})}\n\n"

    for sent, shown in ((event("a") + event("b")[:30], "a"), (event("b")[30:], "ab"), (event("é"), "abé")):
        page.evaluate(f"send({json.dumps(sent)})")
        page.wait_for(f"{TEXT} === {json.dumps(shown)}")
        assert not page.evaluate("document.querySelector('#text-form [name=stop]').disabled")
    page.evaluate("send('data: [DONE]\\n\\n')")
    page.wait_for("document.querySelector('#text-form [name=stop]').disabled")


@ON_ONE
def test_text_appears_in_pieces_without_a_server(page: Browser) -> None:
    page.evaluate(
        "globalThis.steps = 0; new MutationObserver(() => steps++)"
        ".observe(document.getElementById('text'), {childList: true})"
    )
    generate(page, "text")
    assert page.evaluate("steps") > 3


@ON_ONE
def test_colours_follow_m(page: Browser) -> None:
    generate(page, "text")
    assert (
        len(page.evaluate("[...new Set([...document.querySelectorAll('#text [data-at]')].map(e => e.className))]")) > 3
    )
    css = (PAGE / "page.css").read_text()
    assert re.findall(r"\.m(\d) \{ background: (\S+); color: (\S+); \}", css) == [
        (str(n), each.ground_hex, each.letters_hex) for n, each in enumerate(RAMP)
    ]


@ON_BOTH
def test_a_run_can_be_stopped(page: Browser) -> None:
    page.evaluate("document.querySelector('#text-form [name=length]').value = 4000")
    page.evaluate(
        "new MutationObserver(() => document.querySelector('#text-form [name=stop]').click())"
        ".observe(document.getElementById('text'), {childList: true}); 0"
    )
    generate(page, "text")
    assert page.evaluate("document.querySelectorAll('#text [data-at]').length") < 4000


@ON_BOTH
def test_errors_are_shown(page: Browser) -> None:
    page.evaluate("document.querySelector('#text-form [name=prompt]').value = 'snowman ☃'")
    page.evaluate("document.querySelector('#text-form [name=go]').click()")
    page.wait_for("!document.getElementById('text-error').hidden")
    assert "☃" in page.evaluate("document.getElementById('text-error').textContent")
    page.problems.clear()  # the browser logs the server's status 400


@ON_BOTH
def test_a_tune_is_drawn_played_and_continued(page: Browser) -> None:
    page.evaluate("document.getElementById('tab-tunes').click()")
    page.evaluate("document.querySelector('#tunes-form [name=meter]').value = '6/8'")
    page.evaluate("document.querySelector('#tunes-form [name=key]').value = 'Dmaj'")
    page.evaluate(
        "globalThis.heads = []; const make = URL.createObjectURL;"
        "URL.createObjectURL = (blob) => (blob.slice(0, 4).text().then((text) => heads.push(text)), make(blob)); 0"
    )
    generate(page, "tunes")
    page.wait_for("heads.length === 2")
    assert sorted(page.evaluate("heads")) == ["MThd", "X:1\n"]  # the MIDI and the ABC to download
    abc = page.evaluate("document.getElementById('abc').textContent")
    assert "M:6/8" in abc and "K:Dmaj" in abc
    notes = page.evaluate("document.querySelectorAll('#score svg .abcjs-note, #score svg [data-name=note]').length")
    assert notes > 30
    page.evaluate(
        "globalThis.started = []; const start = OscillatorNode.prototype.start; OscillatorNode.prototype.start = "
        "function (at) { started.push([at, this.frequency.value]); start.call(this, at) }; 0"
    )
    page.evaluate("document.getElementById('play').focus()")
    page.press("Enter")
    started = page.evaluate("started")
    assert len(started) >= notes and sorted(started) == started  # repeats are played twice
    assert all(100 < frequency < 2000 for _, frequency in started)
    page.press("Enter")
    assert page.evaluate("document.getElementById('play').textContent") == "Play"
    page.evaluate("document.querySelector('#bars button:nth-child(3)').click()")
    bar = page.evaluate("document.querySelector('#bars button:nth-child(3)').title")
    assert bar in page.evaluate("document.getElementById('start').textContent")
    generate(page, "tunes")
    second = page.evaluate("document.getElementById('abc').textContent")
    assert second != abc and "M:6/8" in second and "K:Dmaj" in second
    given = page.evaluate("[...document.querySelectorAll('#tune-symbols .given')].map(e => e.textContent).join(' ')")
    assert given == f"M:6/8 K:Dmaj {bar}"
    assert page.evaluate("document.querySelector('#tunes-form [name=seed]').value") != "1"


@ON_ONE
def test_settings_are_kept(page: Browser, address: str) -> None:
    page.evaluate(
        "const field = document.querySelector('#tunes-form [name=temperature]'); field.value = 1.1;"
        "field.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    page.open(address)
    page.wait_for("'ready' in document.body.dataset")
    assert page.evaluate("document.querySelector('#tunes-form [name=temperature]').value") == "1.1"


@ON_ONE
def test_a_phone_needs_no_scrolling_sideways(page: Browser, address: str) -> None:
    width = 320
    page.open(address, width, 800)
    page.wait_for("'ready' in document.body.dataset")
    generate(page, "text")
    page.evaluate("document.getElementById('tab-tunes').click()")
    generate(page, "tunes")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@ON_ONE
def test_every_control_has_a_name(page: Browser) -> None:
    page.evaluate("document.getElementById('tab-tunes').click()")
    generate(page, "tunes")
    tree = page("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "textbox", "combobox", "slider", "spinbutton", "checkbox", "tab", "link", "image"}
    controls = [each for each in tree if each.get("role", {}).get("value") in roles and not each["ignored"]]
    assert len(controls) > 15
    assert [each["role"]["value"] for each in controls if not each.get("name", {}).get("value")] == []


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    port = free_port()
    with running(serve("irish", port=port), port, VCDEPLOY_TOKEN="secret") as address:
        page = Browser(tmp_path)
        try:
            page.open(address)
            for token, expected in (
                (
                    "wrong",
                    "document.getElementById('failure').textContent === 'The server does not accept this token.'",
                ),
                ("secret", "'ready' in document.body.dataset"),
            ):
                page.wait_for("!document.getElementById('login').hidden")
                page.evaluate(f"document.getElementById('token').value = '{token}'")
                page.evaluate("document.querySelector('#login button').click()")
                page.wait_for(expected)
            assert page.evaluate("document.getElementById('login').hidden && document.getElementById('failure').hidden")
        finally:
            page.close()


def test_abcjs_is_the_file_that_notice_names() -> None:
    digest = hashlib.sha256((PAGE / "abcjs" / "abcjs-basic-min.js").read_bytes()).hexdigest()
    notice = Path(vcdeploy.__file__).parents[1] / "NOTICE"
    assert digest in notice.read_text()
