"""The latency ledger on threads whose time is known from clocks that are not ours."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpf.layout import Wait
from ebpf.probes.sched import Sched
from ebpf.probes.span import SpanProbe, SpanWaits
from ebpf.session import BUILT, Session
from tests.support.kernel_workloads import HOG, LedgerSubject, Truth, cgroups, running
from tests.support.probe_session import attached, close_to, loosely, needs_probes

BUILT_LIBRARY = BUILT / "libtailcause_span.so"
CPU = max(os.sched_getaffinity(0))
PRIME = 997
FILE_MB = 16
READS = 53
TRIES = 5
UNNAMED = {Wait.OTHER}

pytestmark = [
    pytest.mark.privileged,
    needs_probes,
    pytest.mark.skipif(not BUILT_LIBRARY.exists(), reason="needs the span library (a C compiler)"),
]


class Ledger:
    """The probes, and the spans that they have delivered."""

    def __init__(self, library: Path) -> None:
        self.library = library
        self.delivered: dict[str, SpanWaits] = {}
        self.probe = SpanProbe((library,), self._keep)
        self.session: Session | None = None

    def of(self, truth: Truth) -> SpanWaits:
        """Return the ledger of a span, which has finished."""
        self.probe.poll()
        found = self.delivered[truth.span_id]
        assert found.pid == truth.pid
        return found

    def dropped(self, reason: str) -> int:
        """Return one of the span probe's counters of what it could not do."""
        assert self.session is not None
        return self.session.read()["span"].dropped[reason]

    def name_cgroups(self) -> None:
        """Let the session learn the names of the cgroups that exist now."""
        assert self.session is not None
        self.session.read()

    def _keep(self, span: SpanWaits) -> None:
        self.delivered[span.span_id] = span


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """Attach the scheduler and span probes for all tests of this file, to a copy that nobody else calls."""
    copied = tmp_path_factory.mktemp("library") / BUILT_LIBRARY.name
    shutil.copy(BUILT_LIBRARY, copied)
    kept = Ledger(copied)
    with attached(Sched(), kept.probe) as kept.session:
        yield kept


@pytest.fixture
def subject(ledger: Ledger) -> Iterator[LedgerSubject]:
    """Start a subject of our own cgroup, free to run on any CPU."""
    with LedgerSubject(ledger.library) as started:
        started.ask("busy", seconds=0.005)
        yield started


@pytest.fixture
def cold_file(tmp_path: Path) -> Path:
    """Write a file to a disk, so that it can be read cold."""
    path = tmp_path / "cold"
    path.write_bytes(os.urandom(FILE_MB << 20))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    if os.major(path.stat().st_dev) == 0:
        pytest.skip("needs a temporary folder on a disk")
    return path


def wall_s(span: SpanWaits) -> float:
    """Return how long a span took by the probe's clock."""
    return span.end_monotonic_s - span.start_monotonic_s


def named_share(span: SpanWaits) -> float:
    """Return the part of a span's wall time that has a name."""
    named = sum(value for wait, value in span.waits_s.items() if wait not in UNNAMED)
    return named / wall_s(span)


def between(low_s: float, value_s: float, high_s: float) -> bool:
    """Tell whether a time lies between two truths, 5 % or a millisecond allowed at either end."""
    above = value_s >= low_s or close_to(low_s) == value_s
    return bool(above and (value_s <= high_s or close_to(high_s) == value_s))


def disagreements(span: SpanWaits, truth: Truth, wait: Wait | None) -> list[str]:
    """Compare a ledger with the truth; `wait` is what all the blocked (or throttled) time must be called."""
    waits = dict.fromkeys(Wait, 0.0) | dict(span.waits_s)
    queued_s = waits[Wait.RUNQUEUE] + waits[Wait.THROTTLED]
    checks = {
        "wall": close_to(truth.wall_s) == wall_s(span),
        "cpu": between(truth.cpu_s, waits[Wait.CPU], truth.at_most_on_cpu_s),
        "run queue": close_to(truth.run_delay_s) == queued_s,
        # a thread that is let go may have to wait for the CPU: that counts as throttled too
        "throttled": between(truth.throttled_s, waits[Wait.THROTTLED], truth.run_delay_s)
        or waits[Wait.THROTTLED] == truth.throttled_s == 0.0,
        "named": loosely(0.95, 0.9) <= named_share(span) <= 1.0 + 1e-9,
        "blocked": wait is None or between(truth.at_least_blocked_s, waits[wait], truth.blocked_s),
    }
    return [name for name, holds in checks.items() if not holds]


