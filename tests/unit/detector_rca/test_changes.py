"""Which exposure speaks for a revision and which against it."""

import pytest

from detector.rca.case import open_case
from detector.rca.evidence.changes import Changes, find_changes
from detector.rca.hypothesis import Coincidence
from detector.rca.requests import Request
from tests.support.scene import NEW, OLD, Scene, snapshot


def weight(scene: Scene) -> float:
    claim = Changes().examine(open_case(snapshot(scene))).hypotheses[0].claim
    assert isinstance(claim, Coincidence)
    return claim.weight


def test_a_change_at_the_onset_fits() -> None:
    """A slow revision that came with the onset takes nearly all of the rest."""
    assert weight(Scene(revision_at_s=60.3, new_sql_s=0.085)) > 0.8


def test_healthy_requests_before_the_onset_exonerate() -> None:
    """Eight seconds of healthy traffic on a revision clear it of what comes later."""
    assert weight(Scene(revision_at_s=52.0, quota=0.6)) < 0.25


def test_slow_requests_on_the_old_revision_exonerate() -> None:
    """A revision that came eight seconds after the onset is not its cause."""
    assert weight(Scene(revision_at_s=68.0, quota=0.6)) < 0.25


def test_changes_are_found_with_both_revisions() -> None:
    """A change names what was before and after."""
    case = open_case(snapshot(Scene(revision_at_s=52.0)))
    found = find_changes((*case.requests_before, *case.requests_since), "chat")
    assert [(change.revision_before, change.revision_after) for change in found] == [(OLD, NEW)]


def test_no_change_no_hypothesis() -> None:
    """One revision throughout is nobody's change."""
    assert Changes().examine(open_case(snapshot(Scene()))).hypotheses == ()


def test_counter_evidence_is_stated() -> None:
    """The healthy requests are in the report, with their number."""
    found = (
        Changes().examine(open_case(snapshot(Scene(revision_at_s=52.0, quota=0.6)))).hypotheses[0]
    )
    assert any("before the onset" in evidence.statement for evidence in found.counter_evidence)


@pytest.mark.parametrize("onset_late_s", [1.0, 2.0])
def test_an_onset_dated_a_window_late_still_fits(onset_late_s: float) -> None:
    """The first slow requests may fall before the first window that is out of band."""
    assert weight(Scene(revision_at_s=60.0, new_sql_s=0.085, onset_s=60.0 + onset_late_s)) > 0.6


def request(start_s: float, replica: str, revision: str) -> Request:
    return Request("t", "s", start_s, start_s + 0.1, False, "1", revision, replica, "", "", 1, 1)


def revisions(*requests: Request) -> list[tuple[str, str]]:
    return [
        (change.revision_before, change.revision_after) for change in find_changes(requests, "chat")
    ]


def test_a_rollout_of_pods_with_new_names_is_one_change() -> None:
    """Pods get new names with every rollout; the first on the new revision is the change, the second is not."""
    found = revisions(
        request(0, "pod-a", OLD), request(1, "pod-b", OLD), request(2, "pod-c", NEW), request(3, "pod-d", NEW),
        request(4, "pod-a", OLD), request(5, "pod-c", NEW),
    )  # fmt: skip
    assert found == [(OLD, NEW)]


def test_a_roll_back_is_a_change_too() -> None:
    """A replica that goes there and back changed twice."""
    assert revisions(request(0, "r", OLD), request(1, "r", NEW), request(2, "r", OLD)) == [
        (OLD, NEW),
        (NEW, OLD),
    ]


def test_a_new_replica_on_the_old_revision_is_no_change() -> None:
    """Scaling out is not a deploy."""
    assert revisions(request(0, "a", OLD), request(1, "b", OLD)) == []
