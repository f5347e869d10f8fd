"""The benchmark of the agent sees what is wrong: a value, a span, a slope."""

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from tests.bench.agent_backend import Backend
from tests.bench.agent_cost import Scraped, Slice, over_peer
from tests.bench.agent_memory import slope_mb_per_h
from tests.bench.agent_process import FailedError, series
from tests.bench.agent_spans import BATCH, Requests
from tests.bench.agent_values import Page
from tests.bench.bench_agent import arrived

PAGE = """# TYPE a counter
a_total{id="/x",name="say \\"a}b\\""} 5 # {trace_id="1"} 2 3.0
a_total{id="/y"} 1e3
b 7
# EOF
"""


def test_page_is_read() -> None:
    """Labels with braces and quotes, exemplars, names without labels."""
    page = Page(PAGE)
    assert page.by("a_total", "id") == {"/x": 5, "/y": 1000}
    assert page.values("a_total", id="/x", name='say \\"a}b\\"') == [5]
    assert page.one("b") == 7
    assert series(PAGE) == 3
    with pytest.raises(FailedError, match="2 series"):
        page.one("a_total")
    with pytest.raises(FailedError, match="not a line"):
        Page("a b c d")


def sent_to(back: Backend, requests: Requests) -> set[bytes]:
    """Hand a batch over, enriched as the agent does it; return the spans' ids."""
    body, ids = requests.batch()
    request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        resource.resource.attributes.add(key="tailcause.cgroup.path").value.string_value = "/x"
    back.take("/v1/traces", request.SerializeToString())
    return set(ids)


def test_spans_have_ids_of_their_own_and_parents() -> None:
    """Requests of five spans each: one root and four children in a trace."""
    body, ids = Requests(1).batch()
    [resource] = trace_service_pb2.ExportTraceServiceRequest.FromString(body).resource_spans
    spans = resource.scope_spans[0].spans
    assert len(set(ids)) == BATCH == len(spans)
    roots = {span.span_id: span.trace_id for span in spans if not span.parent_span_id}
    assert len(roots) == BATCH / 5
    assert all(roots[span.parent_span_id] == span.trace_id for span in spans if span.parent_span_id)


def test_every_span_is_missed_that_does_not_arrive_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is missing, that comes twice, or that has no cgroup fails the benchmark."""
    monkeypatch.setattr("tests.bench.bench_agent.PATIENCE_S", 0.1)
    requests, back = Requests(1), Backend()
    sent = sent_to(back, requests)
    arrived(back, sent)
    with pytest.raises(FailedError, match="1 are missing"):
        arrived(back, {*sent, b"other"})
    back.span_ids[next(iter(sent))] += 1
    back.enriched += 1
    with pytest.raises(FailedError, match="1 came twice"):
        arrived(back, sent)
    bare = Backend()
    body, ids = requests.batch()
    bare.take("/v1/traces", body)
    with pytest.raises(FailedError, match="200 have no cgroup"):
        arrived(bare, set(ids))


def test_slope_is_that_of_the_hours_that_stand_for_it() -> None:
    """Ten minutes at twenty times the pace are 200 minutes; the first quarter does not count."""
    level = [(float(second), 50e6 + (30e6 if second < 150 else 0)) for second in range(600)]
    assert slope_mb_per_h(level).median == 0
    ramp = [(second, value + 1e3 * second) for second, value in level]
    assert slope_mb_per_h(ramp).median == pytest.approx(1e3 * 3600 / 1e6 / 20, rel=0.01)
    found = slope_mb_per_h(ramp)
    assert found.low <= found.median <= found.high


def test_cost_is_compared_by_series() -> None:
    """Twice the CPU for ten times the series is a fifth."""
    rounds = [Scraped(Slice(1.0, 0.2), Slice(1.0, 0.1), 1000, 100)] * 3
    assert over_peer(rounds).median == pytest.approx(0.2)
