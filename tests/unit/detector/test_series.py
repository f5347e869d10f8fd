"""From request spans to windows."""

from msgspec.structs import replace

from agent.telemetry.model import SpanKind
from detector.config import SeriesConfig
from detector.model import Signal
from detector.series import Group, Windower, is_request, latencies_s
from tests.unit.detector.conftest import RequestMaker

WHOLE = Group("chat-api", "tiny", "")
REPLICA = Group("chat-api", "tiny", "chat-api-0")


def test_time_per_output_token_leaves_out_the_first(request_span: RequestMaker) -> None:
    """(1.0 s - 0.4 s) over 10 further tokens."""
    found = latencies_s(request_span(100.0, 1.0, tokens=11))
    assert {signal: round(value, 9) for signal, value in found.items()} == {
        Signal.E2E: 1.0,
        Signal.TTFT: 0.4,
        Signal.TPOT: 0.06,
    }


def test_one_token_has_no_time_per_output_token(request_span: RequestMaker) -> None:
    """There is nothing to divide by."""
    assert Signal.TPOT not in latencies_s(request_span(100.0, 1.0, tokens=1))


def test_only_server_spans_with_a_model_are_requests(request_span: RequestMaker) -> None:
    """Client spans and servers of other things are not."""
    span = request_span(100.0, 1.0)
    assert is_request(span)
    assert not is_request(replace(span, kind=SpanKind.CLIENT))
    assert not is_request(replace(span, attributes={}))


def test_a_window_holds_what_ended_in_it(request_span: RequestMaker) -> None:
    """Windows are aligned; a request that began before belongs to where it ended."""
    windower = Windower(SeriesConfig())
    windower.add([request_span(101.9, 5.0), request_span(102.0, 0.1)])
    windows = windower.close(105.1)
    assert [(w.start_unix_s, w.end_unix_s) for w in windows] == [(100.0, 102.0), (102.0, 104.0)]
    assert [len(w.buckets[WHOLE].values_s[Signal.E2E]) for w in windows] == [1, 1]


def test_every_request_counts_for_its_replica_and_for_all(request_span: RequestMaker) -> None:
    """Two groups per request."""
    windower = Windower(SeriesConfig())
    windower.add([request_span(100.5, 0.1)])
    assert set(windower.close(103.0)[0].buckets) == {WHOLE, REPLICA}


def test_a_window_closes_only_after_its_grace(request_span: RequestMaker) -> None:
    """Late spans get one more second."""
    windower = Windower(SeriesConfig())
    windower.add([request_span(100.5, 0.1)])
    assert windower.close(102.9) == []
    assert len(windower.close(103.0)) == 1


def test_late_requests_are_counted(request_span: RequestMaker) -> None:
    """After the window closed there is no way back."""
    windower = Windower(SeriesConfig())
    windower.add([request_span(100.5, 0.1)])
    windower.close(103.0)
    windower.add([request_span(101.0, 0.1, number=2)])
    assert windower.dropped == {"late_requests": 1}


def test_failures_are_no_latencies(request_span: RequestMaker) -> None:
    """A quick 429 must not make the service look quick."""
    windower = Windower(SeriesConfig())
    windower.add([request_span(100.5, 0.001, status=429), request_span(100.6, 0.2)])
    bucket = windower.close(103.0)[0].buckets[WHOLE]
    assert (bucket.failures, bucket.values_s[Signal.E2E]) == (1, [0.2])


def test_a_silent_service_still_has_a_bucket(request_span: RequestMaker) -> None:
    """No finished request is something to know, not something to skip."""
    windower = Windower(SeriesConfig())
    windower.add([request_span(100.5, 0.1)])
    silent = windower.close(105.0)[1]
    assert dict(silent.buckets[WHOLE].values_s) == {}


def test_an_idle_group_is_retired(request_span: RequestMaker) -> None:
    """Its place is free for others."""
    windower = Windower(SeriesConfig(idle_windows=3))
    windower.add([request_span(100.5, 0.1)])
    windows = windower.close(109.0)
    assert [set(window.retired) for window in windows] == [set(), set(), set(), {WHOLE, REPLICA}]
    assert windows[-1].buckets == {}


def test_groups_beyond_the_bound_are_counted() -> None:
    """Unbounded names cost a counter, not memory."""
    windower = Windower(SeriesConfig(max_groups=4))
    windower.add([RequestMaker(service=f"s{i}")(100.5, 0.1) for i in range(5)])
    assert windower.dropped["overflow_requests"] == 6
    assert len(windower.close(103.0)[0].buckets) == 4
