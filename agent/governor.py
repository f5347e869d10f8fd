"""Keeps the agent within its budget: measures, takes the costliest probe off, puts it back when there is room.

Over a limit for three looks in a row: the probe that costs most by that measure goes. It comes back when there has been
room for it all through a minute, or after eight minutes without; each time it had to go, these double. The limits and
waits are those of `agent.budget`.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.budget import Budget, Cost, Costs, Shed, describe
from agent.probecost import CostBook
from agent.probes import Spell
from agent.telemetry.keys import COST_KIND, PROBE
from agent.telemetry.model import Sample

_log = logging.getLogger(__name__)


class Governed(Protocol):
    """The probes as the governor sees them."""

    def events(self) -> Mapping[str, int]:
        """Return cumulative events by probe that is on, as of the last reading."""

    def counted_s(self) -> float:
        """Return when the last reading was, on the monotonic clock; 0 before the first."""

    def own_s(self) -> Mapping[str, float]:
        """Return the agent's cumulative CPU time for each probe."""

    def memory_bytes(self) -> Mapping[str, int]:
        """Return what the maps of each probe hold; a probe of which that cannot be told is not among them."""

    def shed(self, name: str, reason: str) -> None:
        """Take a probe off."""

    def restore(self, name: str, again_s: float) -> bool:
        """Put a probe back; where that fails, have its state say after how long it is tried again."""

    def spell(self, length_s: float) -> Awaitable[Mapping[str, Spell]]:
        """Let the kernel count for a moment what the programs cost."""


@dataclass(frozen=True)
class Meters:
    """Where the governor reads time and use; CPU times in seconds, cumulative."""

    own_cpu_s: Callable[[], float]
    busy_cpu_s: Callable[[], float]
    spans: Callable[[], int]
    cpus: int
    resident_bytes: Callable[[], int]
    monotonic_s: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class _Reading:
    at_s: float
    counted_s: float
    own_s: float
    busy_s: float
    spans: int
    by_probe_s: Mapping[str, float]


@dataclass(frozen=True)
class _Look:
    """What was found: use and limits by measure, and the costs of each probe."""

    at_s: float
    used: Costs
    limits: Costs
    by_probe: Mapping[str, Costs]

    @property
    def over(self) -> Sequence[Cost]:
        return [cost for cost in Cost if self.used[cost] > self.limits[cost]]


