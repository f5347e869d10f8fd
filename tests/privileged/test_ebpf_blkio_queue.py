"""Queue and service time told apart on a device of our own that takes few requests at a time."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ebpf.probes.blkio import Blkio
from ebpf.reading import Histogram
from ebpf.session import Session
from tests.support.block_requests import METRICS, AtMost, io_histogram, unseen_requests
from tests.support.kernel_workloads import Gated
from tests.support.loop_device import LoopDevice, loop_device, why_no_loop_device
from tests.support.probe_session import attached, close_to, needs_probes

pytestmark = [
    pytest.mark.privileged,
    needs_probes,
    pytest.mark.skipif(bool(why_no_loop_device()), reason=why_no_loop_device()),
]

DEPTH, AT_ONCE, READS = 4, 61, 997
SIZE_BYTES = 16 << 20  # 32 blocks

ASYNCHRONOUS = """
import ctypes, mmap, os, platform, struct
_, path, at_once, reads = sys.argv
setup, submit, getevents = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}[platform.machine()]
call = ctypes.CDLL(None, use_errno=True).syscall
file, block = os.open(path, os.O_RDONLY | os.O_DIRECT), 1 << 19
page = mmap.mmap(-1, block)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
context = ctypes.c_ulong()
assert call(setup, 128, ctypes.byref(context)) == 0
for first in range(0, int(reads), int(at_once)):
    wanted = range(first, min(first + int(at_once), int(reads)))
    blocks = [  # struct iocb: data, key, flags, opcode, priority, file, buffer, bytes, offset, …
        struct.pack("=QIIHhIQQqQII", i, 0, 0, 0, 0, file, address, block, i % 32 * block, 0, 0, 0)
        for i in wanted
    ]
    buffers = [ctypes.create_string_buffer(one, 64) for one in blocks]
    pointers = (ctypes.c_void_p * len(buffers))(*(ctypes.addressof(one) for one in buffers))
    count = ctypes.c_long(len(buffers))
    assert call(submit, context, count, pointers) == len(buffers)
    events = ctypes.create_string_buffer(32 * len(buffers))
    assert call(getevents, context, count, count, events, None) == len(buffers)
"""
"""Reads with so many at once in flight, submitted by one call."""


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """Attach the block I/O probe for all tests of this file."""
    with attached(Blkio()) as started:
        yield started


@pytest.fixture
def device(tmp_path: Path) -> Iterator[LoopDevice]:
    """Attach a device that takes four requests at a time."""
    with loop_device(tmp_path, SIZE_BYTES, DEPTH) as made:
        yield made


@dataclass(frozen=True)
class Spent:
    """What the reads took, and what the probe counted meanwhile."""

    took_s: float
    queue: Histogram
    service: Histogram
    unseen: int


@pytest.mark.parametrize("statistics", ["1", "0"])
def test_waiting_in_the_queue_is_not_time_in_the_device(
    session: Session, device: LoopDevice, statistics: str
) -> None:
    """Of 61 reads at once a device takes four: no more than four times the elapsed time is service, most is waiting.

    Without the kernel's disk statistics there is no stamp of a request's start, and the probe takes its own.
    """
    device.set("iostats", statistics)
    spent = _read(session, device)

    assert spent.queue.count == spent.service.count == AtMost(READS, spent.unseen)
    assert spent.service.sum_s <= DEPTH * spent.took_s
    assert spent.queue.sum_s <= AT_ONCE * spent.took_s
    assert spent.queue.sum_s > 2 * spent.service.sum_s


def test_queue_and_service_are_what_the_kernel_counts(session: Session, device: LoopDevice) -> None:
    """Together they are the time in the device's own statistics."""
    before = device.stats()
    spent = _read(session, device)
    after = device.stats()
    seen = spent.service.count / READS

    assert after.reads - before.reads == READS
    assert spent.service.count == AtMost(READS, spent.unseen)
    assert spent.queue.sum_s + spent.service.sum_s == close_to(
        (after.took_s - before.took_s) * seen
    )


def _read(session: Session, device: LoopDevice) -> Spent:
    """Let it be read."""
    unseen, before = unseen_requests(session), _counted(session, device)
    with Gated((ASYNCHRONOUS,), str(device.device), str(AT_ONCE), str(READS)) as process:
        began_s = time.monotonic()
        process.go().wait_until_done()
        took_s = time.monotonic() - began_s
    queue, service = (_less(b, a) for a, b in zip(before, _counted(session, device), strict=True))
    return Spent(took_s, queue, service, unseen_requests(session) - unseen)


def _counted(session: Session, device: LoopDevice) -> list[Histogram]:
    readings = session.read()["blkio"]
    return [io_histogram(readings, metric, device=device.name) for metric in METRICS]


def _less(after: Histogram, before: Histogram) -> Histogram:
    slots = tuple(b - a for a, b in zip(before.slots, after.slots, strict=True))
    return Histogram(slots, after.sum_s - before.sum_s)
