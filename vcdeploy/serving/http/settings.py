"""The settings of a server, and what its handlers share."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
from starlette.requests import Request as HttpRequest

from vcdeploy.serving.catalogue import Catalogue, Served
from vcdeploy.serving.engine import Engine
from vcdeploy.serving.fields import Schema
from vcdeploy.serving.http.answers import read_body
from vcdeploy.serving.http.bridge import Bridge
from vcdeploy.serving.signing import Signer

__all__ = ["Served", "Server", "Settings"]


@dataclass(frozen=True)
class Settings:
    """What a server accepts, and from whom.

    Attributes:
        token: What clients must send as `Authorization: Bearer TOKEN`; none for no check.
        origins: Web origins that may call the API from a browser, besides the server's own; "*" for all.
        hosts: Names under which the server answers; none for all.
        most_tokens: Tokens a request may generate.
        most_prompt: Symbols of a prompt, and tokens × sequences of an inference.
        most_body: Bytes of a request.
        timeout: Seconds a request may take, with the time it waits.
        patience: Seconds a client may take to send a request.
        state_key: Signs states; servers with the same key accept each other's. A random one if empty.
        metrics: Whether /metrics answers.
    """

    token: str | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    most_tokens: int = 4096
    most_prompt: int = 65536
    most_body: int = 1 << 20
    timeout: float = 120.0
    patience: float = 15.0
    state_key: bytes = field(default=b"", repr=False)
    metrics: bool = True


class Server:
    """What the handlers share."""

    def __init__(self, catalogue: Catalogue, settings: Settings) -> None:
        from vcdeploy.serving.http import completions, kserve, tunes

        self.catalogue, self.settings = catalogue, settings
        self.signer = Signer(settings.state_key or secrets.token_bytes(32))
        self.turns = kserve.Turns()
        self.draining = False
        self.completion_fields: dict[str, Schema] = completions.fields(settings.most_tokens, settings.most_prompt)
        self.tune_fields: dict[str, Schema] = tunes.fields(settings.most_tokens, settings.most_prompt)
        self._bridge: Bridge | None = None

    @property
    def bridge(self) -> Bridge:
        if self._bridge is None:
            self._bridge = Bridge(asyncio.get_running_loop())
        return self._bridge

    async def engine(self, served: Served) -> Engine:
        """The engine of a model, which is loaded if it was not."""
        if served.loaded is not None:
            return served.loaded
        return await anyio.to_thread.run_sync(served.engine)

    async def body(self, http: HttpRequest) -> bytes:
        return await read_body(http, self.settings.most_body, self.settings.patience)

    def owner(self, http: HttpRequest, user: str | None) -> str:
        """Who takes turns: the address, and the user the client names."""
        return f"{http.client.host if http.client else ''} {user or ''}"

    def describe(self, served: Served) -> dict[str, Any]:
        """A model, as /v1/models lists it."""
        made: dict[str, Any] = {"id": served.name, "object": "model", "created": 0, "owned_by": "vcdeploy"}
        if (engine := served.loaded) is not None:
            model = engine.model
            shown = ("unit", "dim", "layers", "sharpness", "epsilon")
            made |= {"kind": model.vocab.kind, "vocabulary": len(model.vocab), "backend": model.backend}
            made |= {"precision": model.precision} | {name: model.config.get(name) for name in shown}
        return {**made, "loaded": engine is not None}
