"""Did a CPU limit stop the service? CFS throttling of its cgroup or of one above it."""

from agent.telemetry import keys
from detector.model import Evidence, Verdict
from detector.rca.case import Case
from detector.rca.evidence import cgroups
from detector.rca.hypothesis import Finding, Hypothesis, Stall

SOURCE = "cgroup_throttling"
MIN_FRACTION = 0.01
"""Throttled for less than 1 % of wall time is no cause of a tail worth naming."""


class Throttling:
    """CFS throttled time of the serving cgroup and its ancestors; others are named as innocent."""

    name = SOURCE

    def examine(self, case: Case) -> Finding:
        """Claim the throttled wall time of the nearest throttled cgroup of the lineage."""
        if not case.cgroup:
            return Finding(
                missing=("CFS throttling: the spans carry no cgroup (is the agent in their path?)",)
            )
        if not cgroups.lineage(case.cgroup):
            return Finding(
                missing=("CFS throttling: the service runs in the root cgroup, which has no limit",)
            )
        found = cgroups.most_throttled(case)
        if found is None:
            return Finding(
                missing=(
                    f"CFS throttling: no counters of {case.cgroup} before and since the onset",
                )
            )
        cgroup, fractions = found
        if fractions.growth < MIN_FRACTION:
            return Finding()
        return Finding((self._hypothesis(case, cgroup, fractions),))

    def _hypothesis(self, case: Case, cgroup: str, fractions: cgroups.Fractions) -> Hypothesis:
        since = fractions.since or 0.0
        return Hypothesis(
            kind="cpu_throttling",
            target=cgroup,
            title=f"CPU limit of {cgroup} throttles the service",
            verdict=Verdict.FAULT,
            claim=Stall(fractions.before or 0.0, since, fractions.error),
            evidence=self._evidence(case, cgroup, fractions),
            counter_evidence=self._bystanders(case, cgroup),
            next_steps=_next_steps(case, cgroup),
        )

    def _evidence(
        self, case: Case, cgroup: str, fractions: cgroups.Fractions
    ) -> tuple[Evidence, ...]:
        labels = f'{{{keys.CGROUP}="{cgroup}"}}'
        seconds = cgroups.increase(case, cgroups.THROTTLED, cgroup).since
        before_rate = cgroups.rates(case, cgroups.THROTTLED, {keys.CGROUP: cgroup})
        usual = (
            before_rate.before * case.since.length_s
            if before_rate and before_rate.before is not None
            else None
        )
        found = [
            Evidence(
                SOURCE,
                "throttled since the onset, summed over CPUs",
                f"increase({cgroups.THROTTLED}{labels})",
                seconds,
                usual,
                "s",
            ),
            Evidence(
                SOURCE,
                "part of wall time in which it stood still",
                f"rate({cgroups.THROTTLED}{labels}), at most the CPU pressure",
                fractions.since,
                fractions.before,
                "1",
            ),
        ]
        hit = _periods_hit(case, cgroup)
        if hit.since is not None:
            query = f"increase({cgroups.THROTTLED_PERIODS}{labels}) / increase({cgroups.PERIODS}{labels})"
            statement = "part of CFS periods that ran out of quota"
            found.append(Evidence(SOURCE, statement, query, hit.since, hit.before, "1"))
        limit = cgroups.limit_cpus(case, cgroup)
        if limit.since is not None:
            known = cgroups.increase(case, cgroups.CPU_TIME, cgroup).before is not None
            statement = (
                "CPU limit; before the onset it had none"
                if limit.before is None and known
                else "CPU limit"
            )
            query = f"{cgroups.CPU_LIMIT}{labels}"
            found.append(Evidence(SOURCE, statement, query, limit.since, limit.before, "{cpu}"))
        return tuple(found)

    def _bystanders(self, case: Case, cgroup: str) -> tuple[Evidence, ...]:
        """Name throttled cgroups outside of the service's lineage: they are not counted for it."""
        inside = set(cgroups.lineage(case.cgroup))
        found = []
        for labels, track in case.counters.find(cgroups.THROTTLED, case.here({})):
            other = labels.get(keys.CGROUP, "")
            seconds = track.increase(case.since.start_s, case.since.end_s)
            if (
                not other
                or other in inside
                or not seconds
                or seconds / case.since.length_s < MIN_FRACTION
            ):
                continue
            before = cgroups.rate_before(case, track)
            usual = None if before is None else before * case.since.length_s
            query = f'increase({cgroups.THROTTLED}{{{keys.CGROUP}="{other}"}})'
            statement = f"{other} is throttled too, but serves none of the slow requests"
            found.append(Evidence(SOURCE, statement, query, seconds, usual, "s"))
        found.sort(key=lambda evidence: -(evidence.value or 0.0))
        return tuple(found[:3]) if cgroup else ()


def _periods_hit(case: Case, cgroup: str) -> cgroups.Fractions:
    """Return the part of CFS periods that ran out of quota; 0 when none elapsed, as without a limit."""
    periods = cgroups.increase(case, cgroups.PERIODS, cgroup)
    hit = cgroups.increase(case, cgroups.THROTTLED_PERIODS, cgroup)
    return cgroups.Fractions(_part(hit.before, periods.before), _part(hit.since, periods.since))


def _part(hit: float | None, periods: float | None) -> float | None:
    if hit is None or periods is None:
        return None
    return hit / periods if periods > 0 else 0.0


def _next_steps(case: Case, cgroup: str) -> tuple[str, ...]:
    used = cgroups.rates(case, cgroups.CPU_TIME, {keys.CGROUP: cgroup})
    want = f" (it used {used.before:.2f} CPUs before the onset)" if used and used.before else ""
    return (
        f"Raise the CPU limit of {cgroup}{want}, or remove it and keep the request.",
        "Find who lowered it: the limit is set by the pod's resources.limits.cpu or by systemd's CPUQuota.",
    )
