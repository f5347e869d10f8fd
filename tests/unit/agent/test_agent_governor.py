"""The governor measures, sheds the costliest probe when over budget for a while, and restores it when there is room."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest import approx  # noqa: PT013  reads better in comparisons

from agent.governor import Governor, Meters
from agent.probecost import CostBook
from agent.probes import Spell

TRAP_NS = 1500.0


@dataclass
class Session:
    """A session of probes whose figures the test sets."""

    counts: dict[str, int] = field(default_factory=dict)
    reading_s: dict[str, float] = field(default_factory=dict)
    told: list[tuple[str, str]] = field(default_factory=list)

    def events(self) -> Mapping[str, int]:
        """Return events."""
        return dict(self.counts)

    def own_s(self) -> Mapping[str, float]:
        """Return CPU time."""
        return dict(self.reading_s)

    def shed(self, name: str, reason: str) -> None:
        """Note it; a probe that is off has no events."""
        assert reason
        self.told.append(("shed", name))
        del self.counts[name]

    def restore(self, name: str) -> bool:
        """Note it; a probe that is attached anew counts from 0."""
        self.told.append(("restore", name))
        self.counts[name] = 0
        return True

    async def spell(self, length_s: float) -> Mapping[str, Spell]:
        """Return what a spell found: 200 ns an event."""
        assert length_s > 0
        return {name: Spell(1000, 200_000) for name in self.counts}


@dataclass
class Machine:
    """A machine on which every look lies 5 s after the last."""

    session: Session
    own_cores: float = 0.01
    busy_cores: float = 1.0
    spans_per_s: float = 0.0
    now_s: float = 0.0
    own_s: float = 0.0
    busy_s: float = 0.0
    spans: float = 0.0

    def governor(self) -> Governor:
        """Return a calibrated governor of it."""
        meters = Meters(
            lambda: self.own_s, lambda: self.busy_s, lambda: int(self.spans), 2, lambda: self.now_s
        )
        book = CostBook(lambda _: TRAP_NS)
        book.calibrate(asyncio.run(self.session.spell(0.1)))
        made = Governor(self.session, meters, book)
        made.look()
        return made

    def go_on(self, governor: Governor, looks: int, events_per_s: Mapping[str, float]) -> None:
        """Let time pass."""
        for _ in range(looks):
            self.now_s += 5
            self.own_s += 5 * self.own_cores
            self.busy_s += 5 * self.busy_cores
            self.spans += 5 * self.spans_per_s
            for name, rate in events_per_s.items():
                if name in self.session.counts:
                    self.session.counts[name] += int(5 * rate)
            governor.look()


def test_imposed_cost_is_events_times_ns() -> None:
    """25 000 events/s of 200 ns are half a percent of one busy core; a uprobe pays its trap as well."""
    machine = Machine(Session({"sched": 0, "span": 0}))
    governor = machine.governor()
    machine.go_on(governor, 1, {"sched": 25_000, "span": 1_000})
    assert governor.imposed_share == approx(0.005 + 0.0017)
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


def test_probe_comes_back_after_a_while() -> None:
    """It is tried again after eight minutes even where its old cost would not fit, then waits twice as long."""
    machine = Machine(Session({"sched": 0}))
    governor = machine.governor()
    machine.go_on(governor, 3, {"sched": 90_000})
    machine.go_on(governor, 96, {})
    assert machine.session.told == [("shed", "sched")]
    machine.go_on(governor, 1, {})
    assert machine.session.told[1:] == [("restore", "sched")]
    machine.go_on(governor, 4, {"sched": 90_000})
    machine.go_on(governor, 190, {})
    assert machine.session.told[2:] == [("shed", "sched")]
    machine.go_on(governor, 3, {})
    assert machine.session.told[3:] == [("restore", "sched")]


def test_probe_that_fits_again_comes_back_in_a_minute() -> None:
    """With more CPU in use its old cost is a smaller share: there is room."""
    machine = Machine(Session({"blkio": 0, "sched": 0}))
    governor = machine.governor()
    machine.go_on(governor, 3, {"blkio": 20_000, "sched": 35_000})
    assert machine.session.told == [("shed", "sched")]
    machine.session.told.clear()
    governor._shed["sched"].imposed_share = 0.002
    machine.go_on(governor, 14, {"blkio": 10_000})
    assert machine.session.told == [("restore", "sched")]


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
