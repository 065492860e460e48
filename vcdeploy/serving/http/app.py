"""The app: its routes, the page, and what happens at start and end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from vcdeploy.serving.catalogue import Catalogue
from vcdeploy.serving.http import completions, figures, kserve, openapi, tunes
from vcdeploy.serving.http.answers import Problem, answer, error_answer
from vcdeploy.serving.http.figures import Figures
from vcdeploy.serving.http.guard import Guard
from vcdeploy.serving.http.settings import Server, Settings

PAGE = Path(__file__).parent.parent / "page"

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

Handler = Callable[[Server, HttpRequest], Awaitable[Response]]


async def models(server: Server, http: HttpRequest) -> Response:
    return answer({"object": "list", "data": [server.describe(each) for each in server.catalogue]})


async def one_model(server: Server, http: HttpRequest) -> Response:
    return answer(server.describe(server.catalogue.find(http.path_params["name"])))


async def live(server: Server, http: HttpRequest) -> Response:
    return answer({"status": "ok"})


async def ready(server: Server, http: HttpRequest) -> Response:
    return answer({"status": "draining"}, 503) if server.draining else answer({"status": "ok"})


def app(make_catalogue: Callable[..., Catalogue], settings: Settings, load_now: bool = True) -> Starlette:
    """The ASGI app.

    make_catalogue: takes `on_end` and returns the models. load_now: load all models now, not on first use.
    """
    kept = Figures()
    server = Server(make_catalogue(on_end=kept.ended), settings)
    if load_now:
        for served in server.catalogue:
            served.engine()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(server.catalogue.close)

    def route(path: str, handler: Handler, *methods: str) -> Route:
        allowed = [*methods] or ["GET", "HEAD"]

        async def handle(http: HttpRequest) -> Response:
            if http.method not in allowed:  # the page would answer other methods with 404
                raise HTTPException(405, headers={"Allow": ", ".join(allowed)})
            return await handler(server, http)

        return Route(path, handle, methods=METHODS, name=handler.__name__)

    routes: list[Any] = [
        route("/v1/completions", completions.complete, "POST"),
        route("/v1/models", models),
        route("/v1/models/{name}", one_model),
        route("/v1/tunes", tunes.compose, "POST"),
        route("/v2", kserve.server_metadata),
        route("/v2/health/live", live),
        route("/v2/health/ready", ready),
        route("/v2/models/{name}", kserve.model_metadata),
        route("/v2/models/{name}/ready", kserve.model_ready),
        route("/v2/models/{name}/infer", kserve.infer, "POST"),
        route("/openapi.json", openapi.openapi),
        route("/health/live", live),
        route("/health/ready", ready),
    ]
    if settings.metrics:
        routes.append(route("/metrics", figures.metrics))
    routes.append(Mount("/", StaticFiles(directory=PAGE, html=True), name="page"))
    guards = [
        Middleware(Guard, settings=settings, count=lambda path, status: kept.answers.add(path=path, status=str(status)))
    ]
    if settings.origins:
        cors = Middleware(
            CORSMiddleware, allow_origins=list(settings.origins), allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )  # fmt: skip
        guards.append(cors)

    async def refuse(http: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        what = {404: f"there is no {http.url.path[:200]}", 405: f"{http.method} is not for {http.url.path[:200]}"}
        return error_answer(Problem(error.status_code, what.get(error.status_code, error.detail), error.headers))

    made = Starlette(routes=routes, middleware=guards, lifespan=lifespan, exception_handlers={HTTPException: refuse})
    made.state.figures, made.state.server = kept, server
    return made