@dataclass
class Governor:
    """`look` decides, `run` looks again and again."""

    probes: Governed
    meters: Meters
    book: CostBook
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        self.used: Costs = {}
        """Use by measure as of the last look; nothing before the first."""
        self.sheds: Counter[str] = Counter()
        self._strikes = 0
        self._shed: dict[str, Shed] = {}
        self._complained_of: Sequence[Cost] = ()
        self._start_unix_ns = time.time_ns()
        self._last = self._read()
        self.book.charge(self.probes.events())

    async def run(self) -> None:
        """Look for ever, and calibrate now and then."""
        due_s = self.meters.monotonic_s()
        while True:
            if self.meters.monotonic_s() >= due_s:
                self.book.calibrate(await self.probes.spell(self.budget.spell_s))
                due_s = self.meters.monotonic_s() + self.budget.calibrate_s
            await asyncio.sleep(self.budget.look_s)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Measure since the last look; shed or restore at most one probe.

        A look that finds no new reading of the probes says nothing, and the next one covers its time as well.
        """
        before, now, events = self._last, self._read(), self.probes.events()
        if now.at_s <= before.at_s or (events and now.counted_s <= before.counted_s):
            return
        self._last = now
        found = self._measure(before, now, self.book.charge(events))
        self.used = found.used
        self._strikes = self._strikes + 1 if found.over else 0
        if self._strikes >= self.budget.strikes:
            self._strikes = 0
            self._shed_costliest(found)
        self._restore_one(found)

    def _measure(self, before: _Reading, now: _Reading, spent_s: Mapping[str, float]) -> _Look:
        length_s = now.at_s - before.at_s
        counted_s = max(now.counted_s - before.counted_s, 1e-9)
        cpus = self.meters.cpus
        busy_cores = max((now.busy_s - before.busy_s) / length_s, self.budget.idle_share * cpus)
        maps_bytes = self.probes.memory_bytes()
        used = {
            Cost.IMPOSED: sum(spent_s.values()) / counted_s / busy_cores,
            Cost.OWN: (now.own_s - before.own_s) / length_s,
            Cost.MEMORY: self.meters.resident_bytes() + sum(maps_bytes.values()),
        }
        by_probe = {
            name: {
                Cost.IMPOSED: spent / counted_s / busy_cores,
                Cost.OWN: (now.by_probe_s.get(name, 0.0) - before.by_probe_s.get(name, 0.0)) / length_s,
                Cost.MEMORY: float(maps_bytes.get(name, 0)),
            }
            for name, spent in spent_s.items()
        }  # fmt: skip
        limits = self.budget.limits((now.spans - before.spans) / length_s, cpus)
        return _Look(now.at_s, used, limits, by_probe)

    def _shed_costliest(self, found: _Look) -> None:
        for cost in found.over:
            least = self.budget.relevant * found.limits[cost]
            worth = [name for name, costs in found.by_probe.items() if costs[cost] >= least]
            if worth:
                self._shed_one(max(worth, key=lambda name: found.by_probe[name][cost]), cost, found)
                return
        if self._complained_of != found.over:
            self._complained_of = found.over
            use = ", ".join(_compared(cost, found) for cost in found.over)
            _log.warning("event=over_budget use=%r probes='none costs enough to matter'", use)

    def _shed_one(self, name: str, cost: Cost, found: _Look) -> None:
        took = describe(cost, found.by_probe[name][cost])
        reason = f"it took {took}; in all {_compared(cost, found)}"
        self.probes.shed(name, reason)
        self.sheds[name] += 1
        wait_s = self.budget.restore_s * 2 ** (self.sheds[name] - 1)
        self._shed[name] = Shed(found.by_probe[name], wait_s, found.at_s)
        self._complained_of = ()
        _log.warning("event=probe_shed probe=%s reason=%r", name, reason)

    def _restore_one(self, found: _Look) -> None:
        """Restore the first probe whose time has come; all of them are asked, so that each knows of its room."""
        budget = self.budget
        due = [
            name
            for name, shed in self._shed.items()
            if shed.may_return(
                found.at_s,
                fits=not found.over and budget.fits(found.used, shed.costs, found.limits),
                despite=budget.despite,
            )
        ]
        if not due or found.over:
            return
        name, shed = due[0], self._shed[due[0]]
        again_s = min(budget.retry_s * 2**shed.failures, budget.retry_most_s)
        if self.probes.restore(name, again_s):
            del self._shed[name]
            _log.warning("event=probe_restored probe=%s", name)
        else:
            shed.failures += 1
            shed.not_before_s = found.at_s + again_s
            _log.warning("event=probe_not_restored probe=%s again_s=%g", name, again_s)

    def own_samples(self) -> list[Sample]:
        """Return the use by each measure, the cost of every probe and how often each was shed."""
        now, start = time.time_ns(), self._start_unix_ns
        samples = [Sample(_METRICS[cost], value, now) for cost, value in self.used.items()]
        for kind, costs in (("imposed", dict(self.book.imposed_s)), ("own", self.probes.own_s())):
            for name, seconds in costs.items():
                keys = {PROBE: name, COST_KIND: kind}
                samples.append(Sample("tailcause.probe.cost", seconds, now, keys, start))
        for name, held in self.probes.memory_bytes().items():
            samples.append(Sample("tailcause.probe.memory", held, now, {PROBE: name}))
        for name, count in dict(self.sheds).items():
            samples.append(Sample("tailcause.governor.sheds", count, now, {PROBE: name}, start))
        return samples

    def _read(self) -> _Reading:
        meters, probes = self.meters, self.probes
        at_s = meters.monotonic_s()
        return _Reading(
            at_s, probes.counted_s(), meters.own_cpu_s(), meters.busy_cpu_s(), meters.spans(), dict(probes.own_s())
        )  # fmt: skip


_METRICS = {
    Cost.OWN: "tailcause.governor.own_cpu",
    Cost.IMPOSED: "tailcause.governor.imposed_cpu",
    Cost.MEMORY: "tailcause.governor.memory",
}


def _compared(cost: Cost, found: _Look) -> str:
    return (
        f"{describe(cost, found.used[cost])}, with a budget of {describe(cost, found.limits[cost])}"
    )
