"""Does known things in spans. A program of its own: kernel_workloads.LedgerSubject starts and asks it.

python ledger_subject.py LIBRARY        one JSON task a line in, one JSON list of truths a line out
"""

import ctypes
import json
import mmap
import os
import random
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = 4096
ASKING_S = 0.0005
"""A span whose clocks took longer to read was interrupted outside of it: the task is done again."""
TRIES = 10
TRUTH = ("wall_s", "cpu_s", "run_delay_s", "throttled_s", "asked_s")
CHUNK = 1 << 20
Record = dict[str, Any]


@dataclass(frozen=True)
class Clocks:
    """What the kernel says at one moment, none of it through BPF, and how long it took to ask."""

    before_s: float
    run_delay_s: float
    throttled_s: float
    cpu_s: float
    after_s: float

    @property
    def asking_s(self) -> float:
        """Time between the first clock and the last."""
        return self.after_s - self.before_s


class Spans:
    """Opens and closes spans through the library, and keeps the truth about them."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        for function in (self._library.tailcause_span_start, self._library.tailcause_span_end):
            function.argtypes = (ctypes.c_uint64,) * 3
            function.restype = None
        self.cpu_stat: str | None = None
        self.made: list[Record] = []
        self.disturbed = False

    def begin(self) -> None:
        """Forget the truths of the last task."""
        self.made, self.disturbed = [], False

    def start(self, span_id: int) -> None:
        """Call the start hook."""
        self._library.tailcause_span_start(1, 2, span_id)

    def end(self, span_id: int) -> None:
        """Call the end hook."""
        self._library.tailcause_span_end(1, 2, span_id)

    @contextmanager
    def span(self, asked_s: float | None = None) -> Iterator[None]:
        """Measure what happens inside by clocks that are not ours; it asks to be blocked for so long."""
        span_id = random.getrandbits(63) | 1
        before = self._clocks()
        self.start(span_id)
        yield
        self.end(span_id)
        after = self._clocks()
        self.disturbed |= before.asking_s + after.asking_s > ASKING_S
        self.keep(
            span_id,
            wall_s=after.before_s - before.after_s,
            cpu_s=after.cpu_s - before.cpu_s,
            run_delay_s=after.run_delay_s - before.run_delay_s,
            throttled_s=after.throttled_s - before.throttled_s,
            asked_s=asked_s,
        )

    def keep(self, span_id: int, **truth: float | None) -> None:
        """Note the truth about a span."""
        nothing = dict.fromkeys(TRUTH, 0.0)
        self.made.append({"span_id": f"{span_id:016x}", **nothing, **truth})

    def _clocks(self) -> Clocks:
        before_s = time.perf_counter()
        schedstat = Path("/proc/thread-self/schedstat").read_text().split()
        throttled_s = self._throttled_s() if self.cpu_stat else 0.0
        cpu_s = time.thread_time()
        return Clocks(before_s, int(schedstat[1]) / 1e9, throttled_s, cpu_s, time.perf_counter())

    def _throttled_s(self) -> float:
        words = Path(self.cpu_stat or "").read_text().split()
        values = dict(zip(words[::2], words[1::2], strict=True))
        if "throttled_usec" in values:
            return int(values["throttled_usec"]) / 1e6
        return int(values["throttled_time"]) / 1e9


def burn(seconds: float) -> None:
    """Use up CPU time."""
    until = time.thread_time() + seconds
    while (
        time.thread_time() < until
    ):  # a system call that takes the run queue's lock: not too often
        for _ in range(1000):
            pass


def busy(spans: Spans, seconds: float) -> None:
    """Burn CPU in one span."""
    with spans.span(asked_s=0.0):
        burn(seconds)


def sleep(spans: Spans, seconds: float) -> None:
    """Sleep in one span."""
    with spans.span(asked_s=seconds):
        time.sleep(seconds)


def mixed(spans: Spans, seconds: float, times: int) -> None:
    """Take turns at burning and sleeping in one span."""
    with spans.span(asked_s=seconds * times):
        for _ in range(times):
            burn(seconds)
            time.sleep(seconds)


def receive(spans: Spans, seconds: float) -> None:
    """Wait for a peer's byte."""
    here, there = socket.socketpair()
    with here, there, later(seconds, lambda: there.send(b"x")), spans.span(seconds):
        here.recv(1)


