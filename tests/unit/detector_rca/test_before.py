"""What stood before the onset is taken from readings that end clearly before it."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from agent.telemetry import keys
from agent.telemetry.model import Point
from detector.model import Evidence, Report
from detector.rca.case import open_case
from detector.rca.engine import analyse
from tests.support.scene import CGROUP, EPOCH_S, Scene, shifted, snapshot

QUOTA_AT_S = 60
LATE_S = 2.0
"""The onset is the edge of the first window out of band: by then the quota has been in force for up to a window."""


def reading(metric: str, second: int, value: float, *, cumulative: bool = True) -> Point:
    time_ns = int((EPOCH_S + second) * 1e9)
    labels = {keys.CGROUP: CGROUP}
    return Point(metric, value, time_ns, labels, {keys.HOST_NAME: "node-1"}, cumulative=cumulative)


def limited(step_s: int, usual_cpus: float | None) -> list[Point]:
    """Return what a cgroup reports, every `step_s`, whose limit is lowered to 0.6 CPUs at 60 s."""
    found = []
    for second in range(0, 75, step_s):
        on_s = max(second - QUOTA_AT_S, 0)
        cpus = 0.6 if second >= QUOTA_AT_S else usual_cpus
        if cpus is not None:
            found.append(reading("tailcause.cgroup.cpu.limit", second, cpus, cumulative=False))
        found.append(reading("tailcause.cgroup.cpu.cfs.periods", second, 10 * on_s))
        found.append(reading("tailcause.cgroup.cpu.cfs.throttled_periods", second, 9 * on_s))
    return found


def report(points: list[Point]) -> Report:
    """Analyse a throttling whose onset is dated a window late."""
    snap = shifted(snapshot(Scene(quota=0.6)), QUOTA_AT_S + LATE_S)
    return analyse(replace(snap, points=(*snap.points, *points)))


@pytest.fixture
def find() -> Callable[[Report, str], Evidence]:
    """Look an evidence of the first cause up by how it begins."""

    def found(report: Report, beginning: str) -> Evidence:
        [one] = [e for e in report.causes[0].evidence if e.statement.startswith(beginning)]
        return one

    return found


def test_a_new_limit_had_no_predecessor(find: Callable[[Report, str], Evidence]) -> None:
    """Readings of the new limit that lie just before the onset are not the old one."""
    limit = find(report(limited(1, None)), "CPU limit")
    assert limit.value == pytest.approx(0.6)
    assert limit.baseline is None
    assert limit.statement == "CPU limit; before the onset it had none"


@pytest.mark.parametrize("step_s", [1, 5, 10])
def test_a_lowered_limit_shows_the_old_one(
    step_s: int, find: Callable[[Report, str], Evidence]
) -> None:
    """However rarely it is read, the old limit is the whole of what was before."""
    assert find(report(limited(step_s, 2.0)), "CPU limit").baseline == pytest.approx(2.0)


@pytest.mark.parametrize("step_s", [1, 5, 10])
def test_periods_before_the_quota_are_not_hit(
    step_s: int, find: Callable[[Report, str], Evidence]
) -> None:
    """The first periods under the quota do not count as usual."""
    hit = find(report(limited(step_s, None)), "part of CFS periods")
    assert hit.value == pytest.approx(0.9)
    assert hit.baseline == 0.0


def test_throttled_time_before_is_none(find: Callable[[Report, str], Evidence]) -> None:
    """Neither does its throttled time, which is what the shares are made of."""
    assert find(report([]), "throttled since the onset").baseline == 0.0
    assert find(report([]), "part of wall time").baseline == 0.0


def test_a_short_baseline_keeps_its_earlier_half() -> None:
    """Readings as far apart as the baseline is long must not leave nothing of it."""
    case = open_case(snapshot(Scene()))
    usual = case.usual(step_s=600.0)
    assert usual.start_s == case.before.start_s
    assert usual.length_s == case.before.length_s / 2
