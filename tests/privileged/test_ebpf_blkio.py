"""The block I/O probe on counted requests, and against biolatency over the same interval."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpf.layout import FIRST_SLOT_S
from ebpf.probes.blkio import HOOKS, Blkio
from ebpf.reading import Histogram, Readings
from ebpf.session import Session, State
from tests.support.block_requests import METRICS, AtMost, io_histogram, unseen_requests
from tests.support.kernel_workloads import Cgroup, Gated, cgroups
from tests.support.probe_session import attached, bpf_files, needs_probes
from tests.support.slots import forget

pytestmark = [pytest.mark.privileged, needs_probes]

READS, BYSTANDER_READS, WRITES = 1009, 103, 499
BIOLATENCY = shutil.which("biolatency", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
BIOLATENCY_ROW = re.compile(r"^\s*(\d+) -> \d+\s*: (\d+)", re.MULTILINE)

DIRECT = """
import mmap, os
_, path, count, write = sys.argv
file = os.open(path, os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
blocks = os.fstat(file).st_size // 4096
for i in range(int(count)):
    place = i * 7919 % blocks * 4096
    os.pwritev(file, [page], place) if write == "write" else os.preadv(file, [page], place)
"""
MANY_AT_ONCE = """
import mmap, os, threading
def read(path, first):
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    piece = mmap.mmap(-1, 1 << 19)
    for i in range(24): os.preadv(file, [piece], (first + i * 12) % 32 << 19)
threads = [threading.Thread(target=read, args=(sys.argv[1], i)) for i in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """Attach the block I/O probe for all tests of this file."""
    with attached(Blkio()) as started:
        yield started


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a file of 16 MB through to its disk."""
    path = tmp_path_factory.mktemp("blkio") / "blocks"
    with path.open("wb") as file:
        file.write(os.urandom(16 << 20))
        file.flush()
        os.fsync(file.fileno())
    if not (Path("/sys/dev/block") / _numbers(path)).exists():
        pytest.skip("needs a temporary folder on a block device")
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("needs a file system with direct I/O")
    return path


def test_direct_reads_are_counted_exactly_in_their_cgroup(session: Session, blocks: Path) -> None:
    """A prime number of reads by each of two cgroups is what each of them has, no more and no less."""
    with (
        cgroups("reader", "bystander") as (reader, bystander),
        _direct(blocks, READS, "read", reader) as many,
        _direct(blocks, BYSTANDER_READS, "read", bystander) as few,
    ):
        before = unseen_requests(session)
        many.go()
        few.go().wait_until_done()
        many.wait_until_done()
        readings = session.read()["blkio"]
        unseen = unseen_requests(session) - before

        assert _counts(readings, reader) == {"read": AtMost(READS, unseen)}
        assert _counts(readings, bystander) == {"read": AtMost(BYSTANDER_READS, unseen)}


def test_writes_are_told_from_reads(session: Session, blocks: Path) -> None:
    """A prime number of direct writes counts as writes."""
    with cgroups("writer") as (writer,), _direct(blocks, WRITES, "write", writer) as process:
        before = unseen_requests(session)
        process.go().wait_until_done()
        counts = _counts(session.read()["blkio"], writer)

        assert counts == {"write": AtMost(WRITES, unseen_requests(session) - before)}


def test_every_request_has_a_time_in_the_queue_and_one_in_the_device(
    session: Session, blocks: Path
) -> None:
    """Both histograms hold each request once, and their times fit into the time that the reader took."""
    with cgroups("timed") as (timed,), _direct(blocks, READS, "read", timed) as process:
        before = unseen_requests(session)
        began_s = time.monotonic()
        process.go().wait_until_done()
        took_s = time.monotonic() - began_s
        readings = session.read()["blkio"]
        queue, service = (io_histogram(readings, metric, cgroup=timed.path) for metric in METRICS)

        assert queue.count == service.count
        assert service.count == AtMost(READS, unseen_requests(session) - before)
        assert 0 < queue.sum_s + service.sum_s < took_s


def test_the_device_is_named(session: Session, blocks: Path) -> None:
    """The label is the disk's name in /sys/block."""
    with cgroups("named") as (named,), _direct(blocks, 13, "read", named) as process:
        process.go().wait_until_done()
        devices = {
            reading.labels["device"]
            for reading in session.read()["blkio"].series
            if reading.labels["cgroup"] == named.path
        }

        assert devices
        assert all((Path("/sys/block") / device).exists() for device in devices)


@pytest.mark.skipif(BIOLATENCY is None, reason="needs biolatency (libbpf-tools)")
def test_the_tail_agrees_with_biolatency(session: Session, blocks: Path) -> None:
    """Its buckets begin at powers of two of a microsecond, ours 5 % lower: its counts lie between two of ours."""
    assert BIOLATENCY is not None
    with Gated((MANY_AT_ONCE,), str(blocks)) as process:
        before = _all_services(session)
        peer = subprocess.Popen((BIOLATENCY,), stdout=subprocess.PIPE, text=True)
        time.sleep(1.5)
        process.go().wait_until_done()
        peer.send_signal(2)
        said, _ = peer.communicate(timeout=20)
        after = _all_services(session)
    ours = tuple(b - a for a, b in zip(before, after, strict=True))
    theirs = {int(first): int(count) for first, count in BIOLATENCY_ROW.findall(said)}

    assert sum(ours) == pytest.approx(sum(theirs.values()), rel=0.1, abs=10)
    for first_us in (1024, 2048, 4096, 8192, 16384):
        at_least = sum(count for first, count in theirs.items() if first >= first_us)
        slot = first_us.bit_length() + 9  # 2^(slot-30) s is a little less than first_us
        assert FIRST_SLOT_S * 2**slot == pytest.approx(first_us / 1e6, rel=0.05)
        slack = 3 + 0.1 * at_least
        assert sum(ours[slot + 1 :]) - slack <= at_least <= sum(ours[slot:]) + slack


def test_a_slot_that_changes_hands_begins_at_nothing(session: Session, blocks: Path) -> None:
    """When a cgroup's slot is given to another, nothing is inherited; how often the programs ran stays true."""
    with cgroups("former") as (former,), _direct(blocks, 13, "read", former) as process:
        unseen = unseen_requests(session)
        process.go().wait_until_done()
        before = session.read()["blkio"]
        unseen = unseen_requests(session) - unseen
        forget(session, "blkio", former.path)
        after = session.read()["blkio"]

        assert _counts(before, former) == {"read": AtMost(13, unseen)}
        assert _counts(after, former) == {}
        assert after.events >= before.events


def test_a_missing_hook_is_a_named_state() -> None:
    """A kernel without one of the tracepoints: not supported, with its name, and nothing stays loaded."""
    before = bpf_files()
    session = Session([Blkio(hooks={**HOOKS, "io_issue": "block_rq_of_the_future"})])
    session.start()
    try:
        slot = session.slots["blkio"]
        assert slot.state is State.NOT_SUPPORTED
        assert "block_rq_of_the_future" in slot.reason
        assert session.read() == {}
    finally:
        session.stop()

    assert bpf_files() == before


def _direct(path: Path, count: int, operation: str, cgroup: Cgroup) -> Gated:
    return Gated((DIRECT,), str(path), str(count), operation).put(cgroup)


def _counts(readings: Readings, cgroup: Cgroup) -> dict[str, int]:
    """Count a cgroup's requests by operation."""
    counts: dict[str, int] = {}
    for reading in readings.series:
        if reading.metric == "blkio.service" and reading.labels["cgroup"] == cgroup.path:
            assert isinstance(reading.value, Histogram)
            operation = reading.labels["operation"]
            counts[operation] = counts.get(operation, 0) + reading.value.count
    return counts


def _all_services(session: Session) -> tuple[int, ...]:
    return io_histogram(session.read()["blkio"], "blkio.service").slots


def _numbers(path: Path) -> str:
    device = path.stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"