def poll(spans: Spans, seconds: float) -> None:
    """Wait for a descriptor to become readable."""
    here, there = socket.socketpair()
    with here, there, later(seconds, lambda: there.send(b"x")), spans.span(seconds):
        select.select([here], [], [], 60)


def lock(spans: Spans, seconds: float) -> None:
    """Wait for a lock that another thread holds."""
    held = threading.Lock()
    held.acquire()
    with later(seconds, held.release), spans.span(seconds):
        held.acquire()


@contextmanager
def later(seconds: float, action: Callable[[], object]) -> Iterator[None]:
    """Do something on another thread after a while."""
    timer = threading.Timer(seconds, action)
    timer.start()
    yield
    timer.join()


def read_cold(spans: Spans, path: str, reads: int) -> None:
    """Read scattered pages of a file that is not in the page cache."""
    fd = os.open(path, os.O_RDONLY)
    pages = scattered(fd, reads)
    with spans.span():
        for page in pages:
            os.pread(fd, PAGE, page * PAGE)
    os.close(fd)


def read_direct(spans: Spans, path: str, reads: int) -> None:
    """Read a megabyte at a time past the page cache."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    chunks = os.fstat(fd).st_size // CHUNK
    with mmap.mmap(-1, CHUNK) as buffer, spans.span():
        for number in range(reads):
            os.preadv(fd, [buffer], number % chunks * CHUNK)
    os.close(fd)


def fault_cold(spans: Spans, path: str, reads: int) -> None:
    """Touch scattered pages of a mapped file that is not in the page cache."""
    fd = os.open(path, os.O_RDONLY)
    pages = scattered(fd, reads)
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as image:
        image.madvise(mmap.MADV_RANDOM)
        with spans.span():
            for page in pages:
                image[page * PAGE]
    os.close(fd)


def scattered(fd: int, count: int) -> list[int]:
    """Drop a file from the page cache, switch read-ahead off, and choose pages of it."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    return random.Random(7).sample(range(os.fstat(fd).st_size // PAGE), count)


def many(spans: Spans, count: int) -> None:
    """Make a number of empty spans."""
    for _ in range(count):
        span_id = random.getrandbits(63) | 1
        spans.start(span_id)
        spans.end(span_id)
        spans.keep(span_id)


def nested(spans: Spans, seconds: float) -> None:
    """Sleep in a span inside of a span, which goes on to burn."""
    with spans.span(asked_s=seconds):
        with spans.span(asked_s=seconds):
            time.sleep(seconds)
        burn(seconds)


def moved(spans: Spans, seconds: float) -> None:
    """Start a span on one thread and end it on another."""
    span_id = random.getrandbits(63) | 1
    spans.start(span_id)
    time.sleep(seconds)
    other = threading.Thread(target=spans.end, args=(span_id,))
    other.start()
    other.join()
    spans.keep(span_id, wall_s=seconds)


def orphan(spans: Spans, count: int) -> None:
    """End spans that were never started."""
    for _ in range(count):
        spans.end(random.getrandbits(63) | 1)


TASKS: dict[str, Callable[..., None]] = {
    "busy": busy,
    "sleep": sleep,
    "mixed": mixed,
    "receive": receive,
    "poll": poll,
    "lock": lock,
    "read_cold": read_cold,
    "read_direct": read_direct,
    "fault_cold": fault_cold,
    "many": many,
    "nested": nested,
    "moved": moved,
    "orphan": orphan,
}


def main() -> None:
    """Answer one task a line until the input ends."""
    spans = Spans(sys.argv[1])
    for line in sys.stdin:
        arguments = json.loads(line)
        task = TASKS[arguments.pop("task")]
        spans.cpu_stat = arguments.pop("cpu_stat")
        for _ in range(TRIES):
            spans.begin()
            task(spans, **arguments)
            if not spans.disturbed:
                break
        sys.stdout.write(json.dumps(spans.made) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
