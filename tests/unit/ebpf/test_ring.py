"""The ring of serving threads: whose waits speak for an interval, bounds, exits, and samples that cannot be right."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from ebpf.layout import SAMPLE, WAITS, Wait
from ebpf.ring import Ring

MS = 1_000_000
START_NS = 1_000_000 * MS


@dataclass
class Thread:
    """A thread whose life the test writes."""

    pid: int
    tid: int
    waits_ns: list[int] = field(default_factory=lambda: [0] * WAITS)
    current: Wait = Wait.POLL
    since_ns: int = START_NS
    started_ns: int = 5
    asleep: bool = False

    def pack(self, at_ns: int) -> bytes:
        """Return it as the iterator would."""
        return SAMPLE.pack(
            self.pid, self.tid, self.started_ns, self.since_ns, self.current, self.asleep, at_ns,
            sum(self.waits_ns), f"thread-{self.tid}".encode(), *(ns // 1000 for ns in self.waits_ns),
        )  # fmt: skip

    def go_on(self, to_ns: int, following: Wait, **milliseconds: int) -> None:
        """Let it do things until a moment, and begin another."""
        rest = to_ns - self.since_ns
        for name, value in milliseconds.items():
            self.waits_ns[Wait[name.upper()]] += value * MS
            rest -= value * MS
        self.waits_ns[self.current] += rest
        self.since_ns, self.current = to_ns, following


class Machine:
    """The threads, the clock, and the ring that looks at them every 100 ms."""

    def __init__(self, *threads: Thread, max_threads: int = 256) -> None:
        self.threads = list(threads)
        self.now_ns = START_NS
        self.ring = Ring(self, max_threads, lambda: self.now_ns)
        self.ring.sample()

    def sample(self) -> bytes:
        """Return all threads as they are now."""
        return b"".join(thread.pack(self.now_ns) for thread in self.threads)

    def slot(self) -> None:
        """Let 100 ms pass and look."""
        self.now_ns += 100 * MS
        self.ring.sample()

    def waits(self, start_ms: int, end_ms: int, *pids: int) -> tuple[int, dict[str, Any]]:
        """Return the chosen thread and its waits in milliseconds."""
        base_s = START_NS / 1e9
        found = self.ring.waits_between(
            pids or {thread.pid for thread in self.threads},
            base_s + start_ms / 1e3,
            base_s + end_ms / 1e3,
        )
        assert found is not None
        return found.tid, {
            wait.name.lower(): pytest.approx(seconds * 1e3, abs=0.1)
            for wait, seconds in found.waits_s.items()
            if seconds > 1e-5
        }


def working(machine: Machine, thread: Thread, slots: int, cpu_ms: int) -> None:
    """Let a thread work in each of some slots, and sleep for the rest of it."""
    for _ in range(slots):
        thread.go_on(machine.now_ns + 100 * MS, Wait.NETWORK, cpu=cpu_ms)
        machine.slot()


def test_thread_that_works_speaks_for_the_interval() -> None:
    """The API process polls, the engine works: the engine's waits are returned."""
    api, engine = Thread(10, 10), Thread(20, 20, current=Wait.CPU)
    machine = Machine(api, engine)
    working(machine, engine, 5, 80)

    assert machine.waits(0, 500) == (20, {"cpu": 400 + 20, "network": 80})


def test_starved_thread_is_the_critical_one() -> None:
    """A thread that gets no CPU has worked as little as an idle one, but it has wanted to."""
    idle, starved = Thread(10, 10), Thread(20, 20, current=Wait.RUNQUEUE)
    machine = Machine(idle, starved)
    idle.go_on(machine.now_ns + 60 * MS, Wait.POLL, cpu=30)
    for _ in range(4):
        machine.slot()

    assert machine.waits(0, 400) == (20, {"runqueue": 400})


def test_blocked_worker_counts_and_idle_worker_does_not() -> None:
    """Both wait for a lock all the time; only one has worked in the last two minutes."""
    idle, worker = Thread(20, 21, current=Wait.LOCK), Thread(20, 22, current=Wait.CPU)
    machine = Machine(idle, worker)
    working(machine, worker, 3, 50)
    worker.go_on(machine.now_ns + 1 * MS, Wait.LOCK)
    for _ in range(5):
        machine.slot()

    assert machine.waits(310, 800)[0] == 22


def test_blocked_worker_goes_before_one_that_hardly_works() -> None:
    """An API thread that spends 6 % of the request on the CPU is not where it was held up."""
    api, engine = Thread(10, 10), Thread(20, 20, current=Wait.CPU)
    machine = Machine(api, engine)
    working(machine, engine, 5, 50)
    engine.go_on(machine.now_ns + 1 * MS, Wait.SLEEP)
    for _ in range(10):
        api.go_on(machine.now_ns + 100 * MS, Wait.POLL, cpu=6)
        machine.slot()

    assert machine.waits(501, 1500) == (20, {"sleep": 999})


