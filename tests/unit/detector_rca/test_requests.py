"""Own time of operations from spans, however odd the spans are."""

import pytest
from msgspec.structs import replace

from agent.telemetry import keys
from agent.telemetry.model import Attributes, Span, SpanKind, SpanStatus
from detector.config import SeriesConfig
from detector.rca.requests import Request, read_requests
from detector.series import Group, Windower

RESOURCE: Attributes = {keys.SERVICE_NAME: "chat", keys.REVISION: "abc"}


def span(
    span_id: str,
    parent: str,
    start_ms: int,
    end_ms: int,
    *,
    name: str = "",
    resource: Attributes = RESOURCE,
) -> Span:
    return Span(
        "t",
        span_id,
        parent,
        name or span_id,
        SpanKind.INTERNAL,
        start_ms * 10**6,
        end_ms * 10**6,
        resource=resource,
    )


def root(start_ms: int = 0, end_ms: int = 100, status: int = 200, parent: str = "") -> Span:
    attributes: Attributes = {keys.GEN_AI_MODEL: "tiny", "http.response.status_code": status}
    return Span(
        "t", "root", parent, "POST", SpanKind.SERVER, start_ms * 10**6, end_ms * 10**6, SpanStatus.UNSET, attributes,
        (), RESOURCE,
    )  # fmt: skip


def read(*spans: Span) -> Request:
    return read_requests(spans, "chat", "tiny")[0]


def rounded(request: Request) -> dict[str, float]:
    return {name: round(seconds, 6) for name, seconds in request.operations.items()}


def test_own_time_is_what_children_leave() -> None:
    """The root's own time is its duration less its children's."""
    assert rounded(read(root(), span("a", "root", 10, 40), span("b", "root", 50, 60))) == {
        "POST": 0.06,
        "a": 0.03,
        "b": 0.01,
    }


def test_overlapping_children_count_once() -> None:
    """Two children at the same time cover their union."""
    assert rounded(read(root(), span("a", "root", 10, 40), span("b", "root", 20, 50)))[
        "POST"
    ] == pytest.approx(0.06)


def test_children_outside_of_the_parent_are_clipped() -> None:
    """A child that ends after its parent does not make the own time negative."""
    assert rounded(read(root(), span("a", "root", 90, 500)))["POST"] == pytest.approx(0.09)


def test_grandchildren_count_for_their_parent() -> None:
    """Own time goes down the tree."""
    assert rounded(read(root(), span("a", "root", 0, 50), span("b", "a", 10, 30)))[
        "a"
    ] == pytest.approx(0.03)


def test_a_cycle_of_parents_ends() -> None:
    """Spans that name each other as parents are read once."""
    found = read(root(parent="a"), span("a", "root", 0, 50))
    assert sorted(found.operations) == ["POST", "a"]


def test_same_operation_twice_adds_up() -> None:
    """Repeated operations of one request are summed."""
    found = read(
        root(), span("a", "root", 0, 10, name="sql"), span("b", "root", 20, 40, name="sql")
    )
    assert rounded(found)["sql"] == pytest.approx(0.03)


def test_other_services_are_named() -> None:
    """An operation of a called service carries the service's name."""
    other: Attributes = {keys.SERVICE_NAME: "vectors"}
    assert (
        "vectors: search"
        in read(root(), span("a", "root", 0, 50, name="search", resource=other)).operations
    )


def test_failed_requests_are_marked() -> None:
    """A 429 is a failure, not a fast request."""
    assert read(root(status=429)).failed
    assert not read(root()).failed


def test_other_models_are_left_out() -> None:
    """Only the incident's service and model count."""
    assert read_requests([root()], "chat", "other") == []
    assert read_requests([root()], "search", "tiny") == []


@pytest.mark.parametrize(
    ("code", "status", "failed"),
    [
        (200, SpanStatus.UNSET, False),
        (200, SpanStatus.ERROR, True),
        (429, SpanStatus.UNSET, True),
        (500.0, SpanStatus.UNSET, True),
        (None, SpanStatus.OK, False),
    ],
)
def test_what_failed_for_the_windows_failed_for_the_analysis(
    code: float | None, status: SpanStatus, failed: bool
) -> None:
    """One rule: a request that was no latency when the incident was found is none when it is explained."""
    attributes = {keys.GEN_AI_MODEL: "tiny"} | ({"http.response.status_code": code} if code else {})
    request = replace(root(), status=status, attributes=attributes)
    windower = Windower(SeriesConfig())
    windower.add([request])
    [window] = windower.close(3.0)
    assert window.buckets[Group("chat", "tiny", "")].failures == failed
    assert read(request).failed == failed
