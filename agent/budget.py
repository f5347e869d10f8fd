"""What the agent may cost, by three measures: its own CPU, what its probes take from others, and memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Cost(StrEnum):
    """A measure of cost; where more than one is over its limit, the first is dealt with first."""

    IMPOSED = "imposed"
    """CPU time that the probes take from whoever triggers them, as a share of the CPU time in use."""
    OWN = "own"
    """CPU that the agent uses, in cores."""
    MEMORY = "memory"
    """Resident memory of the agent and what the maps of its probes hold in the kernel, bytes."""


Costs = Mapping[Cost, float]


@dataclass(frozen=True)
class Budget:
    """The limits, and how they are watched."""

    own_cores: float = 0.03
    span_s: float = 50e-6
    """What the agent may use beyond that for each span that passes through."""
    imposed_share: float = 0.01
    idle_share: float = 0.05
    """An idle machine counts as busy by this share, so that no probe goes for a cost that nobody feels."""
    memory_bytes: float = 96e6
    memory_per_cpu_bytes: float = 1e6
    """The probes count by CPU, so that no two CPUs write to one place."""
    look_s: float = 5.0
    """Not below the time between two readings of the probes: what they cost in between is not known."""
    calibrate_s: float = 30.0
    spell_s: float = 0.1
    strikes: int = 3
    relevant: float = 0.1
    """A probe with less than this share of the limit is not worth taking off."""
    restore_s: float = 60.0
    room: float = 0.8
    despite: float = 8.0
    """Without room a probe is tried all the same after this many times its wait: its old cost says nothing of now."""
    retry_s: float = 10.0
    retry_most_s: float = 600.0
    """After a restore that failed the next one waits, twice as long each time, at most this long."""

    def limits(self, spans_per_s: float, cpus: int) -> Costs:
        """Return what may be used now."""
        return {
            Cost.IMPOSED: self.imposed_share,
            Cost.OWN: self.own_cores + self.span_s * spans_per_s,
            Cost.MEMORY: self.memory_bytes + self.memory_per_cpu_bytes * cpus,
        }

    def fits(self, used: Costs, more: Costs, limits: Costs) -> bool:
        """Tell whether there is room for a probe, with some to spare, by every measure."""
        return all(
            used[cost] + more.get(cost, 0.0) <= self.room * limit for cost, limit in limits.items()
        )


@dataclass
class Shed:
    """A probe that was taken off: what it cost, how long it stays off, and since when there is room for it."""

    costs: Costs
    wait_s: float
    since_s: float
    room_since_s: float | None = None
    failures: int = 0
    not_before_s: float = 0.0

    def may_return(self, now_s: float, *, fits: bool, despite: float) -> bool:
        """Tell whether it is time: room all through the wait, or a multiple of the wait without it."""
        if not fits:
            self.room_since_s = None
        elif self.room_since_s is None:
            self.room_since_s = now_s
        if now_s < self.not_before_s:
            return False
        had_room = self.room_since_s is not None and now_s - self.room_since_s >= self.wait_s
        return had_room or now_s - self.since_s >= despite * self.wait_s


def describe(cost: Cost, used: float) -> str:
    """Return a figure for people."""
    if cost is Cost.MEMORY:
        return f"{used / 1e6:.1f} MB"
    return f"{100 * used:.2g} % of " + ("the CPU time in use" if cost is Cost.IMPOSED else "a core")
