"""The scheduler probe on workloads of known truth: what the kernel's own counters and runqlat say."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ebpf.layout import FIRST_SLOT_S
from ebpf.probes.sched import Sched
from ebpf.reading import Histogram, Readings
from ebpf.session import Session
from tests.support.kernel_workloads import (
    BURSTS,
    HALF_BUSY,
    HOG,
    PING_PONG,
    SLEEPER,
    Cgroup,
    Gated,
    Switches,
    cgroups,
    running,
    switches,
    wait_until_asleep,
)
from tests.support.probe_session import (
    attached,
    histogram,
    loosely,
    needs_probes,
    number,
)

pytestmark = [pytest.mark.privileged, needs_probes]

PRIME = 997
BURSTS_OF_VICTIM = 53
TRIES = 6
VICTIM_CPU_S = BURSTS_OF_VICTIM * 0.002
CPU = max(os.sched_getaffinity(0))
RUNQLAT = shutil.which("runqlat", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@dataclass(frozen=True)
class Counted:
    """What the probe counted for a cgroup over an interval, and what the kernel did."""

    probe: Histogram
    involuntary: float
    kernel: Switches


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """Attach the scheduler probe for all tests of this file."""
    with attached(Sched()) as started:
        yield started


def read(session: Session) -> Readings:
    """Read the scheduler probe."""
    return session.read()["sched"]


def count_stage(session: Session, program: Gated, cgroup: Cgroup) -> Counted:
    """Run the next stage of a program; every process of its cgroup sleeps before and after."""
    pids = cgroup.pids()
    for pid in pids:
        wait_until_asleep(pid)
    before, kernel_before = read(session), switches(pids)
    program.go().wait_until_done()
    for pid in pids:
        wait_until_asleep(pid)
    after, kernel_after = read(session), switches(pids)
    return Counted(
        probe=difference(
            histogram(after, "runqueue.delay", cgroup.path),
            histogram(before, "runqueue.delay", cgroup.path),
        ),
        involuntary=number(after, "runqueue.involuntary_switches", cgroup=cgroup.path)
        - number(before, "runqueue.involuntary_switches", cgroup=cgroup.path),
        kernel=kernel_after.since(kernel_before),
    )


def difference(after: Histogram, before: Histogram) -> Histogram:
    """Subtract one cumulative histogram from a later one."""
    slots = tuple(a - b for a, b in zip(after.slots, before.slots, strict=True))
    return Histogram(slots, after.sum_s - before.sum_s)


def test_slot_newer_than_the_names_is_named(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cgroup that runs after the names were brought up to date, and before the probe is read, has its name."""
    session.read()
    monkeypatch.setattr(session, "_name_slots", lambda: None)
    with cgroups("late") as [late], Gated(SLEEPER, "97").put(late) as program:
        program.go().wait_until_done()
        readings = read(session)
        assert histogram(readings, "runqueue.delay", late.path).count >= 97


@pytest.fixture
def ping_pong(session: Session) -> Iterator[Counted]:
    """Play a prime number of rounds of ping-pong on one CPU and count the switches."""
    with (
        cgroups("pingpong") as [cgroup],
        Gated(PING_PONG, str(PRIME)).put(cgroup, CPU) as program,
    ):
        program.go().wait_until_done()
        yield count_stage(session, program, cgroup)


def test_switches_are_counted_exactly(ping_pong: Counted) -> None:
    """As many switches as the kernel counted for both players, two to a round at the least."""
    assert ping_pong.kernel.total == ping_pong.probe.count
    assert ping_pong.kernel.total >= 2 * PRIME


def test_involuntary_switches_are_the_kernels(ping_pong: Counted) -> None:
    """Switches away from a thread that could have gone on: as the kernel counts them."""
    assert ping_pong.kernel.involuntary == ping_pong.involuntary


def test_delay_is_the_kernels_to_the_nanosecond(ping_pong: Counted) -> None:
    """The sum of the histogram is what schedstat adds up for the same threads."""
    assert ping_pong.kernel.run_delay_s == pytest.approx(ping_pong.probe.sum_s, abs=2e-9)


def test_histogram_and_sum_agree(ping_pong: Counted) -> None:
    """The sum lies between what the slots' lower and upper bounds would make of it."""
    slots = enumerate(ping_pong.probe.slots)
    lower_s = sum(count * FIRST_SLOT_S * 2.0**i for i, count in slots if i)
    assert lower_s <= ping_pong.probe.sum_s
    assert ping_pong.probe.sum_s <= 2 * lower_s + 2 * FIRST_SLOT_S * ping_pong.probe.count


def test_sleeper_is_not_taken_for_preempted(session: Session) -> None:
    """A thread that sleeps a prime number of times has that many switches, (almost) none involuntary."""
    with (
        cgroups("sleeper") as [cgroup],
        Gated(SLEEPER, str(PRIME)).put(cgroup, CPU) as program,
    ):
        counted = count_stage(session, program, cgroup)
    assert counted.kernel.total == counted.probe.count
    assert counted.kernel.involuntary == counted.involuntary
    assert counted.kernel.voluntary >= PRIME
    assert counted.involuntary <= 0.05 * PRIME


@dataclass(frozen=True)
class Blame:
    """Seconds for which the victim waited, by who held the CPU, and in all."""

    aggressor_s: float
    decoy_s: float
    all_s: float

    def since(self, earlier: "Blame") -> "Blame":
        """Subtract an earlier look."""
        return Blame(
            self.aggressor_s - earlier.aggressor_s,
            self.decoy_s - earlier.decoy_s,
            self.all_s - earlier.all_s,
        )