def agreed(
    ledger: Ledger, subject: LedgerSubject, wait: Wait | None, task: str, **arguments: object
) -> SpanWaits:
    """Return a span whose ledger agrees with the truth.

    One measurement may disagree because of the kernel's clocks, not ours: between a wake-up that preempts and the
    switch they stand still (rq_clock_skip_update), and what a hypervisor takes belongs to nobody. So a busy machine
    gets more tries; a wrong ledger fails them all.
    """
    said = []
    for _ in range(TRIES):
        [truth] = subject.ask(task, **arguments)
        span = ledger.of(truth)
        wrong = disagreements(span, truth, wait)
        if not wrong:
            return span
        said.append(f"{', '.join(wrong)}: {span} {truth}")
    pytest.fail("\n".join(said))


def test_busy(ledger: Ledger, subject: LedgerSubject) -> None:
    """A thread that computes was on the CPU."""
    span = agreed(ledger, subject, None, "busy", seconds=0.1)
    assert span.waits_s[Wait.CPU] >= loosely(0.099, 0.07)


def test_asleep(ledger: Ledger, subject: LedgerSubject) -> None:
    """A thread that sleeps slept, for as long as it asked."""
    span = agreed(ledger, subject, Wait.SLEEP, "sleep", seconds=0.05)
    assert span.waits_s[Wait.SLEEP] >= loosely(0.049, 0.03)  # the clock may start before the switch


def test_short_sleeps_add_up(ledger: Ledger, subject: LedgerSubject) -> None:
    """Many short turns of work and sleep are divided as well as one long one."""
    span = agreed(ledger, subject, Wait.SLEEP, "mixed", seconds=0.001, times=53)
    assert span.waits_s[Wait.SLEEP] >= 53 * loosely(0.00095, 0.0006)
    assert span.waits_s[Wait.CPU] >= 53 * loosely(0.00095, 0.0006)


@pytest.mark.parametrize(
    ("task", "wait"),
    [("receive", Wait.NETWORK), ("poll", Wait.POLL), ("lock", Wait.LOCK)],
)
def test_waiting_for_another_thread(
    ledger: Ledger, subject: LedgerSubject, task: str, wait: Wait
) -> None:
    """A thread that waits for a peer's byte, a readable descriptor or a lock is said to."""
    span = agreed(ledger, subject, wait, task, seconds=0.07)
    assert span.waits_s[wait] > loosely(0.06, 0.04)


@pytest.mark.parametrize(
    ("task", "wait"),
    [("read_cold", Wait.DISK), ("read_direct", Wait.DISK), ("fault_cold", Wait.FAULT)],
)
def test_cold_file(
    ledger: Ledger, subject: LedgerSubject, cold_file: Path, task: str, wait: Wait
) -> None:
    """Reading what is not in the page cache waits for the disk, or for the page when it is mapped."""
    span = agreed(ledger, subject, wait, task, path=str(cold_file), reads=READS)
    assert span.waits_s[wait] > 0.0005


def test_among_six_hogs(ledger: Ledger) -> None:
    """A thread that shares its CPU with six others waited in the run queue, as long as schedstat says."""
    with (
        cgroups("hogs") as [cgroup],
        LedgerSubject(ledger.library, cgroup, CPU) as subject,
        running(HOG, 6, cgroup, CPU),
    ):
        ledger.name_cgroups()
        span = agreed(ledger, subject, None, "busy", seconds=0.1)
    assert span.waits_s[Wait.RUNQUEUE] > 3 * span.waits_s[Wait.CPU]
    assert Wait.THROTTLED not in span.waits_s
    assert span.cgroup == cgroup.path


