"""POST /v1/completions, as the openai client expects it, with fields of our own."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from vcdeploy.cost import active, macs
from vcdeploy.errors import VcdeployError
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.sampling import MOST_HISTORY, Sampling, Token
from vcdeploy.runtime.session import Piece, settled
from vcdeploy.serving.engine import Engine
from vcdeploy.serving.fields import BadField, Schema, checked, parse
from vcdeploy.serving.http.answers import Events, answer, error_body, to_json, unless_gone
from vcdeploy.serving.http.settings import Served, Server
from vcdeploy.serving.streams import ERROR, Request, Stream
from vcdeploy.spec import UNITS
from vcdeploy.vocabulary import Speller, Vocabulary

MOST_LOGPROBS = 20
MOST_CHOICES = 16  # streams of one request
MOST_STOPS = 8

_NEUTRAL = "Only the value that changes nothing, for clients that always send it."

SAMPLING: dict[str, Schema] = {
    "temperature": {"type": "number", "minimum": 0, "maximum": 10, "default": Sampling.temperature,
                    "description": "Softmax temperature; 0 always takes the most likely symbol."},
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": Sampling.top_p,
              "description": "Nucleus sampling; 1 for all symbols."},
    "top_k": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "default": 0,
              "description": "Sample from the k most likely symbols; 0 for all. An extension."},
    "min_p": {"type": "number", "minimum": 0, "maximum": 1, "default": 0,
              "description": "Sample only from symbols at least this fraction as likely as the most likely one. "
              "An extension."},
    "repetition_penalty": {"type": "number", "minimum": 0.1, "maximum": 10, "default": 1,
                           "description": "Make the last 64 symbols less likely; 1 for no penalty. An extension."},
    "seed": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**63 - 1 - MOST_CHOICES,
             "description": "The same seed gives the same text; by default a random one, which the answer has."},
}  # fmt: skip


def fields(most_tokens: int, most_prompt: int) -> dict[str, Schema]:
    """The fields of a request, under these limits of the server."""
    text: Schema = {"type": "string", "maxLength": most_prompt}
    several: Schema = {"type": "array", "items": {"type": ["string", "integer"]}, "maxItems": most_prompt}
    stop: Schema = {"type": "string", "minLength": 1, "maxLength": MOST_HISTORY}
    return {
        "model": {"type": ["string", "null"], "description": "A name of /v1/models; by default the first."},
        "prompt": {"anyOf": [text, several],
                   "default": "",
                   "description": "The text to continue, or ids, or several texts. Empty: the start of a text, or "
                   "just on from the state."},
        "max_tokens": {"type": "integer", "minimum": 0, "maximum": most_tokens, "default": min(200, most_tokens),
                       "description": "Number of symbols to generate: characters, for a model of text."},
        **SAMPLING,
        "stop": {"anyOf": [stop, {"type": "array", "items": stop, "maxItems": MOST_STOPS}, {"type": "null"}],
                 "default": None,
                 "description": "Generation ends before this text, or before one of these."},
        "stream": {"type": "boolean", "default": False,
                   "description": "Send the text in pieces as server-sent events, the last one [DONE]."},
        "stream_options": {"type": ["object", "null"],
                           "description": "include_usage: true sends the usage in an event of its own at the end."},
        "logprobs": {"type": ["integer", "null"], "minimum": 0, "maximum": MOST_LOGPROBS,
                     "description": "Return each symbol with its log-probability under the model's own distribution, "
                     "and so many alternatives."},
        "m": {"type": "boolean", "default": False,
              "description": "Return m of each symbol, the fraction of the state that was updated. An extension."},
        "n": {"type": "integer", "minimum": 1, "maximum": MOST_CHOICES, "default": 1,
              "description": "Texts per prompt, the next ones with the next seeds."},
        "echo": {"type": "boolean", "default": False, "description": "Begin the text with the prompt."},
        "state": {"type": ["string", "null"],
                  "description": "Go on from the state of an earlier answer, before the prompt. An extension."},
        "return_state": {"type": "boolean", "default": False,
                         "description": "Return the state at the end, to go on from. An extension."},
        "user": {"type": ["string", "null"], "maxLength": 256,
                 "description": "Whose request it is: users who wait take turns."},
        "best_of": {"type": ["integer", "null"], "description": "Like n, or null. " + _NEUTRAL},
        "suffix": {"type": ["string", "null"], "maxLength": 0, "description": _NEUTRAL},
        "frequency_penalty": {"type": ["number", "null"], "minimum": 0, "maximum": 0, "description": _NEUTRAL},
        "presence_penalty": {"type": ["number", "null"], "minimum": 0, "maximum": 0, "description": _NEUTRAL},
        "logit_bias": {"type": ["object", "null"], "description": "Empty, or null. " + _NEUTRAL},
    }  # fmt: skip


async def complete(server: Server, http: HttpRequest) -> Response:
    """Answer a request: all at once, or as events."""
    values = checked(parse(await server.body(http)), server.completion_fields)
    if values["best_of"] not in (None, values["n"]):
        raise BadField("best_of", "best_of must be null, or the same as n")
    if values["logit_bias"]:
        raise BadField("logit_bias", "logit_bias must be empty: this server has none")
    served = server.catalogue.find(values["model"])
    engine = await server.engine(served)
    completion = Completion(server, served, engine, values, server.owner(http, values["user"]))
    completion.submit()
    http.state.note = lambda: completion.note
    if values["stream"]:
        return Events(completion.events())
    try:
        await unless_gone(http.receive, completion.finished())
    finally:
        completion.cancel()
    return answer(completion.whole())


class Completion:
    """The streams of one request, and its answer."""

    def __init__(self, server: Server, served: Served, engine: Engine, values: dict[str, Any], owner: str) -> None:
        self._server, self._served, self._engine, self._values = server, served, engine, values
        self.id, self._created = f"cmpl-{secrets.token_hex(12)}", int(time.time())
        self._progress = asyncio.Event()
        model, prompts = engine.model, _prompts(engine.model, values)
        self._seed = secrets.randbits(31) if values["seed"] is None else values["seed"]
        state = None if values["state"] is None else server.signer.open(served.name, values["state"])
        sampling = sampling_of(model, values)
        self._requests = [
            Request(
                prompt,
                values["max_tokens"],
                replace(sampling, seed=self._seed + n),
                alternatives=min(values["logprobs"] or 0, len(model.vocab)),
                state=state,
                keep_state=values["return_state"],
                owner=owner,
                timeout=server.settings.timeout,
            )
            for prompt in prompts
            for n in range(values["n"])
        ]
        if len(self._requests) > MOST_CHOICES:
            raise BadField(
                "prompt", f"this asks for {len(self._requests)} texts, but at most {MOST_CHOICES} go at once"
            )
        for request in self._requests:
            if len(request.prompt) > server.settings.most_prompt:
                raise BadField("prompt", f"the prompt is longer than {server.settings.most_prompt} symbols")
            if not request.prompt and state is None:
                raise BadField("prompt", "the prompt is empty")
        self._choices: list[Choice] = []

    def submit(self) -> None:
        """Hand all streams to the engine, or none."""
        wake = self._server.bridge.setter(self._progress)
        try:
            for n, request in enumerate(self._requests):
                stream = self._engine.submit(request, wake)
                self._choices.append(Choice(n, stream, self._engine.model, self._values))
        except VcdeployError:
            self.cancel()
            raise

    def cancel(self) -> None:
        for choice in self._choices:
            choice.stream.cancel()

    @property
    def note(self) -> str:
        """For the log."""
        streams = [choice.stream for choice in self._choices]
        ends = ",".join(stream.finish or "gone" for stream in streams)
        return (
            f"model={self._served.name} prompt={sum(len(each.request.prompt) for each in streams)} "
            f"tokens={sum(stream.made for stream in streams)} end={ends}"
        )

    async def _pieces(self) -> AsyncIterator[tuple[Choice, Piece | None]]:
        """The tokens of all choices as they come; a choice that has ended comes once more, without any."""
        running = list(self._choices)
        while running:
            await self._progress.wait()
            self._progress.clear()
            for choice in list(running):
                piece, ended = choice.stream.take()
                if piece:
                    yield choice, piece
                if ended:
                    running.remove(choice)
                    if choice.stream.finish == ERROR and choice.stream.error is not None:
                        raise choice.stream.error
                    yield choice, None

    async def finished(self) -> None:
        async for choice, piece in self._pieces():
            if piece:
                choice.add(piece)

    def whole(self) -> dict[str, Any]:
        return {
            **self._head(),
            "choices": [choice.whole(self._server, self._served.name) for choice in self._choices],
            "usage": self._usage(),
        }

    async def events(self) -> AsyncIterator[bytes]:
        usage = bool((self._values["stream_options"] or {}).get("include_usage"))
        more: dict[str, Any] = {"usage": None} if usage else {}
        try:
            async for choice, piece in self._pieces():
                made = choice.piece(piece) if piece else choice.last(self._server, self._served.name)
                yield _event({**self._head(), "choices": [made], **more})
            if usage:
                yield _event({**self._head(), "choices": [], "usage": self._usage()})
            yield b"data: [DONE]\n\n"
        except VcdeployError as error:  # the status is sent already
            yield _event(error_body(error, 500))
        finally:
            self.cancel()

    def _head(self) -> dict[str, Any]:
        return {"id": self.id, "object": "text_completion", "created": self._created, "model": self._served.name}

    def _usage(self) -> dict[str, int]:
        prompt = sum(len(choice.stream.request.prompt) for choice in self._choices)
        made = sum(choice.stream.made for choice in self._choices)
        return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


class Choice:
    """One text of the answer."""

    def __init__(self, index: int, stream: Stream, model: Model, values: dict[str, Any]) -> None:
        self.index, self.stream = index, stream
        self._vocab, self._config = model.vocab, model.config
        self._logprobs: int | None = values["logprobs"]
        self._with_m: bool = values["m"]
        self._speller = Speller(model.vocab)
        self._spell = _spelling(model.vocab, self._speller)
        self._place = 0  # characters of text so far
        self._start = _text(model, stream.request.prompt) if values["echo"] else ""
        self._pieces: list[Piece] = []
        self._compute = Compute(model)

    def add(self, piece: Piece) -> None:
        self._pieces.append(piece)

    def piece(self, tokens: Piece | None, finish: str | None = None) -> dict[str, Any]:
        """A part of the text, and what was asked for of its tokens."""
        made: dict[str, Any] = {"index": self.index, "text": self._start, "logprobs": None}
        self._place += len(self._start)
        self._start = ""
        ids = tokens.ids if tokens else []
        if tokens:
            self._compute.add(tokens)
        if self._logprobs is None:
            made["text"] += "".join(map(self._spell, ids))
        else:
            spelled = list(map(self._spell, ids))
            made["text"] += "".join(spelled)
            made["logprobs"] = self._logprobs_of(tokens.tokens() if tokens else [], spelled)
        if self._with_m:
            made["m"] = tokens.m.round(4).tolist() if tokens else []
        made["finish_reason"] = finish
        return made

    def last(self, server: Server, name: str) -> dict[str, Any]:
        """The end of the text: why it ended, and how it goes on."""
        return self._ended(self.piece(None, self.stream.finish), server, name)

    def whole(self, server: Server, name: str) -> dict[str, Any]:
        tokens = Piece.joined(self._pieces) if self._pieces else None
        return self._ended(self.piece(tokens, self.stream.finish), server, name)

    def _ended(self, made: dict[str, Any], server: Server, name: str) -> dict[str, Any]:
        if self._vocab.kind == "bits":
            made["text"] += self._speller.end()
        made["seed"] = self.stream.request.sampling.seed
        made["compute"] = self._compute.summary()
        if self.stream.state is not None:
            made["state"] = server.signer.seal(name, self.stream.state)
        return made

    def _logprobs_of(self, tokens: list[Token], spelled: list[str]) -> dict[str, Any]:
        symbols, offsets = self._vocab.symbols, []
        for text in spelled:
            offsets.append(self._place)
            self._place += len(text)
        alternatives = [
            {symbols[id_]: round(value, 6) for id_, value in token.alternatives[: self._logprobs]} for token in tokens
        ]
        return {
            "tokens": [symbols[token.id] for token in tokens],
            "token_logprobs": [round(token.log_probability, 6) for token in tokens],
            "top_logprobs": alternatives if self._logprobs else None,
            "text_offset": offsets,
        }


class Compute:
    """What the generated tokens cost, next to a dense GRU of the same size."""

    def __init__(self, model: Model) -> None:
        self._config, self._m = model.config, list[NDArray[np.float64]]()

    def add(self, piece: Piece) -> None:
        self._m.append(piece.m)

    def summary(self) -> dict[str, Any]:
        """Means per token. With several layers the cost is that of the mean m, which is at most the true one."""
        config = self._config
        if not self._m or not UNITS[config["unit"]].variable:
            return {"m": 1.0 if self._m else None, "macs": None, "dense_gru": None}
        m = np.concatenate(self._m)
        squares = [float(np.mean(active(m, config).astype(np.float64) ** 2))] * config["layers"]
        spent = macs(config["unit"], config["dim"], squares)
        dense = macs("gru", config["dim"], [config["dim"] ** 2] * config["layers"])
        return {"m": round(float(m.mean()), 4), "macs": round(spent), "dense_gru": round(spent / dense, 4)}


def sampling_of(model: Model, values: dict[str, Any]) -> Sampling:
    """Sampling from the fields of a request, without its seed."""
    if 0 < values["temperature"] < 0.01:
        raise BadField("temperature", "temperature must be 0, or from 0.01 on")
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    return settled(Sampling(**{name: values[name] for name in names}, stop=values.get("stop") or ()), {}, model.vocab)


def _prompts(model: Model, values: dict[str, Any]) -> list[list[int]]:
    given, vocab = values["prompt"], model.vocab
    if isinstance(given, list) and given and all(isinstance(each, int) for each in given):
        if any(not 0 <= each < len(vocab) for each in given):
            raise BadField("prompt", f"the ids of this model are 0 to {len(vocab) - 1}")
        return [given]
    texts = given if isinstance(given, list) else [given]
    if not texts or not all(isinstance(each, str) for each in texts):
        raise BadField("prompt", "the prompt must be a text, a list of texts, or a list of ids")
    empty = [] if values["state"] is not None else vocab.start().tolist()
    try:
        return [vocab.encode(each).tolist() if each else empty for each in texts]
    except VcdeployError as error:
        raise BadField("prompt", f"prompt: {error}") from error


def _text(model: Model, ids: list[int]) -> str:
    if model.vocab.kind == "music":
        return "".join(model.vocab.symbols[id_] + " " for id_ in ids)
    return model.vocab.decode(ids)


def _spelling(vocab: Vocabulary, speller: Speller) -> Callable[[int], str]:
    """A function that spells tokens, one after the other."""
    if vocab.kind == "text":
        return vocab.symbols.__getitem__
    return speller.spell if vocab.kind == "bits" else lambda id_: vocab.symbols[id_] + " "


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + to_json(content) + b"\n\n"
