"""The governor measures, sheds the costliest probe when over budget for a while, and restores it when there is room."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from pytest import approx  # noqa: PT013  reads better in comparisons

from agent import kernelside
from agent.budget import Budget, Cost
from agent.config import Config
from agent.enrich import Enricher
from agent.governor import Governor, Meters
from agent.host.hierarchies import Hierarchies
from agent.probecost import CostBook
from agent.probes import Spell

TRAP_NS = 1500.0


@dataclass
class Session:
    """A session of probes whose figures the test sets."""

    counts: dict[str, int] = field(default_factory=dict)
    reading_s: dict[str, float] = field(default_factory=dict)
    told: list[tuple[str, str]] = field(default_factory=list)
    maps: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    read_at_s: float = 0.0
    broken: int = 0
    """How many attempts to restore a probe fail."""
    waits_s: list[float] = field(default_factory=list)

    def events(self) -> Mapping[str, int]:
        """Return events."""
        return dict(self.counts)

    def counted_s(self) -> float:
        """Return when they were read."""
        return self.read_at_s

    def memory_bytes(self) -> Mapping[str, int]:
        """Return what the maps of those that are on hold."""
        return {name: held for name, held in self.maps.items() if name in self.counts}

    def own_s(self) -> Mapping[str, float]:
        """Return CPU time."""
        return dict(self.reading_s)

    def shed(self, name: str, reason: str) -> None:
        """Note it; a probe that is off has no events."""
        self.reasons.append(reason)
        self.told.append(("shed", name))
        del self.counts[name]

    def restore(self, name: str, again_s: float) -> bool:
        """Note it; a probe that is attached anew counts from 0."""
        self.waits_s.append(again_s)
        if self.broken:
            self.broken -= 1
            return False
        self.told.append(("restore", name))
        self.counts[name] = 0
        return True

    async def spell(self, length_s: float) -> Mapping[str, Spell]:
        """Return what a spell found: 200 ns an event."""
        assert length_s > 0
        return {name: Spell(1000, 200_000) for name in self.counts}


@dataclass
class Machine:
    """A machine on which every look lies `look_s` after the last, and the probes are read every `interval_s`."""

    session: Session
    own_cores: float = 0.01
    busy_cores: float = 1.0
    spans_per_s: float = 0.0
    resident_bytes: float = 50e6
    look_s: float = 5.0
    interval_s: float = 5.0
    now_s: float = 0.0
    own_s: float = 0.0
    busy_s: float = 0.0
    spans: float = 0.0
    true: dict[str, float] = field(default_factory=dict)
    """Events that no reading has found yet."""

    def governor(self) -> Governor:
        """Return a calibrated governor of it."""
        meters = Meters(
            lambda: self.own_s, lambda: self.busy_s, lambda: int(self.spans), 2,
            lambda: int(self.resident_bytes), lambda: self.now_s,
        )  # fmt: skip
        book = CostBook(lambda _: TRAP_NS)
        book.calibrate(asyncio.run(self.session.spell(0.1)))
        made = Governor(self.session, meters, book)
        made.look()
        return made

    def go_on(self, governor: Governor, looks: int, events_per_s: Mapping[str, float]) -> None:
        """Let time pass."""
        for _ in range(looks):
            self.now_s += self.look_s
            self.own_s += self.look_s * self.own_cores
            self.busy_s += self.look_s * self.busy_cores
            self.spans += self.look_s * self.spans_per_s
            for name, rate in events_per_s.items():
                self.true[name] = self.true.get(name, 0.0) + self.look_s * rate
            if self.now_s - self.session.read_at_s >= self.interval_s:
                self._read()
            governor.look()

    def _read(self) -> None:
        self.session.read_at_s = self.now_s
        for name in self.session.counts:
            self.session.counts[name] += int(self.true.get(name, 0.0))
        self.true.clear()


def test_imposed_cost_is_events_times_ns() -> None:
    """25 000 events/s of 200 ns are half a percent of one busy core; a uprobe pays its trap as well."""
    machine = Machine(Session({"sched": 0, "span": 0}))
    governor = machine.governor()
    machine.go_on(governor, 1, {"sched": 25_000, "span": 1_000})
    assert governor.used[Cost.IMPOSED] == approx(0.005 + 0.0017)
    assert governor.book.imposed_s == approx({"sched": 0.025, "span": 0.0085})


def test_within_budget_nothing_goes() -> None:
    """Under both budgets all probes stay."""
    machine = Machine(Session({"sched": 0}))
    machine.go_on(machine.governor(), 20, {"sched": 25_000})
    assert machine.session.told == []


def test_costliest_probe_goes_first() -> None:
    """Over the victims' budget for three looks: the probe that imposes most goes, once."""
    machine = Machine(Session({"sched": 0, "blkio": 0}))
    governor = machine.governor()
    machine.go_on(governor, 2, {"sched": 30_000, "blkio": 40_000})
    assert machine.session.told == []
    machine.go_on(governor, 2, {"sched": 30_000, "blkio": 40_000})
    assert machine.session.told == [("shed", "blkio")]
    shed = [s for s in governor.own_samples() if s.metric == "tailcause.governor.sheds"]
    assert [(s.value, dict(s.attributes)) for s in shed] == [(1, {"tailcause.probe.name": "blkio"})]


