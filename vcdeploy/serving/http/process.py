"""Runs the app in this process: uvicorn with limits, and an end that lets requests finish."""

from __future__ import annotations

import logging
import signal
import sys
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from vcdeploy.errors import VcdeployError

IDLE = 30  # seconds a connection may be kept without a request
LARGEST_HEAD = 16384  # bytes of a request line and its headers


def run(app: Starlette, host: str, port: int, connections: int, drain: float) -> None:
    """Serve until SIGTERM or SIGINT; then accept nothing more, and wait for what runs, at most `drain` seconds."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http="h11",
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=connections,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=max(1, round(drain)),
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )
    server = _Server(config)
    server.run()
    if not server.started:
        raise VcdeployError(f"the server could not listen on {host}:{port}: is the port taken? Choose one with --port")


class _Server(uvicorn.Server):
    """Tells the app that the end has begun."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        served = self.config.app.state.server  # type: ignore[union-attr]
        if not served.draining:
            served.draining = True
            logging.getLogger("vcdeploy.serve").info("%s: draining", signal.Signals(sig).name)
            served.catalogue.drain()
        super().handle_exit(sig, frame)
