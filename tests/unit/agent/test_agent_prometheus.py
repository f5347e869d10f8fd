"""A real Prometheus scrapes the agent, and everything can be asked for in PromQL."""

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from agent.exporters.exposition import render, wants_openmetrics
from agent.exporters.families import families
from agent.telemetry.model import Buckets, Exemplar, ExplicitBuckets, Sample
from tests.support.prometheus_server import BINARY, Prometheus, scraping
from tests.support.running_agent import agent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CURRENT = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


def parsed(samples: list[Sample]) -> list[Family]:
    """Return the families of OpenMetrics text, without the resource, read by the client library."""
    text = render(samples, {}, openmetrics=True).decode()
    read = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return [family for family in read if family.name != "target"]


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (CURRENT, True),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", True),
        ("application/openmetrics-text;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", True),
        ("", False),
        ("*/*", False),
        ("text/html,*/*;q=0.8", False),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        ("text/plain,application/openmetrics-text;q=0.5", False),
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text;version=1.0.0;q=0", False),
        ("application/openmetrics-text;q=x", False),
        (";;q,,=", False),
    ],
)
def test_the_scraper_chooses(accept: str, *, expected: bool) -> None:
    """OpenMetrics is given to those who prefer it, and no one else."""
    assert wants_openmetrics(accept) is expected


def request_histogram(*exemplars: Exemplar) -> Sample:
    """Return a histogram of 4 values with bounds 0.1 and 1."""
    return Sample(
        "gen_ai.server.request.duration",
        4,
        1,
        {"service.name": 'a "b"\\\n'},
        explicit=ExplicitBuckets((0.1, 1.0), (1, 2, 1), 5.5, exemplars),
    )


def exemplar(value: float, at_s: float) -> Exemplar:
    """Return an exemplar."""
    return Exemplar(value, round(at_s * 1e9), TRACE, SPAN)


def test_exemplars_lie_on_their_buckets() -> None:
    """Each bucket bears its latest exemplar, with trace, value and time; labels survive any character."""
    sample = request_histogram(exemplar(0.7, 5), exemplar(1.0, 9.5), exemplar(30, 7))
    [family] = parsed([sample])
    found = {
        one.labels["le"]: (
            one.exemplar.labels["trace_id"],
            one.exemplar.value,
            float(one.exemplar.timestamp or 0),
        )
        for one in family.samples
        if one.exemplar
    }
    assert found == {"1.0": (TRACE, 1.0, 9.5), "+Inf": (TRACE, 30, 7)}
    assert {one.labels["service_name"] for one in family.samples} == {'a "b"\\\n'}
    assert (family.unit, family.type) == ("seconds", "histogram")


def test_the_classic_format_has_no_exemplars() -> None:
    """A parser of the old format would refuse them."""
    lines = render([request_histogram(exemplar(0.7, 5))], {}).decode().splitlines()
    assert [line for line in lines if " # " in line] == []


def test_buckets_grow() -> None:
    """Buckets are cumulative, end with +Inf, and agree with the count, in both kinds."""
    exponential = Sample("tailcause.runqueue.delay", 12, 9, {}, 5, Buckets(-3, (4, 5, 1), 2, 1.5))
    for sample in (request_histogram(), exponential):
        [family] = [one for one in families([sample], {}) if one.type == "histogram"]
        counts = [row.value for row in family.rows if row.suffix == "_bucket"]
        assert counts == sorted(counts)
        [total] = [row.value for row in family.rows if row.suffix == "_count"]
        assert counts[-1] == total == sample.value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e300, -0.1, 2**60])
def test_every_number_is_read_back(value: float) -> None:
    """Numbers of any kind survive the text."""
    [family] = parsed([Sample("process.memory.usage", value, 1)])
    read = [sample.value for sample in family.samples]
    assert [repr(float(one)) for one in read] == [repr(float(value))]


def request_span() -> dict[str, Any]:
    """Return OTLP/JSON of one request of 3 s with its first token after 0.2 s."""
    end = time.time_ns()
    values: dict[str, dict[str, Any]] = {
        "gen_ai.operation.name": {"stringValue": "chat"},
        "gen_ai.request.model": {"stringValue": "tiny"},
        "gen_ai.latency.time_to_first_token": {"doubleValue": 0.2},
    }
    span = {
        "traceId": TRACE,
        "spanId": SPAN,
        "name": "chat tiny",
        "kind": 2,
        "startTimeUnixNano": str(end - 3_000_000_000),
        "endTimeUnixNano": str(end),
        "attributes": [{"key": key, "value": value} for key, value in values.items()],
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "chat-api"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}


async def eventually(server: Prometheus, promql: str) -> list[dict[str, Any]]:
    """Return the result of a query once there is one."""
    async with asyncio.timeout(60):
        while not (result := await server.query(promql)):  # noqa: ASYNC110  it is another process's
            await asyncio.sleep(0.2)
        return result


@pytest.mark.skipif(BINARY is None, reason="Debian's prometheus is not installed")
async def test_prometheus_reads_it_back(tmp_path: Path) -> None:
    """Counters, histograms, units and the exemplar that leads to a trace are there after a scrape."""
    async with agent() as running, aiohttp.ClientSession() as session:
        async with session.post(f"{running.otlp}/v1/traces", json=request_span()) as answer:
            assert answer.status == 200
        target = running.metrics.removeprefix("http://").removesuffix("/metrics")
        async with scraping(target, tmp_path) as server:
            duration = "gen_ai_server_request_duration_seconds"
            [count] = await eventually(server, f'{duration}_count{{service_name="chat-api"}}')
            assert count["value"][1] == "1"
            quantile = await server.query(f"histogram_quantile(0.99, {duration}_bucket)")
            assert 2.56 <= float(quantile[0]["value"][1]) <= 5.12
            [exemplars] = await server.exemplars(f"{duration}_bucket")
            assert exemplars["seriesLabels"]["service_name"] == "chat-api"
            assert [one["labels"] for one in exemplars["exemplars"]] == [
                {"trace_id": TRACE, "span_id": SPAN}
            ]
            await eventually(server, 'system_cpu_time_seconds_total{cpu_mode="user"} > 0')
            [up] = await server.query("up")
            assert up["value"][1] == "1"
            [info] = await eventually(server, "target_info")
            assert info["metric"]["service_name"] == "tailcause-agent"
            metadata = await server.get("targets/metadata", metric="system_cpu_time_seconds")
            assert [(one["type"], one["unit"]) for one in metadata] == [("counter", "seconds")]