def test_own_cost_sheds_what_costs_the_agent() -> None:
    """Over the agent's own budget the probe whose reading takes most goes, however little it imposes."""
    machine = Machine(Session({"sched": 0, "tcp": 0}, {"tcp": 0.0}), own_cores=0.05)
    governor = machine.governor()
    for _ in range(3):
        machine.session.reading_s["tcp"] += 0.1
        machine.go_on(governor, 1, {"sched": 10_000})
    assert machine.session.told == [("shed", "tcp")]


def test_spans_passing_through_widen_the_budget() -> None:
    """The work of forwarding 1 000 spans/s is no reason to take probes off."""
    machine = Machine(Session({"tcp": 0}, {"tcp": 0.0}), own_cores=0.07, spans_per_s=1000)
    governor = machine.governor()
    for _ in range(4):
        machine.session.reading_s["tcp"] += 0.1
        machine.go_on(governor, 1, {})
    assert machine.session.told == []


def test_probes_that_cost_nothing_stay() -> None:
    """An agent that is over budget for another reason keeps its probes."""
    machine = Machine(Session({"sched": 0}), own_cores=0.2)
    machine.go_on(machine.governor(), 5, {"sched": 100})
    assert machine.session.told == []


def test_short_excess_is_forgiven() -> None:
    """Two looks over, one under: the count begins again."""
    machine = Machine(Session({"sched": 0}))
    governor = machine.governor()
    for _ in range(3):
        machine.go_on(governor, 2, {"sched": 90_000})
        machine.go_on(governor, 1, {"sched": 1_000})
    assert machine.session.told == []


def test_idle_machine_is_no_victim() -> None:
    """On an idle machine a probe's share of the little that runs is no reason to take it off."""
    machine = Machine(Session({"sched": 0}), busy_cores=0.001)
    machine.go_on(machine.governor(), 5, {"sched": 2_000})
    assert machine.session.told == []


def test_rare_readings_are_judged_by_their_own_time() -> None:
    """Probes that are read every 15 s are over budget as well: looks without a new reading neither count nor forgive."""
    machine = Machine(Session({"sched": 0}), interval_s=15)
    governor = machine.governor()
    machine.go_on(governor, 8, {"sched": 90_000})
    assert machine.session.told == []
    machine.go_on(governor, 1, {"sched": 90_000})
    assert machine.session.told == [("shed", "sched")]


def test_share_does_not_depend_on_how_often_probes_are_read() -> None:
    """A reading of 7 s of events, looked at after 10 s, is charged to its own 7 s."""
    machine = Machine(Session({"sched": 0}), look_s=1, interval_s=7)
    governor = machine.governor()
    machine.go_on(governor, 7, {"sched": 25_000})
    machine.look_s = 10
    machine.go_on(governor, 1, {"sched": 25_000})
    assert governor.used[Cost.IMPOSED] == approx(0.005)


def test_probe_comes_back_after_a_while() -> None:
    """It is tried again after eight minutes even where its old cost would not fit, then waits twice as long."""
    machine = Machine(Session({"sched": 0}))
    governor = machine.governor()
    machine.go_on(governor, 3, {"sched": 90_000})
    machine.go_on(governor, 95, {})
    assert machine.session.told == [("shed", "sched")]
    machine.go_on(governor, 1, {})
    assert machine.session.told[1:] == [("restore", "sched")]
    machine.go_on(governor, 4, {"sched": 90_000})
    machine.go_on(governor, 190, {})
    assert machine.session.told[2:] == [("shed", "sched")]
    machine.go_on(governor, 3, {})
    assert machine.session.told[3:] == [("restore", "sched")]


def shed_sched(machine: Machine) -> Governor:
    """Return a governor that has shed a probe which would fit, had the machine as much to do as now."""
    machine.busy_cores = 1.0
    governor = machine.governor()
    machine.go_on(governor, 3, {"sched": 60_000})
    assert machine.session.told == [("shed", "sched")]
    machine.session.told.clear()
    governor._shed["sched"].costs = {Cost.IMPOSED: 0.002}
    return governor


def test_probe_that_fits_again_comes_back_in_a_minute() -> None:
    """There is room for it from the first look on: it comes back at the first look a minute after that."""
    machine = Machine(Session({"blkio": 0, "sched": 0}))
    governor = shed_sched(machine)
    machine.go_on(governor, 12, {"blkio": 10_000})
    assert machine.session.told == []
    machine.go_on(governor, 1, {"blkio": 10_000})
    assert machine.session.told == [("restore", "sched")]


def test_room_must_last_for_the_whole_minute() -> None:
    """One look without room, in the middle of the minute: the minute begins again."""
    machine = Machine(Session({"blkio": 0, "sched": 0}))
    governor = shed_sched(machine)
    machine.go_on(governor, 10, {"blkio": 10_000})
    machine.go_on(governor, 1, {"blkio": 35_000})
    machine.go_on(governor, 12, {"blkio": 10_000})
    assert machine.session.told == []
    machine.go_on(governor, 1, {"blkio": 10_000})
    assert machine.session.told == [("restore", "sched")]


