"""How long a cgroup stood still, as fractions of wall time: what several sources of evidence share."""

from dataclasses import dataclass

from agent.telemetry import keys
from detector.rca.case import Case
from detector.rca.counters import Track

THROTTLED = "tailcause.cgroup.cpu.cfs.throttled_time"
PERIODS = "tailcause.cgroup.cpu.cfs.periods"
THROTTLED_PERIODS = "tailcause.cgroup.cpu.cfs.throttled_periods"
CPU_LIMIT = "tailcause.cgroup.cpu.limit"
CPU_TIME = "container.cpu.time"
PRESSURE = "tailcause.cgroup.psi.time"
WAIT_ON = "tailcause.runqueue.wait_on.time"
AGGRESSOR = "tailcause.aggressor.path"


@dataclass(frozen=True)
class Fractions:
    """A figure before and since the onset; None where nothing was observed."""

    before: float | None
    since: float | None
    error: float = 0.0
    """One standard error of `since`: the edges of the interval fall between two readings."""

    @property
    def growth(self) -> float:
        """Increase since the onset, 0 when either side is unknown."""
        if self.before is None or self.since is None:
            return 0.0
        return max(self.since - self.before, 0.0)


def rates(case: Case, metric: str, labels: dict[str, str]) -> Fractions | None:
    """Return growth per second of one counter before and since; None when the counter is not there."""
    track = case.counters.one(metric, case.here(labels))
    if track is None:
        return None
    since = track.rate(case.since.start_s, case.since.end_s)
    return Fractions(
        rate_before(case, track),
        since,
        (since or 0.0) * track.step_s / case.since.length_s,
    )


def rate_before(case: Case, track: Track) -> float | None:
    """Return growth per second of a counter while all was as usual."""
    usual = case.usual(track.step_s)
    return track.rate(usual.start_s, usual.end_s)


def pressure(case: Case, cgroup: str, resource: str) -> Fractions | None:
    """Return the fraction of wall time in which some work of a cgroup stalled on a resource (PSI)."""
    labels = {keys.CGROUP: cgroup, keys.PSI_RESOURCE: resource, keys.PSI_STALL: "some"}
    return rates(case, PRESSURE, labels)


def throttled(case: Case, cgroup: str) -> Fractions | None:
    """Return the fraction of wall time (0..1) that a cgroup was throttled.

    The kernel sums throttled time over run queues, one a CPU, so it may pass wall time; PSI counts a moment
    once however many CPUs stand still, and bounds it where the kernel has it.
    """
    measured = rates(case, THROTTLED, {keys.CGROUP: cgroup})
    if measured is None:
        return None
    stalled = pressure(case, cgroup, "cpu")
    return Fractions(
        _bounded(measured.before, stalled.before if stalled else None),
        _bounded(measured.since, stalled.since if stalled else None),
        measured.error,
    )


def waits_on(case: Case) -> list[tuple[dict[str, str], Track]]:
    """Return whom the service waited for, by series; empty unless the scheduler probe ran before the onset too."""
    tracks = case.counters.find(WAIT_ON, case.here({keys.CGROUP: case.cgroup}))
    known = any(rate_before(case, track) is not None for _, track in tracks)
    return tracks if known else []


def most_throttled(case: Case) -> tuple[str, Fractions] | None:
    """Return the cgroup of the service's lineage whose throttling grew most; None when none of them is known.

    A limit anywhere above stops the service as well, and a container that is hardly throttled may sit in a pod that is.
    """
    found = [
        (cgroup, fractions)
        for cgroup in lineage(case.cgroup)
        if (fractions := throttled(case, cgroup)) is not None
        and fractions.before is not None
        and fractions.since is not None
    ]
    return max(found, key=lambda one: one[1].growth) if found else None


def increase(case: Case, metric: str, cgroup: str) -> Fractions:
    """Return the growth of a cgroup's counter while all was as usual and since the onset; None where not observed."""
    track = case.counters.one(metric, case.here({keys.CGROUP: cgroup}))
    if track is None:
        return Fractions(None, None)
    usual, since = case.usual(track.step_s), case.since
    return Fractions(
        track.increase(usual.start_s, usual.end_s), track.increase(since.start_s, since.end_s)
    )


def limit_cpus(case: Case, cgroup: str) -> Fractions:
    """Return the CPU limit of a cgroup as usual and since the onset, in CPUs; None without one."""
    track = case.counters.one(CPU_LIMIT, case.here({keys.CGROUP: cgroup}))
    if track is None:
        return Fractions(None, None)
    usual, since = case.usual(track.step_s), case.since
    return Fractions(track.mean(usual.start_s, usual.end_s), track.mean(since.start_s, since.end_s))


def lineage(cgroup: str) -> list[str]:
    """Return a cgroup and its ancestors, the root left out: a limit on any of them throttles it."""
    parts = [part for part in cgroup.split("/") if part]
    return ["/" + "/".join(parts[:depth]) for depth in range(len(parts), 0, -1)]


def _bounded(value: float | None, bound: float | None) -> float | None:
    if value is None:
        return None
    return min(value, 1.0 if bound is None else bound, 1.0)
