"""The spans of a real server, as a collector receives them."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.support.otlp_collector import Collector, attributes, collecting
from tests.support.workload_process import Server, metric, serving

BODY: dict[str, object] = {"prompt": "Hello there", "max_tokens": 5, "user": "tenant-0007"}
WHO = ("--service", "chat-7f", "--model", "tiny", "--version", "1.2.3", "--revision", "ab" * 20)
CHILDREN = ["sql wait", "sql SELECT tenants", "cache lookup", "queue", "prefill", "decode"]


async def post(
    server: Server, body: dict[str, object] | bytes, headers: dict[str, str] | None = None
) -> int:
    """POST a completion and read the answer; its status."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/v1/completions", data=data, headers=headers) as response,
    ):
        await response.read()
        return response.status


async def stop(server: Server) -> int:
    """SIGTERM; the exit code."""
    server.process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(server.process.wait, 60)


@asynccontextmanager
async def traced(directory: Path, *settings: str) -> AsyncIterator[tuple[Server, Collector]]:
    """Run a server that sends its spans to a collector; after the block all of them are there."""
    async with collecting() as collector:
        with serving(directory, *settings, arguments=(*WHO, "--otlp", collector.url)) as server:
            yield server, collector
            assert await stop(server) == 0


def children(collector: Collector, parent: Span) -> list[Span]:
    """Children of a span in order of time."""
    found = [one for one in collector.spans if one.parent_span_id == parent.span_id]
    return sorted(found, key=lambda one: one.start_time_unix_nano)


def steps_of(collector: Collector) -> list[Span]:
    """Engine steps in order of time."""
    return sorted(collector.named("engine step"), key=lambda one: one.start_time_unix_nano)


