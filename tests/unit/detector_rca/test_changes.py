"""Which exposure speaks for a revision and which against it."""

import pytest

from detector.rca.case import open_case
from detector.rca.evidence.changes import Changes, find_changes
from detector.rca.hypothesis import Coincidence
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