class Neighbours:
    """A victim and an aggressor on one CPU, and a decoy that is as busy on another."""

    def __init__(self, session: Session, victim: Cgroup, aggressor: Cgroup, decoy: Cgroup) -> None:
        self._session = session
        self._victim, self._aggressor, self._decoy = victim, aggressor, decoy

    def blame(self) -> Blame:
        """Take the victim's row out of the matrix."""
        row = {
            r.labels["aggressor"]: r.value
            for r in read(self._session).series
            if r.metric == "runqueue.wait_on" and r.labels["cgroup"] == self._victim.path
        }
        seconds = {name: value for name, value in row.items() if isinstance(value, float)}
        return Blame(
            seconds.get(self._aggressor.path, 0.0),
            seconds.get(self._decoy.path, 0.0),
            sum(seconds.values()),
        )

    def let_victim_run(self) -> tuple[Blame, Counted, float]:
        """Run the victim; return blame, counts, and which part of what it left of the CPU the aggressor got."""
        with Gated(BURSTS, str(BURSTS_OF_VICTIM)).put(self._victim, CPU) as program:
            wait_until_asleep(program.pid)
            before, had_s, began_s = self.blame(), self._aggressor.cpu_s(), time.monotonic()
            counted = count_stage(self._session, program, self._victim)
            left_s = time.monotonic() - began_s - VICTIM_CPU_S
            got_s = self._aggressor.cpu_s() - had_s
            return self.blame().since(before), counted, got_s / left_s


@pytest.mark.skipif(min(os.sched_getaffinity(0)) == CPU, reason="needs two CPUs")
def test_aggressor_is_named_and_the_decoy_is_not(session: Session) -> None:
    """Who hogs the victim's CPU gets the blame; who is as busy on another CPU gets none at all.

    Where other work takes part of that CPU, the aggressor is due its part of what the victim left of it, no more.
    """
    other_cpu = min(os.sched_getaffinity(0))
    with (
        cgroups("victim", "aggressor", "decoy") as [victim, aggressor, decoy],
        running(HOG, 3, aggressor, CPU),
        running(HOG, 1, decoy, other_cpu),
    ):
        neighbours = Neighbours(session, victim, aggressor, decoy)
        best = 0.0
        for _ in range(TRIES):
            blame, counted, got = neighbours.let_victim_run()
            assert counted.probe.sum_s == pytest.approx(blame.all_s, rel=0.001, abs=1e-6)
            assert blame.decoy_s == 0
            best = max(best, blame.aggressor_s / blame.all_s / min(got, 1.0))
            if best >= loosely(0.9, 0.7):
                break
    assert best >= loosely(0.9, 0.7)


def test_matrix_and_histograms_hold_the_same_time(session: Session) -> None:
    """All that any cgroup waited is charged to somebody."""
    with cgroups("hogs") as [cgroup], running(HOG, 2, cgroup, CPU):
        time.sleep(0.2)
        readings = read(session)
    delays = sum(r.value.sum_s for r in readings.series if isinstance(r.value, Histogram))
    charged = sum(
        r.value
        for r in readings.series
        if r.metric == "runqueue.wait_on" and isinstance(r.value, float)
    )
    assert charged == pytest.approx(delays, rel=0.01, abs=loosely(0.02, 0.2))


def test_pairs_are_bounded_and_the_rest_is_counted() -> None:
    """Of the matrix as many pairs are told as may be; the others show in a count."""
    with attached(Sched(max_pairs=1)) as bounded, cgroups("hogs") as [cgroup]:
        with running(HOG, 2, cgroup, CPU):
            time.sleep(0.2)
        readings = read(bounded)
    assert sum(one.metric == "runqueue.wait_on" for one in readings.series) == 1
    assert readings.left_out >= 1


@pytest.mark.slow
@pytest.mark.skipif(RUNQLAT is None, reason="needs runqlat (libbpf-tools)")
def test_tail_agrees_with_runqlat(session: Session) -> None:
    """Under half-busy processes as many waits past half a millisecond as runqlat counts meanwhile."""
    with cgroups("halfbusy") as [cgroup], running(HALF_BUSY, 6, cgroup, None):
        time.sleep(0.3)
        peer = subprocess.Popen(
            ("stdbuf", "-oL", str(RUNQLAT), "4", "1"), stdout=subprocess.PIPE, text=True
        )
        assert peer.stdout is not None
        assert "Tracing" in peer.stdout.readline()
        before = everyone(read(session))
        theirs = runqlat_tail(line for line in peer.stdout)
        after = everyone(read(session))
        peer.wait()
    ours = tail(difference(after, before))
    assert theirs > 100
    assert ours == pytest.approx(theirs, rel=loosely(0.10, 0.3))


def everyone(readings: Readings) -> Histogram:
    """Add up the run-queue delay of all cgroups."""
    found = [r.value for r in readings.series if isinstance(r.value, Histogram)]
    slots = tuple(sum(column) for column in zip(*(h.slots for h in found), strict=True))
    return Histogram(slots, sum(h.sum_s for h in found))


def tail(delays: Histogram) -> float:
    """Count the waits from 512 us up; that bound lies in the slot from 488 us, taken as evenly filled."""
    first = next(i for i in range(40) if FIRST_SLOT_S * 2.0 ** (i + 1) > 512e-6)
    lower_s = FIRST_SLOT_S * 2.0**first
    return delays.slots[first] * (2 * lower_s - 512e-6) / lower_s + sum(delays.slots[first + 1 :])


def runqlat_tail(lines: Iterator[str]) -> int:
    """Add up runqlat's rows from 512 us up; its table ends with its output."""
    rows = [re.match(r"\s*(\d+) -> \d+\s+: (\d+)", line) for line in lines]
    return sum(int(row[2]) for row in rows if row and int(row[1]) >= 512)
