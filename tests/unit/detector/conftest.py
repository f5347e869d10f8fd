"""Requests, and a running service, for the detector's tests."""

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent.telemetry.model import AttributeValue, Span, SpanKind, SpanStatus
from detector.config import Config, load
from detector.model import Report, Signal, Snapshot, Verdict
from detector.service import Surroundings, serve


@dataclass(frozen=True)
class RequestMaker:
    """Makes request spans of one service."""

    service: str = "chat-api"
    model: str = "tiny"
    replica: str = "chat-api-0"

    def __call__(
        self,
        end_unix_s: float,
        duration_s: float,
        *,
        status: int = 200,
        tokens: int = 11,
        number: int = 0,
    ) -> Span:
        """One request; its first token comes after 40 % of its time."""
        end = round(end_unix_s * 1e9)
        return Span(
            trace_id=f"{end:016x}{number:016x}",
            span_id=f"{number + 1:016x}",
            parent_span_id="",
            name="POST /v1/completions",
            kind=SpanKind.SERVER,
            start_unix_ns=end - round(duration_s * 1e9),
            end_unix_ns=end,
            status=SpanStatus.ERROR if status >= 400 else SpanStatus.UNSET,
            attributes={
                "gen_ai.request.model": self.model,
                "gen_ai.latency.time_to_first_token": 0.4 * duration_s,
                "gen_ai.usage.output_tokens": tokens,
                "http.response.status_code": status,
            },
            resource={"service.name": self.service, "service.instance.id": self.replica},
        )

    def traffic(
        self,
        start_unix_s: float,
        end_unix_s: float,
        *,
        rate: float = 20.0,
        slow: float = 1.0,
        seed: int = 1,
    ) -> list[Span]:
        """Steady traffic, log sigma 0.4 around 80 ms, `slow` times slower."""
        draw = random.Random(f"{seed}-{start_unix_s}")
        count = int((end_unix_s - start_unix_s) * rate)
        return [
            self(
                start_unix_s + (index + 0.5) / rate,
                slow * draw.lognormvariate(math.log(0.08), 0.4),
                number=index,
            )
            for index in range(count)
        ]


@pytest.fixture
def request_span() -> RequestMaker:
    """Return a maker of request spans."""
    return RequestMaker()


def encode(spans: Iterable[Span]) -> bytes:
    """Spans as an OTLP/protobuf body."""
    message = trace_service_pb2.ExportTraceServiceRequest()
    for span in spans:
        part = message.resource_spans.add()
        for key, value in span.resource.items():
            _put(part.resource.attributes.add(), key, value)
        wire = part.scope_spans.add().spans.add()
        wire.trace_id, wire.span_id = bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)
        wire.name, wire.kind = span.name, 2
        wire.start_time_unix_nano, wire.end_time_unix_nano = span.start_unix_ns, span.end_unix_ns
        wire.status.code = 2 if span.status is SpanStatus.ERROR else 0
        for key, value in span.attributes.items():
            _put(wire.attributes.add(), key, value)
    return bytes(message.SerializeToString())


def _put(pair: object, key: str, value: AttributeValue) -> None:
    pair.key = key  # type: ignore[attr-defined]
    kind = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}
    setattr(pair.value, kind[type(value)], value)  # type: ignore[attr-defined]


def blank_report(snapshot: Snapshot) -> Report:
    """Return a report that says only that analysis ran."""
    return Report(
        incident=snapshot.incident,
        verdict=Verdict.FAULT,
        headline=f"{len(snapshot.spans)} spans",
        p99_before_s=0.1,
        p99_since_s=0.4,
        signal=Signal.E2E,
        requests_since=1,
        requests_slow=1,
        baseline_requests=1,
        operations=(),
        causes=(),
        unexplained_share=1.0,
        changes=(),
        slowest=(),
        ordinary=(),
        missing=(),
        analysed_from_unix_s=snapshot.incident.baseline_start_unix_s,
        analysed_to_unix_s=snapshot.end_unix_s,
    )


@dataclass
class Running:
    """A service on free ports, and a client."""

    otlp: str
    api: str
    http: aiohttp.ClientSession

    async def send(self, spans: Iterable[Span]) -> int:
        """Post spans; returns the HTTP status."""
        headers = {"Content-Type": "application/x-protobuf"}
        async with self.http.post(
            f"{self.otlp}/v1/traces", data=encode(spans), headers=headers
        ) as answer:
            return answer.status

    async def get(self, path: str) -> object:
        """Get JSON."""
        async with self.http.get(self.api + path) as answer:
            return await answer.json()

    async def text(self, path: str) -> str:
        """Get text."""
        async with self.http.get(self.api + path) as answer:
            return await answer.text()

    async def until(self, path: str, check: Callable[[object], object], tries: int = 300) -> object:
        """Ask until the answer passes a check."""
        for _ in range(tries):
            answer = await self.get(path)
            if check(answer):
                return answer
            await asyncio.sleep(0.1)
        raise AssertionError(f"{path} never passed: {answer}")


Start = Callable[..., Awaitable[Running]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start services in this loop; all are stopped at the end."""
    running: list[tuple[asyncio.Event, asyncio.Task[None], aiohttp.ClientSession]] = []

    async def launch(
        config: Config | None = None,
        analyse: Callable[[Snapshot], Report] = blank_report,
    ) -> Running:
        said: asyncio.Queue[str] = asyncio.Queue()
        around = Surroundings(state=tmp_path, analyse=analyse, announce=said.put_nowait)
        task = asyncio.create_task(serve(config or quick(), around))
        waiting = asyncio.create_task(said.get())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            waiting.cancel()
            await task
        ready = json.loads(waiting.result())
        session = aiohttp.ClientSession()
        running.append((around.stop, task, session))
        base = "http://127.0.0.1:"
        return Running(f"{base}{ready['otlp_port']}", f"{base}{ready['api_port']}", session)

    async def stop_all() -> None:
        while running:
            stop, task, session = running.pop()
            await session.close()
            stop.set()
            await task

    launch.stop_all = stop_all  # type: ignore[attr-defined]
    yield launch
    await stop_all()


def quick(**settings: object) -> Config:
    """Return settings with free ports."""
    return load(None, {}, [("otlp_port", 0), ("api_port", 0), *settings.items()])
