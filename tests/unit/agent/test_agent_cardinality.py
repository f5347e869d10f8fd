"""Above its bound a metric's series become one, which adds up truly and says how many it stands for."""

import pytest

from agent.cardinality import Cardinality
from agent.pipeline import Board
from agent.telemetry.keys import CGROUP, METRIC, OVERFLOW
from agent.telemetry.model import Buckets, Sample

COUNTER, LEVEL, GAUGE = "container.cpu.time", "container.memory.usage", "tailcause.signal.age"


def series(metric: str, values: dict[str, float]) -> list[Sample]:
    """Return one sample for each name."""
    return [Sample(metric, value, 7, {CGROUP: name}) for name, value in values.items()]


def named(samples: list[Sample], metric: str) -> dict[str, float]:
    """Return the values of a metric by name; the overflow series is `rest`."""
    return {
        "rest" if OVERFLOW in one.attributes else str(one.attributes[CGROUP]): one.value
        for one in samples
        if one.metric == metric
    }


def folded(samples: list[Sample]) -> dict[str, float]:
    """Return how many series were folded, by metric."""
    return {
        str(one.attributes[METRIC]): one.value
        for one in samples
        if one.metric == "tailcause.series.folded"
    }


def test_below_the_bound_nothing_changes() -> None:
    """As many series as may be are left as they are."""
    samples = series(COUNTER, {"a": 1, "b": 2, "c": 3})
    assert Cardinality(3).bound(samples) == samples


def test_the_first_keep_their_series() -> None:
    """Who was there first stays, whatever order they come in, as long as it is there."""
    bound = Cardinality(3)
    bound.bound(series(LEVEL, {"a": 1, "b": 2, "c": 3, "d": 4}))
    later = bound.bound(series(LEVEL, {"d": 4, "c": 3, "b": 2, "a": 1}))
    assert named(later, LEVEL) == {"a": 1, "b": 2, "rest": 7}
    without = bound.bound(series(LEVEL, {"d": 4, "c": 3, "b": 2, "e": 5}))
    assert named(without, LEVEL) == {"b": 2, "d": 4, "rest": 8}


def test_no_more_series_than_the_bound() -> None:
    """The overflow series is within the bound, and how many it stands for is told."""
    samples = Cardinality(10).bound(series(GAUGE, {str(n): n for n in range(1000)}))
    assert len(named(samples, GAUGE)) == 10
    assert folded(samples) == {GAUGE: 991}
    assert named(samples, GAUGE)["rest"] == 999


def test_counters_add_up_what_was_added() -> None:
    """Neither a new series nor one that ends nor one that begins again makes the sum jump."""
    bound = Cardinality(2)

    def rest(**values: float) -> float:
        return named(bound.bound(series(COUNTER, {"kept": 0, **values})), COUNTER)["rest"]

    assert rest(a=1000, b=500) == 0
    assert rest(a=1001, b=502) == 3
    assert rest(a=1002, b=502, late=9_999) == 4
    assert rest(b=503, late=10_000) == 6
    assert rest(b=2, late=10_000) == 6
    assert rest(b=3, late=10_000) == 7


def test_the_overflow_of_a_counter_begins_when_it_does() -> None:
    """Its start is the time since which it has added up."""
    bound = Cardinality(2)
    bound.bound(series(COUNTER, {"a": 1, "b": 2, "c": 3}))
    [rest] = [
        s
        for s in bound.bound(series(COUNTER, {"a": 1, "b": 2, "c": 4}))
        if s.value == 1 and OVERFLOW in s.attributes
    ]
    assert rest.start_unix_ns == 7


def test_histograms_of_the_others_are_left_out_and_counted() -> None:
    """No buckets are invented."""
    buckets = Buckets(-3, (1,), 0, 0.1)
    samples = [
        Sample("tailcause.runqueue.delay", 1, 7, {CGROUP: name}, 1, buckets) for name in "abcd"
    ]
    bounded = Cardinality(3).bound(samples)
    assert set(named(bounded, "tailcause.runqueue.delay")) == {"a", "b"}
    assert folded(bounded) == {"tailcause.runqueue.delay": 2}


def test_one_metric_does_not_take_anothers_room() -> None:
    """The bound is of each metric."""
    samples = series(LEVEL, {"a": 1, "b": 2}) + series(COUNTER, {str(n): n for n in range(9)})
    bounded = Cardinality(3).bound(samples)
    assert named(bounded, LEVEL) == {"a": 1, "b": 2}
    assert len(named(bounded, COUNTER)) == 3


@pytest.mark.parametrize("rounds", [50])
def test_what_is_remembered_is_bounded_by_what_is_there(rounds: int) -> None:
    """Churning series leave nothing behind."""
    bound = Cardinality(10)
    for number in range(rounds):
        bound.bound(series(COUNTER, {f"{number}-{n}": n for n in range(100)}))
    crowd = bound._crowds[COUNTER]
    assert (len(crowd.admitted), len(crowd.before)) == (9, 91)
    bound.bound(series(COUNTER, {"a": 1}))
    assert not bound._crowds


def test_every_exporter_sees_the_bound() -> None:
    """It is put on at the board, before anything leaves."""
    board = Board(max_series=3)
    board.put("cgroup", series(LEVEL, {str(n): 1 for n in range(9)}))
    assert len(named(board.snapshot(), LEVEL)) == 3
