"""POST /v1/tunes: whole tunes as JSON, ABC, MIDI or a score."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import Any

import anyio.to_thread
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from vcdeploy.errors import BadValue, VcdeployError
from vcdeploy.music import notation
from vcdeploy.music.form import Form
from vcdeploy.runtime.session import Piece
from vcdeploy.runtime.tunes import begin
from vcdeploy.serving.fields import BadField, Schema, checked, parse
from vcdeploy.serving.http.answers import Problem, answer, unless_gone
from vcdeploy.serving.http.completions import SAMPLING, Compute, sampling_of
from vcdeploy.serving.http.settings import Server
from vcdeploy.serving.streams import ERROR, STOP, Request, Stream

FORMATS = {"json": "application/json", "abc": "text/vnd.abc", "midi": "audio/midi", "svg": "image/svg+xml"}
LONGEST = 1000  # symbols, by default


def fields(most_tokens: int, most_prompt: int) -> dict[str, Schema]:
    """The fields of a request, under these limits of the server."""
    return {
        "model": {"type": ["string", "null"], "description": "A name of /v1/models; by default the first of music."},
        "meter": {"type": ["string", "null"], "maxLength": 40, "description": "Such as 6/8; by default drawn."},
        "key": {"type": ["string", "null"], "maxLength": 40, "description": "Such as Gmaj or Edor; by default drawn."},
        "start": {"type": "string", "maxLength": most_prompt, "default": "",
                  "description": "How the tune begins, in ABC, or as symbols of an earlier answer with spaces "
                  "between; with or without a meter and key of its own."},
        **SAMPLING,
        "free": {"type": "boolean", "default": False,
                 "description": "Let any symbol follow. By default bars have the length of the meter, and a tune has "
                 "repeated parts of eight bars and ends on the tonic."},
        "max_tokens": {"type": "integer", "minimum": 1, "maximum": most_tokens, "default": min(LONGEST, most_tokens),
                       "description": "Most symbols to generate."},
        "title": {"type": ["string", "null"], "maxLength": 200, "description": "Of the tune; by default its seed."},
        "format": {"type": "string", "enum": list(FORMATS), "default": "json",
                   "description": "json, or only the file: abc, midi or svg, which need the extra music."},
    }  # fmt: skip


async def compose(server: Server, http: HttpRequest) -> Response:
    values = checked(parse(await server.body(http)), server.tune_fields)
    if values["title"] is not None and not values["title"].isprintable():
        raise BadField("title", "the title has a character that can't be printed")
    served = server.catalogue.find(values["model"]) if values["model"] else await _first_of_music(server)
    engine = await server.engine(served)
    model = engine.model
    if model.vocab.kind != "music" or notation.END not in model.vocab.symbols:
        raise BadField("model", f"{served.name} is no model of tunes")
    seed = secrets.randbits(31) if values["seed"] is None else values["seed"]
    sampling = replace(sampling_of(model, values), seed=seed)
    try:
        start = model.vocab.encode(values["start"]).tolist() if values["start"].strip() else []
        prime, begins = await anyio.to_thread.run_sync(begin, model, start, values["meter"], values["key"], sampling)
    except VcdeployError as error:
        raise BadValue(str(error)) from error
    if len(prime) > server.settings.most_prompt:
        raise BadField("start", f"the start is longer than {server.settings.most_prompt} symbols")
    request = Request(
        prime.tolist(),
        values["max_tokens"],
        replace(sampling, stop=((model.vocab.symbols.index(notation.END),),)),
        allowed=None if values["free"] else Form(model.vocab.symbols),
        owner=server.owner(http, None),
        timeout=server.settings.timeout,
    )
    progress = asyncio.Event()
    stream = engine.submit(request, server.bridge.setter(progress))
    try:
        pieces = await unless_gone(http.receive, _finished(stream, progress))
    finally:
        stream.cancel()
        http.state.note = lambda: f"model={served.name} tokens={stream.made} end={stream.finish or 'gone'}"
    if stream.finish == ERROR and stream.error is not None:
        raise stream.error
    tokens = [token for piece in pieces for token in piece.tokens()]
    symbols = [model.vocab.symbols[id_] for id_ in [*request.prompt[begins:], *(token.id for token in tokens)]]
    repaired, title = notation.repaired(symbols), values["title"] or f"Sample 1, seed {seed}"
    abc = notation.to_abc(repaired, title, 1)
    if values["format"] != "json":
        return await _file(values["format"], repaired, title, abc)
    compute = Compute(model)
    for piece in pieces:
        compute.add(piece)
    head = {notation.role(symbol): symbol[2:] for symbol in reversed(symbols)}
    given = [None] * (len(symbols) - len(tokens))
    return answer(
        {
            "object": "tune",
            "model": served.name,
            "seed": seed,
            "meter": head.get("meter"),
            "key": head.get("key"),
            "title": title,
            "abc": abc,
            "symbols": symbols,
            "m": [*given, *(round(token.m, 4) for token in tokens)],
            "logprobs": [*given, *(round(token.log_probability, 6) for token in tokens)],
            "complete": stream.finish == STOP,
            "finish_reason": stream.finish,
            "compute": compute.summary(),
        }
    )


async def _finished(stream: Stream, progress: asyncio.Event) -> list[Piece]:
    pieces, ended = list[Piece](), False
    while not ended:
        await progress.wait()
        progress.clear()
        piece, ended = stream.take()
        pieces += [piece] if piece else []
    return pieces


async def _first_of_music(server: Server) -> Any:
    for served in server.catalogue:
        if (await server.engine(served)).model.vocab.kind == "music":
            return served
    raise BadField("model", "this server has no model of tunes: start it with one, such as `vcdeploy serve irish`")


async def _file(kind: str, symbols: list[str], title: str, abc: str) -> Response:
    name = {"midi": "mid"}.get(kind, kind)
    headers = {"Content-Disposition": f'inline; filename="tune.{name}"'}
    content = abc.encode() if kind == "abc" else await _rendered(kind, symbols, title)
    return Response(content, headers=headers, media_type=FORMATS[kind])


_RENDERING = asyncio.Lock()  # music21 and Verovio have state of their own


async def _rendered(kind: str, symbols: list[str], title: str) -> bytes:
    from vcdeploy.music.rendering import WRITERS

    async with _RENDERING:
        try:
            return await anyio.to_thread.run_sync(WRITERS[kind], symbols, title)
        except VcdeployError as error:
            raise Problem(501, str(error)) from error
