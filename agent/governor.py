"""Keeps the agent within its budget: measures, takes the costliest probe off, puts it back when there is room.

Own CPU may not exceed 3 % of a core, plus 50 us for each span that passes through. What the probes take from others may
not exceed 1 % of the CPU time that is in use. Over budget for three looks in a row: the probe that costs most in the
budget that is exceeded goes. It comes back when there has been room for it for a minute; each time it had to go, that
minute doubles.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent.probecost import CostBook
from agent.probes import Spell
from agent.telemetry.keys import COST_KIND, PROBE
from agent.telemetry.model import Sample

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Budget:
    """What the agent may cost, and how it is watched."""

    own_cores: float = 0.03
    imposed_share: float = 0.01
    span_s: float = 50e-6
    idle_share: float = 0.05
    """An idle machine counts as busy by this share, so that no probe goes for a cost that nobody feels."""
    look_s: float = 5.0
    calibrate_s: float = 30.0
    spell_s: float = 0.1
    strikes: int = 3
    restore_s: float = 60.0
    room: float = 0.8
    relevant: float = 0.1
    """A probe with less than this share of the budget is not worth taking off."""


class Governed(Protocol):
    """The probes as the governor sees them."""

    def events(self) -> Mapping[str, int]:
        """Return cumulative events by probe that is on."""

    def own_s(self) -> Mapping[str, float]:
        """Return the agent's cumulative CPU time for each probe."""

    def shed(self, name: str, reason: str) -> None:
        """Take a probe off."""

    def restore(self, name: str) -> bool:
        """Put a probe back."""

    def spell(self, length_s: float) -> Awaitable[Mapping[str, Spell]]:
        """Let the kernel count for a moment what the programs cost."""


@dataclass(frozen=True)
class Meters:
    """Where the governor reads time and use; CPU times in seconds, cumulative."""

    own_cpu_s: Callable[[], float]
    busy_cpu_s: Callable[[], float]
    spans: Callable[[], int]
    cpus: int
    monotonic_s: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class _Reading:
    at_s: float
    own_s: float
    busy_s: float
    spans: int
    by_probe_s: Mapping[str, float]


@dataclass
class _Shed:
    """A probe that was taken off: what it cost by either measure, and since when there is room for it."""

    own_cores: float
    imposed_share: float
    room_since_s: float | None = None


@dataclass
class Governor:
    """`look` decides, `run` looks again and again."""

    probes: Governed
    meters: Meters
    book: CostBook
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        self.own_cores = 0.0
        self.imposed_share = 0.0
        self.sheds: Counter[str] = Counter()
        self._strikes = 0
        self._shed: dict[str, _Shed] = {}
        self._start_unix_ns = time.time_ns()
        self._last = self._read()
        self._settled = False

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
        """Measure since the last look; shed or restore at most one probe."""
        before, now = self._last, self._read()
        length_s = now.at_s - before.at_s
        spent_s = self.book.charge(self.probes.events())
        if length_s <= 0:
            return
        self._last = now
        own_s = {n: s - before.by_probe_s.get(n, 0.0) for n, s in now.by_probe_s.items()}
        floor_s = self.budget.idle_share * length_s * self.meters.cpus
        busy_s = max(now.busy_s - before.busy_s, floor_s)
        self.own_cores = (now.own_s - before.own_s) / length_s
        self.imposed_share = sum(spent_s.values()) / busy_s
        self._settled = True
        allowed = self.budget.own_cores
        allowed += self.budget.span_s * (now.spans - before.spans) / length_s
        costs = {
            name: _Shed(own_s.get(name, 0.0) / length_s, spent / busy_s)
            for name, spent in spent_s.items()
        }
        over_own, over_imposed = (
            self.own_cores > allowed,
            self.imposed_share > self.budget.imposed_share,
        )
        self._strikes = self._strikes + 1 if over_own or over_imposed else 0
        if self._strikes >= self.budget.strikes:
            self._shed_costliest(costs, imposed=over_imposed)
        elif not self._strikes:
            self._restore_one(allowed, now.at_s)

    def _shed_costliest(self, costs: Mapping[str, _Shed], *, imposed: bool) -> None:
        self._strikes = 0
        limit = self.budget.imposed_share if imposed else self.budget.own_cores

        def cost(name: str) -> float:
            return costs[name].imposed_share if imposed else costs[name].own_cores

        worth = [name for name in costs if cost(name) >= self.budget.relevant * limit]
        if not worth:
            _log.warning(
                "event=over_budget own_cores=%.4f imposed_share=%.4f probes='none costs enough to matter'",
                self.own_cores, self.imposed_share,
            )  # fmt: skip
            return
        name = max(worth, key=cost)
        what = "of the CPU time in use" if imposed else "of a core in the agent"
        reason = f"it took {100 * cost(name):.2f} % {what}, over a budget of {100 * limit:g} %"
        self.probes.shed(name, reason)
        self.sheds[name] += 1
        self._shed[name] = costs[name]
        _log.warning("event=probe_shed probe=%s reason=%r", name, reason)

    def _restore_one(self, allowed: float, now_s: float) -> None:
        for name, shed in list(self._shed.items()):
            fits = (
                self.own_cores + shed.own_cores <= self.budget.room * allowed
                and self.imposed_share + shed.imposed_share
                <= self.budget.room * self.budget.imposed_share
            )
            # its cost then says nothing of its cost now: after a while it is tried all the same
            wait_s = self.budget.restore_s * 2 ** (self.sheds[name] - 1) * (1 if fits else 8)
            if shed.room_since_s is None:
                shed.room_since_s = now_s
            elif now_s - shed.room_since_s >= wait_s and self.probes.restore(name):
                del self._shed[name]
                _log.warning("event=probe_restored probe=%s", name)
                return

    def own_samples(self) -> list[Sample]:
        """Return the two shares, the cost of every probe and how often each was shed."""
        now = time.time_ns()
        samples = []
        if self._settled:
            samples = [
                Sample("tailcause.governor.own_cpu", self.own_cores, now),
                Sample("tailcause.governor.imposed_cpu", self.imposed_share, now),
            ]
        for kind, costs in (("imposed", dict(self.book.imposed_s)), ("own", self.probes.own_s())):
            for name, seconds in costs.items():
                keys = {PROBE: name, COST_KIND: kind}
                samples.append(
                    Sample("tailcause.probe.cost", seconds, now, keys, self._start_unix_ns)
                )
        for name, count in dict(self.sheds).items():
            samples.append(
                Sample("tailcause.governor.sheds", count, now, {PROBE: name}, self._start_unix_ns)
            )
        return samples

    def _read(self) -> _Reading:
        meters = self.meters
        return _Reading(
            meters.monotonic_s(),
            meters.own_cpu_s(),
            meters.busy_cpu_s(),
            meters.spans(),
            dict(self.probes.own_s()),
        )
