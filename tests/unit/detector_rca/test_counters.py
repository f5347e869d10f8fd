"""Counters between two instants: interpolation, resets, and what was not observed."""

import pytest

from agent.telemetry.model import Point
from detector.rca.counters import Counters, Track


def points(
    values: list[tuple[float, float]], cumulative: bool = True, **labels: str
) -> list[Point]:
    return [
        Point("m", value, int(time_s * 1e9), labels, {}, cumulative) for time_s, value in values
    ]


def test_increase_interpolates_between_readings() -> None:
    """An interval whose edges fall between readings gets its part of the growth."""
    track = Track((0.0, 1.0, 2.0), (0.0, 10.0, 20.0))
    assert track.increase(0.5, 1.5) == pytest.approx(10.0)


def test_increase_carries_on_over_a_reset() -> None:
    """A counter that starts again at zero keeps growing."""
    track = Counters(points([(0, 5), (1, 8), (2, 2), (3, 4)])).one("m", {})
    assert track is not None
    assert track.increase(0, 3) == pytest.approx(7.0)


def test_gauge_that_falls_is_no_reset() -> None:
    """Gauges are left as they are."""
    track = Counters(points([(0, 5), (1, 3)], cumulative=False)).one("m", {})
    assert track is not None
    assert track.values == (5, 3)


def test_increase_is_unknown_when_mostly_unobserved() -> None:
    """Less than half of the interval observed is no statement."""
    assert Track((0.0, 1.0), (0.0, 1.0)).increase(0.0, 3.0) is None


def test_rate_refers_to_the_observed_part() -> None:
    """A rate over a partly observed interval is not diluted by what was not seen."""
    assert Track((0.0, 6.0), (0.0, 12.0)).rate(0.0, 10.0) == pytest.approx(2.0)


def test_mean_of_nothing_is_unknown() -> None:
    """A gauge without values in the interval has no mean, not zero."""
    assert Track((0.0,), (1.0,)).mean(5.0, 6.0) is None


def test_readings_out_of_order_and_repeated() -> None:
    """Points may arrive in any order and twice."""
    track = Counters(points([(2, 20), (0, 0), (1, 10), (1, 10)])).one("m", {})
    assert track == Track((0.0, 1.0, 2.0), (0, 10, 20))


def test_ambiguous_series_is_none() -> None:
    """Two series that both match are not guessed between."""
    found = Counters(points([(0, 1)], a="x") + points([(0, 1)], a="y"))
    assert found.one("m", {}) is None
    assert found.one("m", {"a": "y"}) is not None


def test_resource_labels_count_too() -> None:
    """A label may stand on the resource."""
    found = Counters([Point("m", 1.0, 0, {}, {"host.name": "n"})])
    assert len(found.find("m", {"host.name": "n"})) == 1
