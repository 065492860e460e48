"""Answers: JSON, errors in the form the openai client understands, and server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any, TypeVar

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.serving.catalogue import UnknownModel
from vcdeploy.serving.fields import BadField
from vcdeploy.serving.streams import Refused

Answer = TypeVar("Answer")

STALLED = 60.0  # seconds after which a client that reads nothing is disconnected


class Gone(Exception):
    """The client closed its connection."""


class Problem(VcdeployError):
    """An error with a status of its own."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})


def to_json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(to_json(content), status, dict(headers or {}), media_type="application/json")


def error_body(error: VcdeployError, status: int) -> dict[str, Any]:
    kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
    field = error.field if isinstance(error, BadField) else None
    return {"error": {"message": str(error), "type": kind, "param": field, "code": None}}


def error_answer(error: VcdeployError, plain: bool = False) -> Response:
    """plain: with only the message, as KServe has it."""
    status, headers = status_of(error)
    return answer({"error": str(error)} if plain else error_body(error, status), status, headers)


def status_of(error: VcdeployError) -> tuple[int, dict[str, str]]:
    if isinstance(error, Problem):
        return error.status, error.headers
    if isinstance(error, Refused):
        return 429, {"Retry-After": f"{max(1, round(error.retry_after))}"}
    if isinstance(error, UnknownModel):
        return 404, {}
    return (400, {}) if isinstance(error, BadValue) else (500, {})


async def read_body(request: Request, limit: int, timeout: float) -> bytes:
    """The body of a request; Problem if it is too long or comes too slowly."""
    body = bytearray()
    try:
        with anyio.fail_after(timeout):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise Problem(413, f"the body is longer than {limit} bytes: send less", {"Connection": "close"})
    except TimeoutError as error:
        raise Problem(408, f"the body took longer than {timeout:g} s to arrive", {"Connection": "close"}) from error
    return bytes(body)


async def unless_gone(receive: Receive, work: Awaitable[Answer]) -> Answer:
    """The result of the work; cancels it and raises Gone if the client closes its connection first."""
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() or task.cancelled():
            raise Gone
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Events(Response):
    """Server-sent events, each sent as soon as it is there; ends the events if the client goes away."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await unless_gone(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        try:
            async for event in self._events:
                watchdog = loop.call_later(STALLED, task.cancel)  # cheaper than asyncio.wait_for
                await send({"type": "http.response.body", "body": event, "more_body": True})
                watchdog.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await self._events.aclose()  # type: ignore[attr-defined]
