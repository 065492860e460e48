"""What every request passes: who may send it, the headers of the answer, errors, and its line in the log."""

from __future__ import annotations

import hmac
import logging
import re
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vcdeploy.errors import VcdeployError
from vcdeploy.serving.http.answers import Gone, Problem, error_answer
from vcdeploy.serving.http.settings import Settings

LOG = logging.getLogger("vcdeploy.serve")

OPEN = re.compile(r"/health(/.*)?|/v2/health/.*|/|/(?!v1/|v2\b|metrics|openapi)[^/]+(/.*)?")  # need no token
HEADERS = {
    # The hash is that of the style sheet which abcjs puts into a score.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; img-src 'self' data:; "
    "style-src 'self' 'sha256-BCpnf71gZdCsSCHDzyB1RsBbZ0qQdqseK6v+yJsgg30='; "
    "connect-src 'self'; media-src 'self' blob:; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """The outermost layer of the app."""

    def __init__(self, app: ASGIApp, settings: Settings, count: Callable[[str, int], None]) -> None:
        """count: called with the path of a route and the status of each answer."""
        self._app, self._settings, self._count = app, settings, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status, headers = time.monotonic(), 499, Headers(scope=scope)  # 499: the client went away
        scope.setdefault("state", {})
        cross = bool(self._settings.origins)

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                sent = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    if not (cross and name.startswith("Cross-Origin")):
                        sent.setdefault(name, value)
            await send(message)

        try:
            self._check(scope, headers)
            await self._app(scope, receive, send_guarded)
        except Gone:
            status = 499
        except VcdeployError as error:
            if status == 499:
                answered = error_answer(error, plain=scope["path"].startswith("/v2"))
                await answered(scope, receive, send_guarded)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._count(route, status)
            client = scope["client"][0] if scope.get("client") else "-"
            note = scope["state"].get("note", str)()
            LOG.info(
                "%s %s %s %d %.0f ms %s", client, scope["method"], scope["path"][:200], status,
                1000 * (time.monotonic() - begin), note,
            )  # fmt: skip

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Raise unless the request may pass."""
        settings, host = self._settings, headers.get("host", "")
        if settings.hosts and _name_of(host) not in settings.hosts:
            raise Problem(421, f"this server does not answer for {_name_of(host)[:80]!r}")
        origin = headers.get("origin")
        if origin is not None and scope["method"] not in ("GET", "HEAD"):
            own = urlsplit(origin).netloc == host
            if not own and "*" not in settings.origins and origin not in settings.origins:
                raise Problem(403, "requests from other web sites are not accepted: start the server with --cors")
        if settings.token is None or scope["method"] == "OPTIONS" or OPEN.fullmatch(scope["path"]):
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), settings.token.encode()):
            raise Problem(
                401, "send the token of this server as `Authorization: Bearer TOKEN`", {"WWW-Authenticate": "Bearer"}
            )


def _name_of(host: str) -> str:
    """A host header without its port."""
    return host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
