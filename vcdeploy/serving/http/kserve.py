"""The KServe v2 protocol, with its binary tensors: the model as a function of tokens [T, B] and state."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from vcdeploy import __version__
from vcdeploy.errors import BadValue, Cancelled, TimedOut, VcdeployError
from vcdeploy.runtime.model import Model
from vcdeploy.runtime.session import check_ids
from vcdeploy.serving.fields import BadField, Schema, checked, parse
from vcdeploy.serving.http.answers import Gone, Problem, answer, to_json, unless_gone
from vcdeploy.serving.http.settings import Server
from vcdeploy.serving.streams import Refused

HEADER = "Inference-Header-Content-Length"
TYPES: dict[str, np.dtype[Any]] = {"INT64": np.dtype("<i8"), "FP32": np.dtype("<f4")}
LARGEST = 1 << 26  # bytes of the outputs
MOST_WAITING = 64  # calls

TENSOR: dict[str, Schema] = {
    "name": {"type": "string"},
    "shape": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2**31}, "maxItems": 8},
    "datatype": {"type": "string", "enum": list(TYPES)},
    "data": {"type": ["array", "null"], "description": "Flat or nested; none with binary_data_size."},
    "parameters": {"type": ["object", "null"], "description": "binary_data_size: bytes after the JSON."},
}
OUTPUT: dict[str, Schema] = {
    "name": {"type": "string"},
    "parameters": {"type": ["object", "null"], "description": "binary_data: whether to send bytes after the JSON."},
}
REQUEST: dict[str, Schema] = {
    "id": {"type": ["string", "null"], "maxLength": 256},
    "inputs": {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": 2,
               "description": "tokens INT64 [T, B], and maybe state FP32 [S, B, D]; zeros by default."},
    "outputs": {"type": ["array", "null"], "items": {"type": "object"}, "maxItems": 3,
                "description": "Of logits [T, B, vocab], state_out [S, B, D] and compute [T, B, layers]; by default "
                "all."},
    "parameters": {"type": ["object", "null"],
                   "description": "binary_data_output: whether outputs are binary by default."},
}  # fmt: skip
OUTPUTS = ("logits", "state_out", "compute")


@dataclass(frozen=True)
class Call:
    """A request: what to run, and which outputs to return, each with whether it is binary."""

    id: str | None
    tokens: NDArray[np.int64]
    state: NDArray[np.float32] | None
    outputs: dict[str, bool]


class Turns:
    """Calls of a server's models, one at a time for all of them; a limited number waits."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(1)

    async def run(self, model: Model, call: Call, timeout: float) -> tuple[NDArray[np.float32], ...]:
        if self._limiter.statistics().tasks_waiting >= MOST_WAITING:
            raise Refused(f"{MOST_WAITING} calls wait, which is the limit: try again later", 1)
        cancel, wanted = threading.Event(), "all" if "logits" in call.outputs else "none"

        def work() -> tuple[NDArray[np.float32], ...]:
            return model.run(call.tokens, call.state, logits=wanted, timeout=timeout, cancel=cancel)

        try:
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)
        finally:
            cancel.set()


async def server_metadata(server: Server, http: HttpRequest) -> Response:
    return answer({"name": "vcdeploy", "version": __version__, "extensions": ["binary_tensor_data"]})


async def model_metadata(server: Server, http: HttpRequest) -> Response:
    served = server.catalogue.find(http.path_params["name"])
    model = (await server.engine(served)).model
    shapes = _shapes(model)

    def tensor(name: str, datatype: str) -> dict[str, Any]:
        return {"name": name, "datatype": datatype, "shape": shapes[name]}

    return answer(
        {
            "name": served.name,
            "versions": ["1"],
            "platform": f"vcdeploy_{model.backend}",
            "inputs": [tensor("tokens", "INT64"), tensor("state", "FP32")],
            "outputs": [tensor(name, "FP32") for name in OUTPUTS],
        }
    )


async def model_ready(server: Server, http: HttpRequest) -> Response:
    loaded = server.catalogue.find(http.path_params["name"]).loaded is not None
    return answer({"ready": loaded}, 200 if loaded else 503)


async def infer(server: Server, http: HttpRequest) -> Response:
    served = server.catalogue.find(http.path_params["name"])
    body = await server.body(http)
    model = (await server.engine(served)).model
    call = read_call(body, http.headers.get(HEADER), model, server.settings.most_prompt)
    http.state.note = lambda: f"model={served.name} steps={call.tokens.shape[0]} sequences={call.tokens.shape[1]}"
    try:
        results = await unless_gone(http.receive, server.turns.run(model, call, server.settings.timeout))
    except TimedOut as error:
        raise Problem(504, "the inference took too long: send fewer tokens") from error
    except Cancelled as error:
        raise Gone from error
    return _answered(served.name, call, dict(zip(OUTPUTS, results, strict=True)))


