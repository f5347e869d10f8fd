"""Ranking on scenes whose truth is known; the rank of the true cause is what is asserted."""

import pytest

from detector.errors import AnalysisError
from detector.model import Report, Verdict
from detector.rca.engine import analyse
from tests.support.scene import (
    BYSTANDER,
    CGROUP,
    IDLE_CORE_NEIGHBOUR,
    NEIGHBOUR,
    NEW,
    Scene,
    snapshot,
    throttled_s,
)

SEEDS = range(5)


def explain(scene: Scene) -> Report:
    return analyse(snapshot(scene))


def first(report: Report) -> str:
    return report.causes[0].kind if report.causes else "none"


@pytest.mark.parametrize("seed", SEEDS)
def test_throttling_is_named_first(seed: int) -> None:
    """A CPU quota a little above the usual use is the first cause, on the server's own cgroup."""
    report = explain(Scene(seed=seed, quota=0.6))
    assert (report.verdict, first(report), report.causes[0].target) == (
        Verdict.FAULT,
        "cpu_throttling",
        CGROUP,
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("deployed_at_s", [44.0, 52.0, 68.0])
def test_harmless_deploy_does_not_take_the_blame(seed: int, deployed_at_s: float) -> None:
    """A revision that came seconds before or after a throttling is not the first cause, and small at most."""
    report = explain(
        Scene(seed=seed, quota=0.6, revision_at_s=deployed_at_s, bystander_throttled=0.8)
    )
    deploys = [cause.share for cause in report.causes if cause.kind == "deploy"]
    assert first(report) == "cpu_throttling"
    assert max(deploys) < 0.2


@pytest.mark.parametrize("seed", SEEDS)
def test_slow_revision_is_named_first(seed: int) -> None:
    """A revision with a slow look-up is the first cause and carries its SHA, bystander or not."""
    report = explain(Scene(seed=seed, revision_at_s=60.3, new_sql_s=0.085, bystander_throttled=0.8))
    assert (report.verdict, first(report), report.causes[0].target) == (
        Verdict.FAULT,
        "deploy",
        NEW,
    )
    assert report.operations[0].operation == "sql SELECT tenants"


@pytest.mark.parametrize("seed", SEEDS)
def test_slow_revision_is_found_without_metrics(seed: int) -> None:
    """Without an agent the revision is still found, and the report says what was not looked at."""
    report = explain(
        Scene(seed=seed, revision_at_s=60.3, new_sql_s=0.085, metrics=False, with_cgroup=False)
    )
    assert first(report) == "deploy"
    assert any("CFS throttling" in text for text in report.missing)
    assert any("pressure" in text for text in report.missing)


@pytest.mark.parametrize("seed", SEEDS)
def test_surge_is_demand(seed: int) -> None:
    """More traffic is called demand, not a fault."""
    report = explain(Scene(seed=seed, surge=2.2))
    assert (report.verdict, first(report)) == (Verdict.DEMAND, "demand")


@pytest.mark.parametrize("seed", SEEDS)
def test_longer_prompts_are_demand(seed: int) -> None:
    """Longer prompts at the same rate are demand too."""
    report = explain(Scene(seed=seed, prompt_growth=4.0))
    assert (report.verdict, first(report)) == (Verdict.DEMAND, "longer_prompts")


@pytest.mark.parametrize("seed", SEEDS)
def test_busy_neighbour_is_contention(seed: int) -> None:
    """CPU taken by others shows as contention, not as throttling."""
    report = explain(Scene(seed=seed, neighbour=0.5))
    assert (report.verdict, first(report)) == (Verdict.FAULT, "cpu_contention")


@pytest.mark.parametrize("seed", SEEDS)
def test_noisy_neighbour_is_named_by_its_cgroup(seed: int) -> None:
    """With the scheduler probe the aggressor itself is named, and contention is not claimed twice."""
    report = explain(Scene(seed=seed, neighbour=0.5, matrix=True))
    top = report.causes[0]
    assert (report.verdict, top.kind, top.target) == (Verdict.FAULT, "noisy_neighbour", NEIGHBOUR)
    assert all(cause.kind != "cpu_contention" for cause in report.causes)


def test_neighbour_on_an_idle_core_is_cleared() -> None:
    """A cgroup that got busy without making the service wait is named as innocent."""
    report = explain(Scene(neighbour=0.5, matrix=True, idle_core_neighbour=0.9))
    assert all(cause.target != IDLE_CORE_NEIGHBOUR for cause in report.causes)
    assert any(
        IDLE_CORE_NEIGHBOUR in found.statement for found in report.causes[0].counter_evidence
    )


def test_waiting_in_a_throttled_cgroup_is_no_neighbours_doing() -> None:
    """The scheduler probe does not take the blame away from the CPU limit."""
    report = explain(Scene(quota=0.6, matrix=True, idle_core_neighbour=0.9))
    assert first(report) == "cpu_throttling"


def test_slow_for_no_visible_reason_is_inconclusive() -> None:
    """A slow-down that nothing measured explains is not blamed on anything."""
    report = explain(
        Scene(revision_at_s=0.0, new_sql_s=0.001, sql_s=0.001, neighbour=0.5, metrics=False)
    )
    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.unexplained_share > 0.5


@pytest.mark.parametrize(
    "scene",
    [
        Scene(quota=0.6),
        Scene(surge=2.2),
        Scene(revision_at_s=60.3, new_sql_s=0.085),
        Scene(neighbour=0.5),
    ],
)
def test_shares_add_up(scene: Scene) -> None:
    """Shares of all causes and the unexplained one add up to one."""
    report = explain(scene)
    total = sum(cause.share for cause in report.causes) + report.unexplained_share
    assert total == pytest.approx(1.0, abs=1e-9)


def test_throttled_seconds_are_the_counters() -> None:
    """The throttled seconds in the evidence equal the truth over the same interval."""
    scene = Scene(quota=0.6)
    evidence = explain(scene).causes[0].evidence[0]
    assert (evidence.source, evidence.unit) == ("cgroup_throttling", "s")
    assert evidence.value == pytest.approx(throttled_s(scene), rel=0.03)


def test_throttled_bystander_is_named_as_innocent() -> None:
    """A throttled cgroup that serves no slow request appears as counter-evidence only."""
    report = explain(Scene(quota=0.6, bystander_throttled=0.8))
    assert any(BYSTANDER in found.statement for found in report.causes[0].counter_evidence)
    assert all(cause.target != BYSTANDER for cause in report.causes)


def test_same_snapshot_same_report() -> None:
    """The analysis draws nothing from the clock or from chance."""
    snap = snapshot(Scene(quota=0.6))
    assert analyse(snap) == analyse(snap)


def test_thin_snapshot_is_refused() -> None:
    """Too few requests raise an error that says so."""
    with pytest.raises(AnalysisError, match="too short"):
        explain(Scene(rate=0.1))


def test_losses_are_reported_as_missing() -> None:
    """What the store lost is named in the report."""
    snap = snapshot(Scene(quota=0.6))
    lossy = type(snap)(snap.incident, snap.end_unix_s, snap.spans, snap.points, {"spans": 7})
    assert "7 spans were lost before the analysis" in analyse(lossy).missing


@pytest.mark.parametrize("seed", SEEDS)
def test_throttling_is_no_demand_without_step_spans(seed: int) -> None:
    """A server that sends no step spans is still not excused by the scatter of its traffic."""
    report = explain(Scene(seed=seed, quota=0.6, with_steps=False))
    assert (report.verdict, first(report)) == (Verdict.FAULT, "cpu_throttling")
    assert any("no step spans" in text for text in report.missing)


def test_probe_that_came_late_is_missing_not_new() -> None:
    """A matrix that begins with the onset says nothing about before, so nobody is blamed by it."""
    snap = snapshot(Scene(neighbour=0.5, matrix=True))
    late = tuple(
        point
        for point in snap.points
        if point.metric != "tailcause.runqueue.wait_on.time"
        or point.time_unix_ns / 1e9 >= snap.incident.onset_unix_s
    )
    report = analyse(type(snap)(snap.incident, snap.end_unix_s, snap.spans, late, {}))
    assert all(cause.kind != "noisy_neighbour" for cause in report.causes)
    assert any("no scheduler probe ran" in text for text in report.missing)