def test_only_the_processes_asked_for_are_considered() -> None:
    """A busier process elsewhere does not matter."""
    served, other = Thread(10, 10, current=Wait.CPU), Thread(20, 20, current=Wait.CPU)
    machine = Machine(served, other)
    served.go_on(machine.now_ns + 10 * MS, Wait.NETWORK)
    machine.slot()

    assert machine.waits(0, 100, 10) == (10, {"cpu": 10, "network": 90})


def test_span_that_has_just_ended_is_sampled_on_demand() -> None:
    """Its last 70 ms came after the last regular sample."""
    engine = Thread(20, 20, current=Wait.CPU)
    machine = Machine(engine)
    machine.slot()
    machine.now_ns += 70 * MS

    assert machine.waits(0, 170) == (20, {"cpu": 170})


def test_late_span_finds_what_is_left() -> None:
    """Two minutes later the interval is out of reach, for a thread that is still there and for one that is gone."""
    engine, gone = Thread(20, 20, current=Wait.CPU), Thread(21, 21, current=Wait.CPU)
    machine = Machine(engine, gone)
    machine.slot()
    machine.threads.remove(gone)
    for _ in range(1190):
        machine.slot()
    assert machine.waits(0, 100, 21) == (21, {"cpu": 100})
    for _ in range(30):
        machine.slot()

    base_s = START_NS / 1e9
    assert machine.ring.waits_between({20, 21}, base_s, base_s + 0.1) is None
    assert len(machine.ring) == 1


def test_gap_in_the_samples_loses_no_time() -> None:
    """The sampler stood still for 700 ms: the counters bridge it."""
    engine = Thread(20, 20, current=Wait.CPU)
    machine = Machine(engine)
    machine.slot()
    machine.now_ns += 700 * MS
    engine.go_on(machine.now_ns, Wait.NETWORK, cpu=300, disk=200)
    machine.slot()

    assert machine.waits(0, 800)[1] == {"cpu": 600, "disk": 200}


def test_number_of_an_exited_thread_is_not_mixed_up() -> None:
    """The same pid and tid with another start time is another thread."""
    first = Thread(20, 20, current=Wait.CPU)
    machine = Machine(first)
    machine.slot()
    machine.threads[:] = [
        Thread(20, 20, current=Wait.SLEEP, started_ns=99, since_ns=machine.now_ns + 50 * MS)
    ]
    machine.now_ns += 50 * MS
    machine.slot()

    assert machine.waits(0, 100)[1] == {"cpu": 100}
    assert machine.waits(160, 250)[1] == {"sleep": 90}
    assert dict(machine.ring.dropped) == {}


def test_sample_that_does_not_add_up_is_dropped() -> None:
    """Read while it changed: its waits exceed its time. The next good one goes on."""
    engine = Thread(20, 20, current=Wait.CPU)
    machine = Machine(engine)
    machine.slot()
    good = list(engine.waits_ns)
    engine.waits_ns[Wait.SLEEP] += 10_000 * MS
    engine.since_ns += 1
    machine.slot()
    engine.waits_ns[:], engine.since_ns = good, START_NS
    engine.go_on(machine.now_ns, Wait.NETWORK)
    machine.slot()

    assert dict(machine.ring.dropped) == {"torn": 1}
    assert machine.waits(0, 300)[1] == {"cpu": 200, "network": 100}


def test_history_begins_again_when_a_process_was_not_watched() -> None:
    """Its counters have stood still meanwhile: what came before is forgotten, nothing is made up."""
    engine = Thread(20, 20, current=Wait.CPU)
    machine = Machine(engine)
    machine.slot()
    machine.now_ns += 5000 * MS
    engine.since_ns = machine.now_ns
    machine.slot()
    engine.go_on(machine.now_ns, Wait.NETWORK)
    machine.slot()

    assert dict(machine.ring.dropped) == {"torn": 1, "restarted": 1}
    assert machine.waits(5200, 5300)[1] == {"network": 100}


def test_more_threads_than_fit_are_counted() -> None:
    """Two of five working threads find no room."""
    machine = Machine(*(Thread(20, tid, current=Wait.CPU) for tid in range(5)), max_threads=3)

    assert len(machine.ring) == 3
    assert dict(machine.ring.dropped) == {"overflow": 2}


def test_idle_thread_makes_room_for_one_that_works() -> None:
    """A thread that has not moved for a minute tells nothing that is worth a place."""
    idle, busy = Thread(20, 1), Thread(20, 2, current=Wait.CPU)
    machine = Machine(idle, busy, max_threads=2)
    for _ in range(610):
        machine.slot()
    machine.threads.append(Thread(20, 3, current=Wait.CPU, since_ns=machine.now_ns))
    machine.slot()

    assert machine.waits(61_010, 61_090)[0] in {2, 3}
    assert machine.ring.dropped["overflow"] <= 1  # the idle one itself, which finds no room now


def test_idle_threads_cost_one_point() -> None:
    """Two hundred idle threads for 20 s hold no more than a point each."""
    machine = Machine(*(Thread(20, tid, current=Wait.LOCK) for tid in range(200)))
    for _ in range(200):
        machine.slot()

    assert machine.ring.bytes_used == 200 * (8 + 4 * WAITS)