def read_call(body: bytes, header: str | None, model: Model, most: int) -> Call:
    """The call in a body: JSON, of `header` bytes if tensors follow it. most: tokens × sequences."""
    size = len(body) if header is None else int(header) if header.isdecimal() and len(header) < 12 else -1
    if not 0 <= size <= len(body):
        raise BadField(None, f"{HEADER} must be the number of bytes of the JSON, not {header!s:.40}")
    values, rest = checked(parse(body[:size]), REQUEST), memoryview(body)[size:]
    arrays: dict[str, NDArray[Any]] = {}
    for each in values["inputs"]:
        tensor = checked(each, TENSOR)
        name, at = tensor["name"], (tensor["parameters"] or {}).get("binary_data_size")
        datatype = {"tokens": "INT64", "state": "FP32"}.get(name)
        if datatype is None or name in arrays:
            raise BadField("inputs", f"the inputs are tokens and state, each once, not {name[:80]!r}")
        if tensor["datatype"] != datatype:
            raise BadField("inputs", f"{name} must be {datatype}, not {tensor['datatype']}")
        if at is not None and (not isinstance(at, int) or not 0 <= at <= len(rest)):
            raise BadField("inputs", f"{name}: binary_data_size must be a number of bytes that the body has")
        arrays[name] = _array(tensor, None if at is None else rest[:at])
        rest = rest[at or 0 :]
    if len(rest):
        raise BadField(None, f"the body has {len(rest)} bytes more than its tensors")
    return Call(values["id"], *_inputs(arrays, model, most), _outputs(values, model, arrays["tokens"]))


def _array(tensor: dict[str, Any], content: memoryview | None) -> NDArray[Any]:
    name, shape, dtype = tensor["name"], tensor["shape"], TYPES[tensor["datatype"]]
    count = math.prod(shape)
    if content is not None:
        if len(content) != count * dtype.itemsize:
            raise BadField("inputs", f"{name} has {len(content)} bytes, but its shape {shape} needs "
                           f"{count * dtype.itemsize}")  # fmt: skip
        return np.frombuffer(content, dtype).reshape(shape).copy()  # aligned
    if tensor["data"] is None:
        raise BadField("inputs", f"{name} has no data")
    try:
        values = np.array(tensor["data"])
        if values.dtype.kind not in ("iu" if dtype.kind == "i" else "iuf") or values.size != count:
            raise ValueError("it must be numbers, as many as the shape says")
        return values.astype(dtype).reshape(shape)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadField("inputs", f"{name} has data that can't be used: {error}") from error


def _inputs(
    arrays: dict[str, NDArray[Any]], model: Model, most: int
) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
    """Tokens and state, checked."""
    tokens, state = arrays.get("tokens"), arrays.get("state")
    if tokens is None or tokens.ndim != 2 or not 0 < tokens.size <= most:
        raise BadField("inputs", f"tokens must have the shape [T, B], with from 1 to {most} tokens")
    if state is not None:
        wanted = [_shapes(model)["state"][0], tokens.shape[1], model.config["dim"]]
        if list(state.shape) != wanted or not np.isfinite(state).all():
            raise BadField("inputs", f"state must have the shape {wanted} and finite numbers")
    try:
        check_ids(tokens, model.vocab, model.name)
    except VcdeployError as error:
        raise BadValue(str(error)) from error
    return tokens, state


def _outputs(values: dict[str, Any], model: Model, tokens: NDArray[np.int64]) -> dict[str, bool]:
    binary = bool((values["parameters"] or {}).get("binary_data_output"))
    wanted: dict[str, bool] = {}
    for each in values["outputs"] or [{"name": name} for name in OUTPUTS]:
        output = checked(each, OUTPUT)
        if output["name"] not in OUTPUTS:
            raise BadField("outputs", f"the outputs are {', '.join(OUTPUTS)}, not {output['name'][:80]!r}")
        wanted[output["name"]] = bool((output["parameters"] or {}).get("binary_data", binary))
    if "logits" in wanted and tokens.size * len(model.vocab) * 4 > LARGEST:
        raise BadField("outputs", f"the logits would take more than {LARGEST >> 20} MiB: send fewer tokens")
    return wanted


def _answered(name: str, call: Call, results: dict[str, NDArray[np.float32]]) -> Response:
    outputs, parts = list[dict[str, Any]](), list[bytes]()
    for output, binary in call.outputs.items():
        values = np.ascontiguousarray(results[output], "<f4")
        made: dict[str, Any] = {"name": output, "datatype": "FP32", "shape": list(values.shape)}
        if binary:
            made["parameters"] = {"binary_data_size": values.nbytes}
            parts.append(values.tobytes())
        else:
            made["data"] = values.ravel().tolist()
        outputs.append(made)
    head = {"model_name": name, "model_version": "1", "outputs": outputs}
    content = to_json({**head, "id": call.id} if call.id is not None else head)
    if not parts:
        return Response(content, media_type="application/json")
    headers = {HEADER: str(len(content))}
    return Response(b"".join([content, *parts]), headers=headers, media_type="application/octet-stream")


def _shapes(model: Model) -> dict[str, list[int]]:
    """The shapes as the model describes them; -1 is T or B."""
    rows, dim = model.session().state.shape[0], model.config["dim"]
    return {
        "tokens": [-1, -1],
        "state": [rows, -1, dim],
        "logits": [-1, -1, len(model.vocab)],
        "state_out": [rows, -1, dim],
        "compute": [-1, -1, model.config["layers"]],
    }
