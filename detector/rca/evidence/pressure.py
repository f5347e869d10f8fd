"""Did the service wait for a CPU held by others, for memory or for a disk? Pressure stall information."""

from dataclasses import dataclass

from agent.telemetry import keys
from detector.model import Evidence, Verdict
from detector.rca.case import Case
from detector.rca.evidence import cgroups
from detector.rca.hypothesis import Finding, Hypothesis, Stall

SOURCE = "pressure"
MIN_GROWTH = 0.02
"""Pressure that grew by less than 2 % of wall time is within its everyday scatter."""


@dataclass(frozen=True)
class _Resource:
    name: str
    kind: str
    title: str
    next_steps: tuple[str, ...]


RESOURCES: tuple[_Resource, ...] = (
    _Resource(
        "cpu",
        "cpu_contention",
        "other work on the node takes the CPU from {cgroup}",
        (
            "Find the busy neighbour: `systemd-cgtop`, or container CPU by pod on this node.",
            "Give the service CPU weight or pinned cores, or move the neighbour.",
        ),
    ),
    _Resource(
        "memory",
        "memory_pressure",
        "{cgroup} waits for memory to be reclaimed",
        ("Compare memory use and limit of the cgroup; raise the limit or cut the cache.",),
    ),
    _Resource(
        "io",
        "io_pressure",
        "{cgroup} waits for a disk",
        ("Find what reads or writes: `iotop -P`, io.stat of the node's cgroups.",),
    ),
)


class Pressure:
    """PSI of the serving cgroup; CPU pressure only as far as it is neither throttling nor home-made."""

    name = SOURCE

    def examine(self, case: Case) -> Finding:
        """Claim what pressure grew by, resource by resource."""
        if not case.cgroup:
            return Finding(
                missing=("pressure: the spans carry no cgroup (is the agent in their path?)",)
            )
        hypotheses, missing = [], []
        matrix = bool(cgroups.waits_on(case))
        for resource in RESOURCES:
            if matrix and resource.name == "cpu":  # who held the CPU is known, and better
                continue
            found = cgroups.pressure(case, case.cgroup, resource.name)
            if found is None or found.since is None or found.before is None:
                missing.append(
                    f"{resource.name} pressure of {case.cgroup}: not received (PSI off?)"
                )
                continue
            claim, why = self._claim(case, resource, found)
            if claim.since - claim.before >= MIN_GROWTH:
                hypotheses.append(self._hypothesis(case, resource, found, claim, why))
        return Finding(tuple(hypotheses), tuple(missing))

    def _claim(
        self, case: Case, resource: _Resource, found: cgroups.Fractions
    ) -> tuple[Stall, tuple[Evidence, ...]]:
        before, since = found.before or 0.0, found.since or 0.0
        if resource.name != "cpu":
            return Stall(before, since, found.error), ()
        limited = cgroups.most_throttled(case)
        if limited is not None:
            _, throttled = limited
            before -= min(throttled.before or 0.0, before)
            since -= min(throttled.since or 0.0, since)
        outside, evidence = _outside_part(case)
        grown = max(since - before, 0.0) * outside
        return Stall(before, before + grown, found.error), evidence

    def _hypothesis(
        self,
        case: Case,
        resource: _Resource,
        found: cgroups.Fractions,
        claim: Stall,
        why: tuple[Evidence, ...],
    ) -> Hypothesis:
        query = f'rate({cgroups.PRESSURE}{{{keys.CGROUP}="{case.cgroup}", {keys.PSI_RESOURCE}="{resource.name}"}})'
        stalled = Evidence(
            SOURCE,
            f"part of wall time in which some of it waited for {resource.name}",
            query,
            found.since,
            found.before,
            "1",
        )
        return Hypothesis(
            kind=resource.kind,
            target=case.cgroup,
            title=resource.title.format(cgroup=case.cgroup),
            verdict=Verdict.FAULT,
            claim=claim,
            evidence=(stalled, *why),
            next_steps=resource.next_steps,
        )


def _outside_part(case: Case) -> tuple[float, tuple[Evidence, ...]]:
    """Return which part (0..1) of the growth in CPU use came from outside of the serving cgroup.

    A service that burns more CPU of its own also raises its CPU pressure; that is not a neighbour's doing.
    """
    own = cgroups.rates(case, cgroups.CPU_TIME, {keys.CGROUP: case.cgroup})
    host = _host_busy(case)
    if own is None or own.since is None or own.before is None or host is None:
        return 0.0, ()
    before, since = host
    outside = max((since - own.since) - (before - own.before), 0.0)
    grown = outside + own.growth
    evidence = Evidence(
        SOURCE,
        "CPUs used by everything else on the node",
        "sum(rate(system.cpu.time)) - rate(container.cpu.time)",
        since - own.since,
        before - own.before,
        "{cpu}",
    )
    return (outside / grown if grown > 0.02 else 0.0), (evidence,)


def _host_busy(case: Case) -> tuple[float, float] | None:
    """Return CPUs busy on the node before and since; None when the host's counters are absent."""
    before = since = 0.0
    tracks = case.counters.find("system.cpu.time", case.here({}))
    for labels, track in tracks:
        if labels.get(keys.CPU_MODE) in {"idle", "iowait"}:
            continue
        old = cgroups.rate_before(case, track)
        new = track.rate(case.since.start_s, case.since.end_s)
        if old is None or new is None:
            return None
        before, since = before + old, since + new
    return (before, since) if tracks else None
