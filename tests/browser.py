"""A headless Chromium, controlled through its debugging pipe; the test is skipped if there is no browser."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
KEYS = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Browser:
    """One page. `requests`: URLs it requested. `problems`: console errors and script exceptions."""

    def __init__(self, profile: Path) -> None:
        found = next(filter(None, map(shutil.which, NAMES)), None)
        if found is None:
            pytest.skip(f"needs a browser: install one of {', '.join(NAMES[:3])}")
        ours, theirs = os.pipe(), os.pipe()  # to the browser, from the browser
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in (ours[0], theirs[1])]

        def connect() -> None:  # the browser reads from 3 and writes to 4
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
        self._process = subprocess.Popen(
            [found, *options, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=connect,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (ours[0], theirs[1], *high):
            os.close(end)
        self._write, self._read = os.fdopen(ours[1], "wb"), os.fdopen(theirs[0], "rb")
        self._sent, self._rest, self._session = 0, b"", ""
        self.requests: list[str] = []
        self.problems: list[str] = []
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self._session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol and return its result."""
        self._sent += 1
        request: dict[str, Any] = {"id": self._sent, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        self._write.write(json.dumps(request).encode() + b"\0")
        self._write.flush()
        while (message := self._next()).get("id") != self._sent:
            pass
        assert "error" not in message, message
        answer: dict[str, Any] = message["result"]
        return answer

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._read.fileno(), 65536)
            assert piece, "the browser ended"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        event, parameters = message.get("method"), message.get("params", {})
        if event == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif event in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.problems.append(json.dumps(parameters))
        return message

    def open(self, page: Path | str, width: int = 900, height: int = 700) -> None:
        """page: a file, or a URL."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self("Page.navigate", url=page.as_uri() if isinstance(page, Path) else page)
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        answer = self("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 120) -> None:
        """Wait until an expression is true; fail if that takes too long."""
        end = time.monotonic() + seconds
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"{expression} is not true after {seconds} s; {self.problems}"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        for kind, more in (("keyDown", text), ("keyUp", {})):
            self("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **more)

    def point_at(self, expression: str) -> None:
        """Move the mouse to the middle of an element."""
        box = self.evaluate(f"(({expression}).getBoundingClientRect()).toJSON()")
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self) -> bytes:
        return base64.b64decode(self("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._write.close()
        self._read.close()
