"""Compares a report with the truth, which nobody but the injectors knew until now."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from detector.cli.demo.faults import Fault, Kind
from detector.cli.demo.plan import WINDOW_S
from detector.model import Cause, Evidence, Report, Verdict

THROTTLED_TOLERANCE = 0.10
_SHORTEST_REVISION = 7
_UNKNOWN = "unknown"


class Truth(msgspec.Struct, frozen=True):
    """What an injector wrote about itself."""

    fault: str
    kind: str
    target: str
    started_unix_s: float
    intensity: float = 0.0
    ended_unix_s: float | None = None
    parameters: dict[str, Any] = {}


class ClientsView(msgspec.Struct, frozen=True):
    """The P99 that the load generator measured itself; None where nobody was answered."""

    before_s: float | None
    since_s: float | None

    def __str__(self) -> str:
        before, since = map(_told, (self.before_s, self.since_s))
        return f"P99 as its clients saw it: {before} before, {since} since"


class Facts(msgspec.Struct, frozen=True):
    """What really happened: the truth files and what the kernel counted in the analysed interval."""

    fault: Fault
    cgroup: str | None
    truths: tuple[Truth, ...]
    throttled_s: float | None = None
    """Throttled seconds of the workload's cgroup between the report's `analysed_from` and `_to`."""
    injecting_since_unix_s: float | None = None
    """When the injector was started: a deploy is felt while the new revision still warms up."""
    clients: ClientsView | None = None

    @property
    def injected(self) -> Truth | None:
        """The fault itself, without the decoys."""
        return next((truth for truth in self.truths if truth.fault == self.fault.name), None)


class Check(msgspec.Struct, frozen=True):
    """One comparison."""

    name: str
    expected: str
    actual: str
    ok: bool


class Outcome(StrEnum):
    """How a demo ended."""

    RIGHT = "right"
    WRONG = "wrong"
    INCONCLUSIVE = "inconclusive"


class Judgement(msgspec.Struct, frozen=True):
    """All comparisons of a run; `note` says what was not compared."""

    outcome: Outcome
    checks: tuple[Check, ...]
    note: str = ""

    @property
    def exit_code(self) -> int:
        """0 right, 1 wrong, 3 when the report itself would not say."""
        return {Outcome.RIGHT: 0, Outcome.WRONG: 1, Outcome.INCONCLUSIVE: 3}[self.outcome]


def judge(facts: Facts, report: Report | None) -> Judgement:
    """Judge the report of the run's incident, or that there was none."""
    if facts.fault.silent:
        return _conclude([_check_silent(report)])
    injected = facts.injected
    if injected is None:
        return _conclude([Check("onset", "after the fault", "before any fault", ok=False)])
    if report is None:
        felt = f" ({facts.clients})" if facts.clients else ""
        return _conclude([Check("incident", "one", f"none{felt}", ok=False)])
    onset = _check_onset(facts, injected, report)
    checks = [onset, _check_verdict(facts.fault, report)]
    proof = _PROOFS.get(facts.fault.name)
    if proof:
        top = report.causes[0] if report.causes else None
        checks += [_check_kind(proof.kind, top), *proof.checks(facts, injected, top)]
    judged = _conclude(checks, open_end=onset.ok and report.verdict is Verdict.INCONCLUSIVE)
    return msgspec.structs.replace(judged, note=_unjudged(facts.fault, report))


def expected_cause(fault: Fault) -> str | None:
    """Return the kind of cause that must come first; None where the report has none for this fault."""
    proof = _PROOFS.get(fault.name)
    return proof.kind if proof else None


def _unjudged(fault: Fault, report: Report) -> str:
    """Say that a cause was not judged, and which one the report names all the same."""
    if fault.kind is not Kind.FAULT or fault.name in _PROOFS:
        return ""
    named = report.causes[0].title if report.causes else "no cause"
    return (
        f"no evidence kind for {fault.name} yet: verdict judged, cause not "
        f"(the report puts first: {named})"
    )


def _conclude(checks: Sequence[Check], *, open_end: bool = False) -> Judgement:
    """Sum up; what is not right is `INCONCLUSIVE` only where a true incident got no clear verdict."""
    if all(check.ok for check in checks):
        return Judgement(Outcome.RIGHT, tuple(checks))
    return Judgement(Outcome.INCONCLUSIVE if open_end else Outcome.WRONG, tuple(checks))


def _told(p99_s: float | None) -> str:
    return "nobody answered" if p99_s is None else f"{p99_s:.3g} s"


