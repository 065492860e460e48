"""GET /metrics: what the engines have done, and how long it took."""

from __future__ import annotations

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from vcdeploy import __version__
from vcdeploy.serving.catalogue import Served
from vcdeploy.serving.http.settings import Server
from vcdeploy.serving.metrics import Counter, Histogram, line, text
from vcdeploy.serving.streams import Stream


class Figures:
    """Counts answers and streams as they end."""

    def __init__(self) -> None:
        self.answers, self.streams = Counter(), Counter()
        self.first_token, self.waited, self.lasted = Histogram(), Histogram(), Histogram()

    def ended(self, served: Served, stream: Stream) -> None:
        """A stream has ended."""
        name = served.name
        self.streams.add(model=name, finish=stream.finish or "")
        if stream.started is not None:
            self.waited.observe(stream.started - stream.created, model=name)
        if stream.first_token is not None:
            self.first_token.observe(stream.first_token - stream.created, model=name)
        if stream.ended is not None:
            self.lasted.observe(stream.ended - stream.created, model=name)

    def text(self, server: Server) -> str:
        engines = [(each.name, each.loaded) for each in server.catalogue if each.loaded is not None]
        counts = [(name, engine.counts) for name, engine in engines]

        def each(name: str, field: str) -> list[str]:
            return [line(name, {"model": model}, getattr(count, field)) for model, count in counts]

        rows = [
            ("info", "gauge", "Version.", [line("vcdeploy_info", {"version": __version__}, 1)]),
            ("requests_total", "counter", "Answers by path and status.", self.answers.lines("vcdeploy_requests_total")),
            ("streams_total", "counter", "Streams by how they ended.", self.streams.lines("vcdeploy_streams_total")),
            ("streams_refused_total", "counter", "Streams refused because the queue was full.",
             [line("vcdeploy_streams_refused_total", {"model": name}, engine.refused) for name, engine in engines]),
            ("streams_running", "gauge", "Streams that have a place.",
             [line("vcdeploy_streams_running", {"model": name}, engine.running) for name, engine in engines]),
            ("streams_waiting", "gauge", "Streams in the queue.",
             [line("vcdeploy_streams_waiting", {"model": name}, engine.waiting) for name, engine in engines]),
            ("prompt_tokens_total", "counter", "Symbols of prompts read.",
             each("vcdeploy_prompt_tokens_total", "prompt_tokens")),
            ("tokens_total", "counter", "Symbols generated.", each("vcdeploy_tokens_total", "tokens")),
            ("m_sum_total", "counter", "Sum of m over the symbols generated.", each("vcdeploy_m_sum_total", "m")),
            ("slices_total", "counter", "Slices of work.", each("vcdeploy_slices_total", "slices")),
            ("busy_seconds_total", "counter", "Seconds of work of all instances.",
             each("vcdeploy_busy_seconds_total", "busy")),
            ("first_token_seconds", "histogram", "From the request to the first symbol.",
             self.first_token.lines("vcdeploy_first_token_seconds")),
            ("queue_seconds", "histogram", "Time in the queue.", self.waited.lines("vcdeploy_queue_seconds")),
            ("stream_seconds", "histogram", "From the request to the end of the stream.",
             self.lasted.lines("vcdeploy_stream_seconds")),
        ]  # fmt: skip
        return text((f"vcdeploy_{name}", kind, about, lines) for name, kind, about, lines in rows)


async def metrics(server: Server, http: HttpRequest) -> Response:
    content = http.app.state.figures.text(server)
    return Response(content, media_type="text/plain; version=0.0.4")