def test_under_a_quota(ledger: Ledger) -> None:
    """A thread in a cgroup that has used up its quota was throttled, as long as cpu.stat says."""
    with (
        cgroups("quota", yielding=False) as [cgroup],
        LedgerSubject(ledger.library, cgroup, CPU) as subject,
    ):
        cgroup.set_quota(10_000)
        span = agreed(ledger, subject, None, "busy", seconds=0.043)
    assert span.waits_s[Wait.THROTTLED] > 0.2


def test_asleep_under_a_quota(ledger: Ledger) -> None:
    """Sleep stays sleep where a thread also is throttled, and waking into a throttled queue is throttling."""
    with (
        cgroups("quota", yielding=False) as [cgroup],
        LedgerSubject(ledger.library, cgroup, CPU) as subject,
    ):
        cgroup.set_quota(10_000)
        span = agreed(ledger, subject, Wait.SLEEP, "mixed", seconds=0.007, times=7)
    assert span.waits_s[Wait.SLEEP] >= 7 * 0.007
    assert span.waits_s[Wait.THROTTLED] > 0.1


def test_busy_neighbour_is_not_throttling(ledger: Ledger) -> None:
    """A thread whose cgroup has a quota to spare waits in the run queue when its neighbours are busy."""
    with cgroups("spare", "hogs") as [spare, hogs]:
        spare.set_quota(200_000)
        with LedgerSubject(ledger.library, spare, CPU) as subject, running(HOG, 3, hogs, CPU):
            span = agreed(ledger, subject, None, "busy", seconds=0.05)
    assert Wait.THROTTLED not in span.waits_s
    assert span.waits_s[Wait.RUNQUEUE] > 0.01


def test_every_span_is_delivered(ledger: Ledger, subject: LedgerSubject) -> None:
    """A prime number of short spans come out, each once, in order and none lost."""
    truths = subject.ask("many", count=PRIME)
    ledger.probe.poll()
    spans = [ledger.delivered[truth.span_id] for truth in truths]
    ends = [span.end_monotonic_s for span in spans]
    assert len(truths) == PRIME
    assert ends == sorted(ends)
    assert ledger.dropped("spans_lost") == 0


def test_inner_span_is_part_of_the_outer(ledger: Ledger, subject: LedgerSubject) -> None:
    """Of two nested spans the inner one slept and the outer one slept as long and computed."""
    inner, outer = (ledger.of(truth) for truth in subject.ask("nested", seconds=0.03))
    assert close_to(inner.waits_s[Wait.SLEEP]) == outer.waits_s[Wait.SLEEP]
    assert outer.waits_s[Wait.CPU] - inner.waits_s[Wait.CPU] >= 0.03


def test_span_that_moved_has_no_waits(ledger: Ledger, subject: LedgerSubject) -> None:
    """Of a span that ends on another thread only the times are told."""
    [truth] = subject.ask("moved", seconds=0.02)
    span = ledger.of(truth)
    assert span.waits_s == {}
    assert wall_s(span) >= truth.wall_s


def test_end_without_a_start_is_counted(ledger: Ledger, subject: LedgerSubject) -> None:
    """Ends of unknown spans are counted, and deliver nothing."""
    before, known = ledger.dropped("spans_unknown"), len(ledger.delivered)
    subject.ask("orphan", count=13)
    ledger.probe.poll()
    assert ledger.dropped("spans_unknown") - before == 13
    assert len(ledger.delivered) == known


def test_span_is_handed_over_by_the_next_poll(ledger: Ledger, subject: LedgerSubject) -> None:
    """Nobody is woken when a span ends; whoever asks gets it, each one once and at once."""
    ledger.probe.poll()
    for _ in range(13):
        [truth] = subject.ask("many", count=1)
        assert ledger.probe.poll() == 1
        assert truth.span_id in ledger.delivered
    assert ledger.probe.poll() == 0


def test_first_span_of_a_new_cgroup_has_its_name(ledger: Ledger) -> None:
    """Delivered before the next reading, and from a thread that may never have left its CPU in there."""
    ledger.name_cgroups()
    with cgroups("new") as [new], LedgerSubject(ledger.library, new) as subject:
        [truth] = subject.ask("many", count=1)
        assert ledger.of(truth).cgroup == new.path
