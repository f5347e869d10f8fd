"""A server that begins anew is seen, and never makes a value fall or jump."""

from collections import Counter

import pytest

from agent.servers import table
from agent.servers.normalise import Normaliser
from agent.servers.slow import WINDOW_S
from agent.servers.vllm import VLLM
from agent.telemetry.keys import SERVER_LATENCY, SERVER_THRESHOLD
from agent.telemetry.model import Sample

T0 = 1_796_100_000_000_000_000
SECOND = 1_000_000_000


def reader(thresholds_s: tuple[float, ...] = ()) -> Normaliser:
    """Return one that has read nothing yet."""
    return Normaliser(VLLM, {}, Counter(), thresholds_s)


def tokens(*values: float, created_s: float = 0.0) -> str:
    """Return a page on which engines count tokens."""
    lines = []
    for engine, value in enumerate(values):
        lines.append(f'vllm:prompt_tokens_total{{shard="{engine}"}} {value}')
        if created_s:
            lines.append(f'vllm:prompt_tokens_created{{shard="{engine}"}} {created_s}')
    return "\n".join(lines) + "\n"


def first(samples: list[Sample]) -> tuple[float, int]:
    """Return value and start of the only sample."""
    (sample,) = samples
    return sample.value, sample.start_unix_ns


def test_counter_goes_on() -> None:
    """As long as it rises, a counter's start stays."""
    one = reader()
    assert first(one.samples(tokens(5), T0)) == (5, 0)
    assert first(one.samples(tokens(9), T0 + SECOND)) == (9, 0)


def test_counter_that_falls() -> None:
    """A lower value is a new beginning, after the reading before."""
    one = reader()
    one.samples(tokens(1000), T0)
    assert first(one.samples(tokens(7), T0 + SECOND)) == (7, T0)
    assert first(one.samples(tokens(8), T0 + 2 * SECOND)) == (8, T0)


def test_reset_that_has_caught_up() -> None:
    """A restarted server that counts higher than before is told by when it began."""
    one = reader()
    one.samples(tokens(10, created_s=T0 / 1e9 - 100), T0)
    created_s = T0 / 1e9 + 0.5
    value, start = first(one.samples(tokens(25, created_s=created_s), T0 + SECOND))
    assert value == 25
    assert start == pytest.approx(T0 + SECOND / 2, abs=1000)


def test_process_start_tells_as_well() -> None:
    """Where counters do not say when they began, the process does."""
    one = reader()
    page = "process_start_time_seconds {}\n{}"
    one.samples(page.format(T0 / 1e9 - 100, tokens(10)), T0)
    value, start = first(one.samples(page.format(T0 / 1e9 + 0.5, tokens(25)), T0 + SECOND))
    assert value == 25
    assert start > T0


@pytest.mark.parametrize("created_s", [-1.0, 1e300, T0 / 1e9 + 3600])
def test_start_that_cannot_be(created_s: float) -> None:
    """A beginning that is not in the past is no beginning."""
    assert first(reader().samples(tokens(5, created_s=created_s), T0)) == (5, 0)


def test_one_of_two_begins_anew() -> None:
    """When one of the added series restarts, what the other counted before is not counted again."""
    one = reader()
    assert first(one.samples(tokens(1000, 1000), T0)) == (2000, 0)
    assert first(one.samples(tokens(1003, 2), T0 + SECOND)) == (5, T0)
    assert first(one.samples(tokens(1004, 3), T0 + 2 * SECOND)) == (7, T0)


def test_one_of_two_goes() -> None:
    """A worker that has ended leaves its count; the sum does not fall."""
    one = reader()
    one.samples(tokens(1000, 500), T0)
    assert first(one.samples(tokens(1001), T0 + SECOND)) == (1501, 0)
    assert first(one.samples(tokens(1001, 3), T0 + 2 * SECOND)) == (3, T0 + SECOND)


def test_series_that_appears() -> None:
    """A series that was not there at the reading before began after it."""
    one = reader()
    one.samples("vllm:num_requests_running 1\n", T0)
    assert first(one.samples(tokens(4), T0 + SECOND)) == (4, T0)


