"""How a change of version bears on the ranked causes."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from detector.model import Cause, Change, Evidence, Report
from detector.report import text, units

_LEAST_SHARE = 0.05
"""A share whose band reaches below this is not told from nothing."""
_WORD = re.compile(r"\w{7,}")


class Stance(StrEnum):
    """What a change has to do with a cause."""

    SUPPORTS = "supports"
    WEIGHED = "weighed"
    COUNTER = "counter"
    NONE = "none"


@dataclass(frozen=True)
class ChangeRow:
    """One change as every renderer shows it."""

    at_unix_s: float
    when: str
    service: str
    version: str
    revision: str
    stance: Stance
    bearing: str


def rows(report: Report) -> tuple[ChangeRow, ...]:
    """All changes, newest first."""
    newest_first = sorted(report.changes, key=lambda change: -change.at_unix_s)
    return tuple(_row(change, report) for change in newest_first)


def _row(change: Change, report: Report) -> ChangeRow:
    stance, bearing = _bearing(change, report)
    return ChangeRow(
        at_unix_s=change.at_unix_s,
        when=units.relative(change.at_unix_s, report.incident.onset_unix_s),
        service=units.clean(change.service) or units.UNKNOWN,
        version=_arrow(units.clean(change.version_before), units.clean(change.version_after)),
        revision=_arrow(
            units.short_revision(change.revision_before),
            units.short_revision(change.revision_after),
        ),
        stance=stance,
        bearing=bearing,
    )


def _arrow(before: str, after: str) -> str:
    before, after = before or units.UNKNOWN, after or units.UNKNOWN
    return before if before == after == units.UNKNOWN else f"{before} → {after}"


def _bearing(change: Change, report: Report) -> tuple[Stance, str]:
    """Find the strongest relation to any cause, the highest-ranked cause first."""
    named = [(rank, cause) for rank, cause in enumerate(report.causes, 1) if _named(change, cause)]
    for rank, cause in named:
        if _above_nothing(cause):
            return Stance.SUPPORTS, text.change_supports(cause, rank)
    for rank, cause in named:
        return Stance.WEIGHED, text.change_weighed(cause, rank)
    for rank, cause in enumerate(report.causes, 1):
        if _mentions(change, _words(cause.counter_evidence)):
            return Stance.COUNTER, text.change_in_counter_evidence(rank)
    # The onset is the start of a window: a change within that window may still have begun it.
    if change.at_unix_s > report.incident.onset_unix_s + report.incident.window_s:
        return Stance.NONE, text.CHANGE_AFTER
    return Stance.NONE, text.CHANGE_UNRELATED


def _above_nothing(cause: Cause) -> bool:
    low = cause.share_low if math.isfinite(cause.share_low) else cause.share
    return low >= _LEAST_SHARE


def _named(change: Change, cause: Cause) -> bool:
    return _mentions(change, f"{cause.target}\n{cause.title}\n{_words(cause.evidence)}")


def _words(evidence: Iterable[Evidence]) -> str:
    return "\n".join(f"{item.statement}\n{item.query}" for item in evidence)


def _mentions(change: Change, blob: str) -> bool:
    """Whether `blob` holds the new revision, in full or abbreviated; the version where there is none."""
    revision = change.revision_after
    if any(revision.startswith(word) for word in _WORD.findall(blob)):
        return True
    name = revision or change.version_after
    return bool(name) and bool(re.search(rf"(?<![\w.]){re.escape(name)}(?!\w|\.\d)", blob))