async def test_a_request_span_says_who_and_how_much(tmp_path: Path) -> None:
    """The SERVER span carries the GenAI attributes and its resource the revision."""
    async with traced(tmp_path) as (server, collector):
        await post(server, BODY)
    (span,) = collector.named("POST /v1/completions")
    said = attributes(list(span.attributes))
    ttft_s = said.pop("gen_ai.latency.time_to_first_token")
    assert span.kind == Span.SPAN_KIND_SERVER
    assert said == {
        "http.request.method": "POST",
        "http.route": "/v1/completions",
        "http.response.status_code": 200,
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "tailcause",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.max_tokens": 5,
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 0,
    }
    assert isinstance(ttft_s, float)
    assert 0 < ttft_s < (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
    who = {
        key: collector.resource[key]
        for key in ("service.name", "service.instance.id", "service.version")
    }
    assert who == {
        "service.name": "chat-7f",
        "service.instance.id": "chat-7f-0",
        "service.version": "1.2.3",
    }
    assert collector.resource["vcs.ref.head.revision"] == "ab" * 20
    assert collector.resource["process.pid"] == server.process.pid


async def test_children_follow_each_other(tmp_path: Path) -> None:
    """Sql, cache, queue, prefill and decode lie within the request and do not overlap."""
    async with traced(tmp_path) as (server, collector):
        await post(server, BODY)
    (request,) = collector.named("POST /v1/completions")
    found = children(collector, request)
    times = [
        moment for one in found for moment in (one.start_time_unix_nano, one.end_time_unix_nano)
    ]
    assert [one.name for one in found] == CHILDREN
    assert times == sorted(times)
    assert request.start_time_unix_nano <= times[0]
    assert times[-1] <= request.end_time_unix_nano


async def test_steps_link_to_their_requests(tmp_path: Path) -> None:
    """Every step is a trace of its own, linked to the requests that it served."""
    async with traced(tmp_path) as (server, collector):
        await post(server, BODY)
    (request,) = collector.named("POST /v1/completions")
    steps = steps_of(collector)
    shapes = [attributes(list(step.attributes)) for step in steps]
    assert {(link.trace_id, link.span_id) for step in steps for link in step.links} == {
        (request.trace_id, request.span_id)
    }
    assert all(not step.parent_span_id and step.trace_id != request.trace_id for step in steps)
    assert [shape["tailcause.step.prefill_tokens"] for shape in shapes] == [12, 0, 0, 0, 0]
    assert [shape["tailcause.step.decode_tokens"] for shape in shapes] == [0, 1, 1, 1, 1]
    assert [shape["tailcause.step.context_tokens"] for shape in shapes] == [0, 12, 13, 14, 15]


async def test_chunks_are_parts_of_their_steps(tmp_path: Path) -> None:
    """A step with a prompt in it says which part was whose; the phase `prefill` covers all chunks."""
    async with traced(tmp_path, "step_tokens=36", "prompt_cache=0") as (server, collector):
        long: dict[str, object] = {"prompt": "p" * 99, "max_tokens": 2}
        both = [{**BODY, "max_tokens": 200}, long]
        await asyncio.gather(*(post(server, body) for body in both))
    request = next(
        one
        for one in collector.named("POST /v1/completions")
        if attributes(list(one.attributes))["gen_ai.usage.input_tokens"] == 100
    )
    chunks = [
        one for one in collector.named("prefill chunk") if one.links[0].span_id == request.span_id
    ]
    chunks.sort(key=lambda one: one.start_time_unix_nano)
    sizes = [
        int(str(attributes(list(one.attributes))["tailcause.step.prefill_tokens"]))
        for one in chunks
    ]
    prefill = next(one for one in children(collector, request) if one.name == "prefill")
    assert sum(sizes) == 100
    assert all(0 < size <= 36 for size in sizes)
    assert all(
        prefill.start_time_unix_nano <= one.start_time_unix_nano <= one.end_time_unix_nano
        for one in chunks
    )
    assert chunks[-1].end_time_unix_nano <= prefill.end_time_unix_nano
    steps = {step.span_id: step for step in steps_of(collector)}
    for part in (*chunks, *collector.named("decode step")):
        step = steps[part.parent_span_id]
        assert step.start_time_unix_nano <= part.start_time_unix_nano
        assert part.end_time_unix_nano <= step.end_time_unix_nano
        assert {link.span_id for link in part.links} <= {link.span_id for link in step.links}


async def test_a_preempted_request_says_so(tmp_path: Path) -> None:
    """The request counts how often it lost its KV, the steps and the metric those who lost it."""
    async with traced(tmp_path, "kv_tokens=256", "prompt_cache=0") as (server, collector):
        bodies: list[dict[str, object]] = [{"prompt": one * 9, "max_tokens": 240} for one in "ab"]
        counted = 0.0
        while not counted:  # until both ran at the same time
            assert await asyncio.gather(*(post(server, body) for body in bodies)) == [200, 200]
            counted = await metric(server, "vllm:num_preemptions_total")
    told = [attributes(list(one.attributes)) for one in collector.named("POST /v1/completions")]
    by_step = [attributes(list(one.attributes)) for one in steps_of(collector)]
    for some, key in (
        (told, "tailcause.request.preemptions"),
        (by_step, "tailcause.step.preempted"),
    ):
        assert counted == sum(int(str(one.get(key, 0))) for one in some)


async def test_a_shared_prefix_is_said(tmp_path: Path) -> None:
    """Prompt tokens that were not computed anew are counted under the convention's name."""
    async with traced(tmp_path) as (server, collector):
        for end in ("one", "two"):
            await post(server, {"prompt": "the same beginning of both: " + end, "max_tokens": 2})
    told = [attributes(list(one.attributes)) for one in collector.named("POST /v1/completions")]
    assert [one["gen_ai.usage.cache_read.input_tokens"] for one in told] == [0, 16]


async def test_a_cache_hit_needs_no_engine(tmp_path: Path) -> None:
    """A repeated prompt has a hit in its cache span and no engine phases."""
    async with traced(tmp_path) as (server, collector):
        await post(server, BODY)
        await post(server, BODY)
    requests = sorted(
        collector.named("POST /v1/completions"), key=lambda one: one.start_time_unix_nano
    )
    found = children(collector, requests[1])
    assert [one.name for one in found] == CHILDREN[:3]
    assert attributes(list(found[2].attributes)) == {"tailcause.cache.hit": True}


async def test_a_refused_request_is_an_error(tmp_path: Path) -> None:
    """A 429 is a failure in its span, not a fast request."""
    async with traced(tmp_path, "max_running=1", "max_queue=0", "prompt_cache=0") as (
        server,
        collector,
    ):
        body: dict[str, object] = {"prompt": "x" * 200, "max_tokens": 200, "user": "tenant-0001"}
        statuses = await asyncio.gather(*(post(server, body) for _ in range(20)))
    refused = [
        one
        for one in collector.named("POST /v1/completions")
        if attributes(list(one.attributes))["http.response.status_code"] == 429
    ]
    assert len(refused) == statuses.count(429) > 0
    assert {one.status.code for one in refused} == {Status.STATUS_CODE_ERROR}
    assert {attributes(list(one.attributes))["error.type"] for one in refused} == {"queue_full"}


async def test_a_caller_s_trace_goes_on_even_when_it_is_not_sampled(tmp_path: Path) -> None:
    """The request span joins the caller's trace; a caller cannot hide its request."""
    caller = f"00-{'1' * 32}-{'2' * 16}-00"
    async with traced(tmp_path) as (server, collector):
        await post(server, BODY, {"traceparent": caller})
    (request,) = collector.named("POST /v1/completions")
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == ("1" * 32, "2" * 16)


async def test_log_lines_carry_the_span(tmp_path: Path) -> None:
    """The log line of a request names its trace and span, and not its prompt."""
    async with traced(tmp_path) as (server, collector):
        await post(server, BODY)
    (request,) = collector.named("POST /v1/completions")
    (line,) = [one for one in server.log_events() if one["event"] == "request"]
    assert (line["trace_id"], line["span_id"]) == (request.trace_id.hex(), request.span_id.hex())
    assert "Hello" not in json.dumps(line)


async def test_an_absent_collector_costs_one_line(tmp_path: Path) -> None:
    """Exports that fail are counted and reported once; requests are answered all the same."""
    with socket.socket() as taken:  # bound, never listening: refused, and nobody else can take it
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with serving(tmp_path, arguments=("--otlp", nobody)) as server:
            for at in range(3):
                assert await post(server, {**BODY, "prompt": f"prompt {at}"}) == 200
                await asyncio.sleep(0.6)
            assert await stop(server) == 0
            warnings = [one for one in server.log_events() if one["level"] != "info"]
    assert [one["event"] for one in warnings] == ["span export fails, serving goes on"]


async def test_a_hanging_collector_does_not_hold_the_exit(tmp_path: Path) -> None:
    """A collector that accepts and never answers delays the exit by the flush limit, not by its own."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with serving(tmp_path, arguments=("--otlp", url)) as server:
            assert await post(server, BODY) == 200
            begun_s = time.monotonic()
            assert await stop(server) == 0
    assert time.monotonic() - begun_s < 10
    assert server.log_events()[-1]["spans_flushed"] is False


@pytest.mark.parametrize("body", [b"{", b'{"prompt": "a", "model": "other"}'])
async def test_what_is_no_request_for_the_model_has_no_model(tmp_path: Path, body: bytes) -> None:
    """Unreadable bodies leave a span, but not one that counts as a request of the model."""
    async with traced(tmp_path) as (server, collector):
        assert await post(server, body) in (400, 404)
    (span,) = collector.named("POST /v1/completions")
    assert "gen_ai.request.model" not in attributes(list(span.attributes))
