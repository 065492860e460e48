"""Runs the app in this process: uvicorn with limits, and an end that lets requests finish."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from vcdeploy.errors import VcdeployError

IDLE = 30  # seconds a connection may be kept without a request
LARGEST_HEAD = 16384  # bytes of a request line and its headers


def run(app: Starlette, host: str, port: int, connections: int, drain: float, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; then accept nothing more, and wait for what runs, at most `drain` seconds.

    announce: called with the address once the server answers.
    """
    patience = app.state.server.settings.patience
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=_protocol(patience),
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=connections,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=math.ceil(drain) + 5,  # after the streams have ended
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )
    server = _Server(config)
    server.announce, server.patience = announce, drain
    with contextlib.suppress(SystemExit):  # it could not listen, and has said why
        server.run()
    if not server.started:
        raise VcdeployError(f"the server could not listen on {host}:{port}: is the port taken? Choose one with --port")


class _Server(uvicorn.Server):
    """Tells where it listens, and the app that the end has begun."""

    announce: Callable[[str], None]
    patience: float  # seconds that streams may still take

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port, *_ = self.servers[0].sockets[0].getsockname()
            self.announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        served = self.config.app.state.server  # type: ignore[union-attr]
        if not served.draining:
            served.draining = True
            logging.getLogger("vcdeploy.serve").info("%s: draining", signal.Signals(sig).name)
            served.catalogue.drain(self.patience)
        self.force_exit = self.should_exit  # the second time, without waiting
        self.should_exit = True


def _protocol(patience: float) -> type[H11Protocol]:
    """uvicorn's protocol, which closes a connection if the head of a request takes longer than so many seconds."""

    class Protocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._arm()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:  # the head is complete
                self._disarm()
            elif self._timer is None:
                self._arm()

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            super().connection_lost(exc)

        def _arm(self) -> None:
            self._timer = self.loop.call_later(patience, self.transport.close)

        def _disarm(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Protocol
