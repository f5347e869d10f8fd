"""The curve of one thread's waits: arithmetic, wrap-around, the end that moves, what is taken back."""

import struct
from collections.abc import Mapping
from typing import Any

import pytest

from ebpf.history import CAPACITY, KEPT_NS, History
from ebpf.layout import WAITS, Wait

MS = 1_000_000
S = 1_000_000_000


def waits(**milliseconds: float) -> bytes:
    """Return cumulative waits as a sample has them, from milliseconds by name."""
    values = [0] * WAITS
    for name, value in milliseconds.items():
        values[Wait[name.upper()]] = int(value * 1000) % 2**32
    return struct.pack(f"={WAITS}I", *values)


def milliseconds(history: History, start_ns: int, end_ns: int) -> Mapping[str, Any]:
    """Return what is not 0 of an interval."""
    found, _ = history.between(start_ns, end_ns)
    return {Wait(i).name.lower(): pytest.approx(us / 1e3) for i, us in enumerate(found) if us}


def started(current: Wait = Wait.CPU, at_ns: int = 0) -> History:
    """Begin a history at 0."""
    return History(at_ns, waits(), current, at_ns, asleep=False)


def test_what_goes_on_counts_up_to_where_it_was_seen() -> None:
    """A thread that does one thing needs one point."""
    history = started(Wait.LOCK)
    history.seen_ns = 700 * MS

    assert milliseconds(history, 100 * MS, 300 * MS) == {"lock": 200}
    assert history.between(0, 900 * MS)[1] == 700 * MS
    assert len(history) == 1


def test_a_slot_of_many_things_is_a_straight_line() -> None:
    """Half of a mixed slot holds half of each."""
    history = started()
    history.add(100 * MS, waits(cpu=60, sleep=40), Wait.CPU, 100 * MS, asleep=False)

    assert milliseconds(history, 0, 50 * MS) == {"cpu": 30, "sleep": 20}


def test_long_wait_ends_where_the_work_began() -> None:
    """Idle for 430 ms, then on the CPU: the edge is exact, although samples are 100 ms apart."""
    history = started(Wait.NETWORK)
    history.seen_ns = 400 * MS
    history.add(430 * MS, waits(network=430), Wait.CPU, 500 * MS, asleep=False)

    assert milliseconds(history, 430 * MS, 500 * MS) == {"cpu": 70}
    assert milliseconds(history, 330 * MS, 430 * MS) == {"network": 100}


def test_wait_for_the_cpu_comes_after_the_sleep() -> None:
    """A thread that was woken at 300 ms and ran at 480 has waited in the run queue in between."""
    history = started(Wait.SLEEP)
    history.seen_ns = 400 * MS
    history.add(480 * MS, waits(sleep=300, runqueue=180), Wait.CPU, 500 * MS, asleep=False)

    assert milliseconds(history, 100 * MS, 300 * MS) == {"sleep": 200}
    assert milliseconds(history, 300 * MS, 480 * MS) == {"runqueue": 180}


def test_queue_time_of_a_thread_seen_asleep_is_taken_back() -> None:
    """The scheduler says it was queued since 100 ms, but it was seen asleep at 900; later samples are moved as well."""
    history = History(0, waits(), Wait.POLL, 0, asleep=True)
    history.seen_ns = 900 * MS
    history.add(950 * MS, waits(poll=100, runqueue=850), Wait.CPU, 960 * MS, asleep=False)
    history.add(
        1200 * MS, waits(poll=100, runqueue=850, cpu=250), Wait.CPU, 1200 * MS, asleep=False
    )

    assert milliseconds(history, 0, 950 * MS) == {"poll": 900, "runqueue": 50}
    assert milliseconds(history, 950 * MS, 1200 * MS) == {"cpu": 250}


def test_counters_wrap_unnoticed() -> None:
    """They are kept modulo 71 minutes."""
    history = History(S, waits(cpu=4_294_967), Wait.CPU, S, asleep=False)
    after = waits(cpu=4_294_967 + 150, sleep=50)
    history.add(S + 200 * MS, after, Wait.CPU, S + 200 * MS, asleep=False)

    assert milliseconds(history, S, S + 200 * MS) == {"cpu": 150, "sleep": 50}


def test_ring_wraps_and_keeps_the_newest() -> None:
    """After 150 s of changes every 100 ms, the last 120 s are there, exactly."""
    history = started()
    for slot in range(1, CAPACITY + 301):
        half = slot * 50.0
        history.add(
            slot * 100 * MS, waits(cpu=half, sleep=half), Wait.CPU, slot * 100 * MS, asleep=False
        )

    assert len(history) == CAPACITY
    assert history.start_ns >= 30 * S
    assert milliseconds(history, 40 * S, 140 * S) == {"cpu": 50_000, "sleep": 50_000}


def test_hours_of_one_thing_are_cut_to_what_is_kept() -> None:
    """Three hours asleep (longer than the counters hold) and a moment of work."""
    hours = 3 * 3600 * S
    history = started(Wait.SLEEP)
    history.seen_ns = hours
    history.add(
        hours + 50 * MS, waits(sleep=hours // MS, cpu=50), Wait.SLEEP, hours + 60 * MS, asleep=True
    )

    assert history.start_ns >= hours - KEPT_NS
    assert milliseconds(history, hours - 10 * S, hours + 50 * MS) == {"sleep": 10_000, "cpu": 50}


def test_samples_in_between_cost_no_points() -> None:
    """Ten times as many samples need no more than twice the points, and lose nothing."""
    history = started()
    for step in range(1, 1001):
        at_ns = step * 10 * MS
        history.add(at_ns, waits(cpu=step * 6, sleep=step * 4), Wait.CPU, at_ns, asleep=False)

    assert len(history) <= 10 * S // (160 * MS) * 2 + 2
    assert milliseconds(history, 0, 10 * S) == {"cpu": 6000, "sleep": 4000}


def test_interval_outside_is_unknown() -> None:
    """Before the first and after the last sample nothing is claimed."""
    history = started(at_ns=10 * S)
    history.seen_ns = 11 * S

    assert history.between(0, 9 * S) == ([0.0] * WAITS, 0)
    assert history.between(12 * S, 13 * S) == ([0.0] * WAITS, 0)