def test_being_over_budget_is_no_room() -> None:
    """The agent's own use leaves no room for a probe that would cost it nothing."""
    machine = Machine(Session({"blkio": 0, "sched": 0}))
    governor = shed_sched(machine)
    machine.go_on(governor, 10, {"blkio": 10_000})
    machine.own_cores = 0.05
    machine.go_on(governor, 1, {"blkio": 10_000})
    machine.own_cores = 0.01
    machine.go_on(governor, 12, {"blkio": 10_000})
    assert machine.session.told == []


def test_restore_that_fails_is_tried_ever_more_rarely() -> None:
    """Ten seconds, then twice as long each time, ten minutes at most; each attempt is told the next one's delay."""
    machine = Machine(Session({"blkio": 0, "sched": 0}, broken=9))
    governor = shed_sched(machine)
    machine.go_on(governor, 13, {"blkio": 10_000})
    assert machine.session.waits_s == [10]
    attempts = [machine.now_s]
    while machine.session.broken:
        machine.go_on(governor, 1, {"blkio": 10_000})
        if len(machine.session.waits_s) > len(attempts):
            attempts.append(machine.now_s)
    gaps = [later - earlier for earlier, later in pairwise(attempts)]
    assert gaps == [10, 20, 40, 80, 160, 320, 600, 600]
    assert machine.session.waits_s == [10, 20, 40, 80, 160, 320, 600, 600, 600]
    machine.go_on(governor, 120, {"blkio": 10_000})
    assert machine.session.told == [("restore", "sched")]


def test_memory_sheds_the_largest_maps() -> None:
    """Resident memory and maps count together; over their limit the probe with the largest maps goes, and says so."""
    session = Session({"sched": 0, "blkio": 0}, maps={"sched": 30_000_000, "blkio": 20_000_000})
    machine = Machine(session, resident_bytes=40e6)
    governor = machine.governor()
    machine.go_on(governor, 3, {})
    assert session.told == []
    machine.resident_bytes = 49e6
    machine.go_on(governor, 3, {})
    assert session.told == [("shed", "sched")]
    assert session.reasons == ["it took 30.0 MB; in all 99.0 MB, with a budget of 98.0 MB"]
    assert governor.used[Cost.MEMORY] == 99e6


def test_memory_of_another_reason_takes_no_probe() -> None:
    """An agent that has grown keeps probes with small maps: taking them off would give nothing back."""
    machine = Machine(Session({"sched": 0}, maps={"sched": 4_000_000}), resident_bytes=200e6)
    machine.go_on(machine.governor(), 6, {})
    assert machine.session.told == []


def test_memory_limit_grows_with_the_machine() -> None:
    """The probes count by CPU."""
    limits = [Budget().limits(0, cpus)[Cost.MEMORY] for cpus in (2, 256)]
    assert limits == [98e6, 352e6]


def test_memory_is_exported() -> None:
    """Use in all, and by probe; a probe whose maps cannot be measured is not shown as 0."""
    machine = Machine(Session({"sched": 0, "tcp": 0}, maps={"sched": 5_000_000}))
    governor = machine.governor()
    assert [s for s in governor.own_samples() if s.metric == "tailcause.governor.memory"] == []
    machine.go_on(governor, 1, {})
    found = {(s.metric, *s.attributes.values()): s.value for s in governor.own_samples()}
    assert found["tailcause.governor.memory",] == 55e6
    assert found["tailcause.probe.memory", "sched"] == 5_000_000
    assert ("tailcause.probe.memory", "tcp") not in found


@pytest.mark.parametrize(("interval_s", "look_s"), [(1.0, 5.0), (15.0, 15.0)])
def test_looks_come_no_more_often_than_readings(interval_s: float, look_s: float) -> None:
    """An agent that reads its probes every 15 s has nothing new to look at in between."""
    config = Config(interval=interval_s, ebpf_memory_budget=64)
    nowhere = Hierarchies(())
    enricher = Enricher(config.paths, nowhere, "node-1")
    budget = kernelside.build(config, enricher, nowhere).governor.budget
    assert budget.look_s == look_s
    assert budget.memory_bytes == 64e6


def test_restored_probe_counts_from_its_new_start() -> None:
    """The events of a probe that was attached anew are not subtracted from its old ones."""
    book = CostBook(lambda _: 0.0)
    book.charge({"sched": 1_000_000})
    assert book.charge({"sched": 10}) == approx({"sched": 10 * 100e-9})


def test_too_few_events_leave_the_last_figure() -> None:
    """A spell with hardly any event does not set the cost of one."""
    book = CostBook(lambda _: 0.0)
    book.calibrate({"sched": Spell(1000, 200_000)})
    book.calibrate({"sched": Spell(3, 9_000)})
    assert book.event_ns("sched") == 200