def test_page_that_was_away() -> None:
    """A page that lacks a series once does not make it begin anew."""
    one = reader()
    one.samples(tokens(1000), T0)
    assert one.samples("", T0 + SECOND) == []
    assert first(one.samples(tokens(1002), T0 + 2 * SECOND)) == (1002, 0)


def latencies(at_100ms: int, at_1s: int, above: int, bounds: str = "0.1 1.0") -> str:
    """Return a page with a histogram of times to first token."""
    low, high = bounds.split()
    name = "vllm:time_to_first_token_seconds"
    total = at_100ms + at_1s + above
    return (
        f'{name}_bucket{{le="{low}"}} {at_100ms}\n{name}_bucket{{le="{high}"}} {at_100ms + at_1s}\n'
        f'{name}_bucket{{le="+Inf"}} {total}\n{name}_count {total}\n{name}_sum {total * 0.5}\n'
    )


def test_histogram_resets() -> None:
    """A histogram begins anew as a whole, with counts that are its own."""
    one = reader()
    one.samples(latencies(50, 40, 10), T0)
    found = [s for s in one.samples(latencies(2, 1, 0), T0 + SECOND) if s.metric == table.TTFT]
    assert first(found) == (3, T0)
    assert found[0].explicit is not None
    assert (found[0].explicit.counts, found[0].explicit.sum) == ((2, 1, 0), 1.5)


def test_bounds_change() -> None:
    """Other bounds are another server's; nothing is taken from one to the other."""
    one = reader()
    one.samples(latencies(50, 40, 10), T0)
    other = latencies(60, 50, 20).replace(
        'vllm:time_to_first_token_seconds_bucket{le="1.0"}', 'x{le="1.0"}'
    )
    found = [s for s in one.samples(other, T0 + SECOND) if s.metric == table.TTFT]
    assert first(found) == (130, T0)
    assert found[0].explicit is not None
    assert found[0].explicit.counts == (60, 70)


def shares(samples: list[Sample]) -> dict[object, float]:
    """Return the slow shares by threshold."""
    found = [s for s in samples if s.metric == "tailcause.server.slow_share"]
    assert {s.attributes[SERVER_LATENCY] for s in found} <= {"first_token"}
    return {s.attributes[SERVER_THRESHOLD]: s.value for s in found}


def test_slow_share_of_a_window() -> None:
    """The share counts the values between two readings, at bounds of the server alone, exactly."""
    one = reader()
    assert shares(one.samples(latencies(100, 0, 0), T0)) == {}
    found = shares(one.samples(latencies(106, 3, 1), T0 + 5 * SECOND))
    assert found == {0.1: pytest.approx(0.4), 1.0: pytest.approx(0.1)}


def test_slow_share_needs_values() -> None:
    """Without a request there is no share, and none is made up for a bound that the server lacks."""
    one = reader()
    one.samples(latencies(5, 0, 0), T0)
    assert shares(one.samples(latencies(5, 0, 0), T0 + SECOND)) == {}
    assert set(shares(one.samples(latencies(6, 0, 0), T0 + 2 * SECOND))) == {0.1, 1.0}


def test_slow_share_forgets() -> None:
    """What is older than half a minute does not count any more."""
    one = reader()
    one.samples(latencies(0, 0, 0), T0)
    assert shares(one.samples(latencies(0, 0, 10), T0 + SECOND))[1.0] == 1
    after = T0 + SECOND + round(WINDOW_S * SECOND)
    one.samples(latencies(5, 0, 10), after)
    assert shares(one.samples(latencies(10, 0, 10), after + SECOND))[1.0] == 0


def test_slow_share_after_a_reset() -> None:
    """The first reading after a restart has no window; the next has one."""
    one = reader()
    one.samples(latencies(500, 0, 0), T0)
    assert shares(one.samples(latencies(3, 0, 1), T0 + SECOND)) == {}
    assert shares(one.samples(latencies(3, 0, 2), T0 + 2 * SECOND))[1.0] == 1


def test_own_thresholds() -> None:
    """Thresholds of the configuration count where they are bounds; between bounds there is no answer."""
    one = reader((1.0, 0.7))
    one.samples(latencies(0, 0, 0), T0)
    assert shares(one.samples(latencies(1, 0, 1), T0 + SECOND)) == {1.0: 0.5}
