"""How a change bears on the causes."""

import msgspec
import pytest

from detector.model import Cause, Change, Evidence, Report, Verdict
from detector.report import changes
from detector.report.changes import Stance

OLD, NEW = "1f2e3d4c5b6a79880123456789abcdef01234567", "9a8b7c6d5e4f30211203948576aabbccddeeff00"


def _with_change(report: Report, cause: Cause, offset_s: float = -10.0) -> Report:
    change = Change(report.incident.onset_unix_s + offset_s, "chat", "1", "2", OLD, NEW)
    return msgspec.structs.replace(report, causes=(cause,), changes=(change,))


def _stance(report: Report) -> Stance:
    (row,) = changes.rows(report)
    return row.stance


@pytest.mark.parametrize("name", [NEW, NEW[:7], NEW[:12], f"Revision {NEW[:8]} is slower"])
def test_a_cause_that_names_the_revision_is_supported(report: Report, name: str) -> None:
    """Full and abbreviated hashes are the same revision."""
    cause = msgspec.structs.replace(report.causes[0], target=name)
    assert _stance(_with_change(report, cause)) is Stance.SUPPORTS


@pytest.mark.parametrize("low", [0.0, 0.01])
def test_a_share_that_may_be_nothing_supports_nothing(report: Report, low: float) -> None:
    """A deploy whose band reaches down to about zero was weighed, no more."""
    cause = msgspec.structs.replace(report.causes[0], target=NEW, share_low=low)
    assert _stance(_with_change(report, cause)) is Stance.WEIGHED


def test_counter_evidence_is_told_apart(report: Report) -> None:
    """A revision that only counter-evidence mentions supports no cause."""
    against = Evidence("spans", f"{NEW[:7]} was quick before", "")
    cause = msgspec.structs.replace(report.causes[0], counter_evidence=(against,))
    assert _stance(_with_change(report, cause)) is Stance.COUNTER


def test_an_unnamed_change_is_unrelated(report: Report) -> None:
    """Nearness in time alone says nothing."""
    (row,) = changes.rows(_with_change(report, report.causes[0]))
    assert (row.stance, row.bearing) == (Stance.NONE, "no cause refers to it")


def test_a_change_after_the_onset_says_so(report: Report) -> None:
    """What came later cannot have begun it; within the first window it still may."""
    after = [
        "came after the onset"
        in changes.rows(_with_change(report, report.causes[0], offset))[0].bearing
        for offset in (1.9, 2.1)
    ]
    assert after == [False, True]


def test_the_old_revision_is_not_blamed(report: Report) -> None:
    """A cause that names the revision before the change does not name the change."""
    cause = msgspec.structs.replace(report.causes[0], target=OLD, verdict=Verdict.FAULT)
    assert _stance(_with_change(report, cause)) is Stance.NONE


def test_a_version_stands_in_for_a_missing_revision(report: Report) -> None:
    """Without a hash the new version is looked for as a whole word."""
    cause = msgspec.structs.replace(report.causes[0], title="Version 1.4 is slower than 1.3.")
    made = [
        Change(report.incident.onset_unix_s, "chat", "1.3", version, "", "")
        for version in ("1.4", "1")
    ]
    rows = changes.rows(msgspec.structs.replace(report, causes=(cause,), changes=tuple(made)))
    assert [row.stance for row in rows] == [Stance.SUPPORTS, Stance.NONE]


def test_newest_change_comes_first(report: Report) -> None:
    """The latest change is the first suspect."""
    onset = report.incident.onset_unix_s
    made = tuple(Change(onset - age, f"s{age}", "1", "2", "", "") for age in (30, 5, 90))
    rows = changes.rows(msgspec.structs.replace(report, changes=made))
    assert [row.service for row in rows] == ["s5", "s30", "s90"]
