"""Who held the CPU while the service waited for one: the victim-by-aggressor matrix of the scheduler probe."""

from dataclasses import dataclass

from agent.telemetry import keys
from detector.model import Evidence, Verdict
from detector.rca.case import Case
from detector.rca.evidence import cgroups
from detector.rca.hypothesis import Finding, Hypothesis, Stall

SOURCE = "neighbour"
MIN_FRACTION = 0.01
"""Waiting less than 1 % of wall time behind somebody is no cause of a tail worth naming."""
BYSTANDER_CPUS = 0.2
"""A cgroup that took this many CPUs more, and made nobody wait, is worth clearing by name."""
_NOBODY = frozenset({"idle", "other"})


@dataclass(frozen=True)
class _Aggressor:
    """Seconds per second for which threads of the service waited while this cgroup ran."""

    cgroup: str
    before: float
    since: float
    error: float

    @property
    def growth(self) -> float:
        return self.since - self.before


class Neighbour:
    """Growth of the time waited behind other cgroups, aggressor by aggressor."""

    name = SOURCE

    def examine(self, case: Case) -> Finding:
        """Claim the wait behind each cgroup of others that grew."""
        if not case.cgroup:
            return Finding()
        found = _aggressors(case)
        if not found:
            return Finding(
                missing=(
                    f"who held the CPU while {case.cgroup} waited: no scheduler probe ran before and since",
                )
            )
        own = {case.cgroup, *cgroups.lineage(case.cgroup)}
        hostile = [
            one for one in found if one.cgroup not in own | _NOBODY and one.growth >= MIN_FRACTION
        ]
        bound = _bound(case)
        total = sum(one.growth for one in hostile)
        scale = min(1.0, bound / total) if total > 0 else 1.0
        cleared = _cleared(case, own, {one.cgroup for one in hostile})
        return Finding(tuple(_hypothesis(case, one, scale, cleared) for one in hostile))


def _aggressors(case: Case) -> list[_Aggressor]:
    found = []
    for labels, track in cgroups.waits_on(case):
        since = track.rate(case.since.start_s, case.since.end_s)
        if since is None:
            continue
        # a pair that is new since the onset has no history, because there was nothing to count
        before = cgroups.rate_before(case, track) or 0.0
        error = since * track.step_s / case.since.length_s
        found.append(_Aggressor(labels.get(cgroups.AGGRESSOR, "other"), before, since, error))
    return sorted(found, key=lambda one: (-one.growth, one.cgroup))


def _bound(case: Case) -> float:
    """Return the part of wall time that can have been lost: several threads wait at once, the wall clock runs once."""
    stalled = cgroups.pressure(case, case.cgroup, "cpu")
    limited = cgroups.most_throttled(case)
    if stalled is None:
        return 1.0
    return max(stalled.growth - (limited[1].growth if limited else 0.0), 0.0)


def _hypothesis(
    case: Case, one: _Aggressor, scale: float, cleared: tuple[Evidence, ...]
) -> Hypothesis:
    query = f'rate({cgroups.WAIT_ON}{{{keys.CGROUP}="{case.cgroup}", {cgroups.AGGRESSOR}="{one.cgroup}"}})'
    evidence = [
        Evidence(
            SOURCE, "seconds per second its threads waited while that cgroup had the CPU", query, one.since,
            one.before, "s/s",
        )
    ]  # fmt: skip
    used = cgroups.rates(case, cgroups.CPU_TIME, {keys.CGROUP: one.cgroup})
    if used is not None and used.since is not None:
        query = f'rate({cgroups.CPU_TIME}{{{keys.CGROUP}="{one.cgroup}"}})'
        evidence.append(
            Evidence(SOURCE, f"CPUs used by {one.cgroup}", query, used.since, used.before, "{cpu}")
        )
    return Hypothesis(
        kind="noisy_neighbour",
        target=one.cgroup,
        title=f"{_name(one.cgroup)} takes the CPU from {case.cgroup}",
        verdict=Verdict.FAULT,
        claim=Stall(one.before * scale, one.since * scale, one.error * scale),
        evidence=tuple(evidence),
        counter_evidence=cleared,
        next_steps=(
            f"Limit {_name(one.cgroup)} (CPU quota or weight) or move it to other cores or another node.",
            f"Give {case.cgroup} more CPU weight, or cores of its own.",
        ),
    )


def _name(cgroup: str) -> str:
    return "work outside of any container (/)" if cgroup == "/" else cgroup


def _cleared(case: Case, own: set[str], hostile: set[str]) -> tuple[Evidence, ...]:
    """Name cgroups that took more CPU without making the service wait."""
    found = []
    for labels, track in case.counters.find(cgroups.CPU_TIME, case.here({})):
        other = labels.get(keys.CGROUP, "")
        since = track.rate(case.since.start_s, case.since.end_s)
        before = cgroups.rate_before(case, track) or 0.0
        inside = any(
            one == other or one.startswith(other.rstrip("/") + "/") for one in hostile | own
        )
        if not other or inside or since is None or since - before < BYSTANDER_CPUS:
            continue
        statement = f"{other} is busier too, but the service did not wait behind it"
        query = f'rate({cgroups.CPU_TIME}{{{keys.CGROUP}="{other}"}})'
        found.append(Evidence(SOURCE, statement, query, since, before, "{cpu}"))
    return tuple(sorted(found, key=lambda evidence: -(evidence.value or 0.0))[:3])
