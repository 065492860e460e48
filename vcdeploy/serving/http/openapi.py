"""GET /openapi.json: the API described from the tables that validate its requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from vcdeploy import __version__
from vcdeploy.serving.fields import Schema
from vcdeploy.serving.http import kserve
from vcdeploy.serving.http.answers import answer
from vcdeploy.serving.http.settings import Server

ERRORS = {
    "400": "A field has a value that can't be used.",
    "401": "The token of this server is missing.",
    "403": "The request comes from a page of another web site.",
    "404": "There is no such model.",
    "408": "The body came too slowly.",
    "413": "The body is too long.",
    "421": "The server does not answer for this host.",
    "429": "Too many streams run and wait; Retry-After says when to try again.",
    "500": "The model failed.",
    "501": "An optional package is missing.",
    "503": "The server is loading, draining, or has too many connections.",
    "504": "It took too long.",
}
NAME: Schema = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}


def document(server: Server) -> dict[str, Any]:
    """The document of this server, with its limits."""
    json_answer = {"200": {"description": "OK", "content": {"application/json": {}}}}

    def get(summary: str, *parameters: Schema, media: str = "application/json") -> dict[str, Any]:
        return {"get": {"summary": summary, "parameters": list(parameters),
                        "responses": {"200": {"description": "OK", "content": {media: {}}}, **_errors()}}}  # fmt: skip

    def post(summary: str, fields: Mapping[str, Schema], *parameters: Schema, media: tuple[str, ...]) -> dict[str, Any]:
        content = {"application/json": {"schema": _object(fields)}}
        return {"post": {"summary": summary, "parameters": list(parameters),
                         "requestBody": {"required": True, "content": content},
                         "responses": {"200": {"description": "OK", "content": {each: {} for each in media}},
                                       **_errors()}}}  # fmt: skip

    tensors = {**kserve.REQUEST}
    tensors["inputs"] = {**tensors["inputs"], "items": _object(kserve.TENSOR)}
    tensors["outputs"] = {**tensors["outputs"], "items": _object(kserve.OUTPUT)}
    formats = ("application/json", "text/vnd.abc", "audio/midi", "image/svg+xml")
    events, binary = ("application/json", "text/event-stream"), ("application/json", "application/octet-stream")
    return {
        "openapi": "3.1.0",
        "info": {"title": "vcdeploy serve", "version": __version__, "license": {"name": "Apache-2.0"},
                 "description": "Texts and tunes by recurrent models that spend only the computation each step needs."},
        "paths": {
            "/v1/completions": post("Continue a text.", server.completion_fields, media=events),
            "/v1/tunes": post("Generate a tune.", server.tune_fields, media=formats),
            "/v1/models": get("List the models."),
            "/v1/models/{name}": get("Describe a model.", NAME),
            "/v2": get("Describe the server (KServe)."),
            "/v2/health/live": {"get": {"summary": "Whether the process runs.", "responses": json_answer}},
            "/v2/health/ready": get("Whether the server takes requests."),
            "/v2/models/{name}": get("Describe the tensors of a model (KServe).", NAME),
            "/v2/models/{name}/ready": get("Whether a model is loaded (KServe).", NAME),
            "/v2/models/{name}/infer": post("Run a model over tokens (KServe).", tensors, NAME, media=binary),
            "/health/live": {"get": {"summary": "Whether the process runs.", "responses": json_answer}},
            "/health/ready": get("Whether the server takes requests."),
            "/metrics": get("Figures for Prometheus.", media="text/plain"),
        },
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        **({"security": [{"token": []}]} if server.settings.token is not None else {}),
    }  # fmt: skip


def _errors() -> dict[str, Any]:
    return {status: {"description": about} for status, about in ERRORS.items()}


def _object(fields: Mapping[str, Schema]) -> Schema:
    required = [name for name, each in fields.items() if "default" not in each and "null" not in each.get("type", [])]
    return {"type": "object", "properties": dict(fields), "required": required, "additionalProperties": False}


async def openapi(server: Server, http: HttpRequest) -> Response:
    return answer(document(server))