def _check_silent(report: Report | None) -> Check:
    actual = "none" if report is None else f"{report.verdict.value}: {report.headline}"
    return Check("incident", "none", actual, ok=report is None)


def _check_onset(facts: Facts, injected: Truth, report: Report) -> Check:
    """Refuse an incident that began before the injection: a false alarm, whatever it says."""
    onset_s = report.incident.onset_unix_s
    lag_s = onset_s - injected.started_unix_s
    began_s = min(facts.injecting_since_unix_s or math.inf, injected.started_unix_s)
    return Check(
        "onset",
        f"at most {WINDOW_S:g} s before its injection began",
        f"{abs(lag_s):.1f} s {'after' if lag_s >= 0 else 'before'} the fault was in force",
        ok=onset_s >= began_s - WINDOW_S,
    )


def _check_verdict(fault: Fault, report: Report) -> Check:
    expected = Verdict.DEMAND if fault.kind is Kind.DEMAND else Verdict.FAULT
    return Check("verdict", expected.value, report.verdict.value, ok=report.verdict is expected)


def _check_quota(facts: Facts, _injected: Truth, top: Cause | None) -> list[Check]:
    return [
        _check_target("throttled cgroup", facts.cgroup, top),
        _check_throttled(facts.throttled_s, top),
    ]


def _check_throttled(counted_s: float | None, top: Cause | None) -> Check:
    """Compare the report's throttled seconds with the kernel's, which the demo read by itself."""
    evidence = _throttled_evidence(top)
    reported_s = evidence.value if evidence else None
    expected = _UNKNOWN if counted_s is None else f"{counted_s:.2f} s ± {THROTTLED_TOLERANCE:.0%}"
    actual = "not reported" if reported_s is None else f"{reported_s:.2f} s"
    if counted_s is None or reported_s is None or counted_s <= 0:
        return Check("throttled time", expected, actual, ok=False)
    off = reported_s / counted_s - 1
    ok = abs(off) <= THROTTLED_TOLERANCE
    return Check("throttled time", expected, f"{actual} ({off:+.1%})", ok=ok)


def _throttled_evidence(top: Cause | None) -> Evidence | None:
    evidence = top.evidence if top else ()
    return next((e for e in evidence if e.source == "cgroup_throttling" and e.unit == "s"), None)


def _check_deploy(_facts: Facts, injected: Truth, top: Cause | None) -> list[Check]:
    revision = str(injected.parameters.get("revision") or injected.target)
    named = top is not None and len(revision) >= _SHORTEST_REVISION and _names(top, revision)
    blamed = "none" if top is None else (revision if named else top.target)
    return [Check("revision", revision, blamed, ok=named)]


def _check_neighbour(_facts: Facts, injected: Truth, top: Cause | None) -> list[Check]:
    return [_check_target("aggressor", injected.target, top)]


def _check_victim(facts: Facts, _injected: Truth, top: Cause | None) -> list[Check]:
    return [_check_target("cgroup", facts.cgroup, top)]


def _check_target(name: str, expected: str | None, top: Cause | None) -> Check:
    blamed = top.target if top else "none"
    return Check(name, expected or _UNKNOWN, blamed, ok=expected is not None and blamed == expected)


def _check_kind(expected: str, top: Cause | None) -> Check:
    actual = top.kind if top else "none"
    return Check("first cause", expected, actual, ok=actual == expected)


def _names(cause: Cause, revision: str) -> bool:
    """Tell whether a cause names a revision, whole or by a prefix as Git prints it."""
    texts = [cause.target, *(f"{e.statement} {e.query}" for e in cause.evidence)]
    return any(revision[:_SHORTEST_REVISION] in text for text in texts)


@dataclass(frozen=True)
class _Proof:
    """The kind of cause that must come first, and what else must be true of it."""

    kind: str
    checks: Callable[[Facts, Truth, Cause | None], list[Check]]


_PROOFS: dict[str, _Proof] = {
    "cpu-quota": _Proof("cpu_throttling", _check_quota),
    "bad-deploy": _Proof("deploy", _check_deploy),
    "noisy-neighbour": _Proof("noisy_neighbour", _check_neighbour),
    "memory-limit": _Proof("memory_pressure", _check_victim),
    "slow-disk": _Proof("io_pressure", _check_victim),
}
"""The faults for which `rca/evidence` has a kind of cause; of the others the verdict alone is judged."""
