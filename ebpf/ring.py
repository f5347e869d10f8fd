"""The last two minutes of every serving thread, so that a span can be explained after it has ended.

`Ring.sample` is called every 100 ms; `Ring.waits_between` answers for any processes and any interval since. This is
for spans that no hook has seen: of a server without our span processor, or created when the request was over.

Whose waits explain an interval? Adding up threads would count the same second many times, and most threads of a server
wait for work. So one thread speaks for the interval: the critical one, with the highest

    work + 0.5 * blocked * (its work of the last two minutes / the largest such)

*work* is what cannot be idleness: on the CPU, in a GPU synchronisation, in a run queue, throttled, waiting for a disk, a
page or memory. *blocked* (lock, sleep, network) may be either: a pool's idle worker waits for a lock as well as a thread
that is held up. What a thread usually does tells them apart: blocked time of the thread that does the service's work
counts half, that of a thread which never works counts nothing. Time in poll is waiting for events and never counts.
"""

import struct
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol

from ebpf.history import KEPT_NS, WAITS_BYTES, History
from ebpf.layout import SAMPLE, Wait

INTERVAL_S = 0.1
"""How often to sample."""

WORK = (
    Wait.CPU,
    Wait.GPU_SYNC,
    Wait.RUNQUEUE,
    Wait.THROTTLED,
    Wait.DISK,
    Wait.FAULT,
    Wait.RECLAIM,
)
BLOCKED = (Wait.LOCK, Wait.SLEEP, Wait.NETWORK)
BLOCKED_WEIGHT = 0.5

_WAITS = tuple(Wait)
_of_work, _of_blocked = itemgetter(*WORK), itemgetter(*BLOCKED)

_HEAD_BYTES = 32  # tgid to asleep: unchanged while the thread goes on with the same thing
_IDENTITY_BYTES = 16  # tgid, tid, start time
_AT = struct.Struct("=Q")
_FIELDS = struct.Struct("=IIQQIIQQ16s")  # SAMPLE without the waits, which are kept as they are
_IDLE_CURRENT = frozenset((*BLOCKED, Wait.POLL, Wait.OTHER))
_FRESH_NS = 10_000_000
_USUAL_NS = 1_000_000_000
_TOLERANCE_NS = 10_000
_SWEEP_EVERY = 10


class Source(Protocol):
    """Where samples come from: the waits probe."""

    def sample(self) -> bytes:
        """Return the threads of all watched processes as they are now, one `tc_sample` after another."""
        ...


@dataclass(frozen=True)
class ProcessWaits:
    """What the critical thread of some processes waited for in an interval."""

    pid: int
    tid: int
    comm: str
    wall_s: float
    covered_s: float
    """How much of the interval the thread was seen in."""
    waits_s: Mapping[Wait, float]
    threads: int
    """Among how many threads it was chosen."""


class _Record:
    """One sample of one thread, taken apart as far as needed."""

    __slots__ = ("asleep", "at_ns", "base_ns", "comm", "current", "pid", "since_ns", "tid", "waits")

    def __init__(self, raw: bytes) -> None:
        (
            self.pid, self.tid, _, self.since_ns, self.current, asleep, self.at_ns, total_ns, self.comm,
        ) = _FIELDS.unpack_from(raw)  # fmt: skip
        self.asleep = bool(asleep)
        self.base_ns: int = self.since_ns - total_ns
        self.waits = raw[-WAITS_BYTES:]

    def begin(self) -> History:
        """Begin a history with it."""
        return History(self.since_ns, self.waits, self.current, self.at_ns, asleep=self.asleep)

    def add_to(self, history: History) -> None:
        """Go on with a history."""
        history.add(self.since_ns, self.waits, self.current, self.at_ns, asleep=self.asleep)


class _Thread:
    """A thread and its history; `base_ns`, its time of birth as its waits say it, must never change."""

    __slots__ = (
        "base_ns",
        "comm",
        "doubted_base_ns",
        "head",
        "history",
        "pid",
        "tid",
        "usual",
        "usual_ns",
    )

    def __init__(self, head: bytes, record: _Record) -> None:
        self.pid, self.tid, self.comm = record.pid, record.tid, record.comm
        self.head = head
        self.base_ns = record.base_ns
        self.doubted_base_ns = -1
        self.history = record.begin()
        self.usual, self.usual_ns = 0.0, 0

    def usual_work(self) -> float:
        """Return its work of the last two minutes in microseconds, as of a second ago or less."""
        history = self.history
        if len(history) == 1 and history.current in _IDLE_CURRENT:
            return 0.0
        if history.seen_ns >= self.usual_ns + _USUAL_NS:
            waits, _ = history.between(history.start_ns, history.seen_ns)
            self.usual, self.usual_ns = sum(_of_work(waits)), history.seen_ns
        return self.usual


class Ring:
    """Histories of a bounded number of threads. Not thread-safe."""

    def __init__(
        self,
        source: Source,
        max_threads: int = 256,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._source = source
        self._max_threads = max_threads
        self._monotonic_ns = monotonic_ns
        self._by_identity: dict[bytes, _Thread] = {}
        self._by_head: dict[bytes, _Thread] = {}
        self._previous_ns = self._sampled_ns = 0
        self._samples = 0
        self._replaceable: list[_Thread] | None = None
        self.dropped: Counter[str] = Counter()
        """By reason: `overflow` (looks at threads that found no room), `torn` (read while they changed), `restarted`
        (histories begun again because their process was not watched for a while)."""

    def __len__(self) -> int:
        return len(self._by_identity)

    @property
    def bytes_used(self) -> int:
        """Bytes of all points."""
        return sum(thread.history.bytes_used for thread in self._by_identity.values())

    def sample(self) -> int:
        """Take one sample of all threads; return how many there were."""
        self._previous_ns, self._sampled_ns = self._sampled_ns, self._monotonic_ns()
        self._samples += 1
        self._replaceable = None
        raw = self._source.sample()
        by_head = self._by_head
        for at in range(0, len(raw), SAMPLE.size):
            head = raw[at : at + _HEAD_BYTES]
            thread = by_head.get(head)
            if thread is not None:
                thread.history.seen_ns = _AT.unpack_from(raw, at + _HEAD_BYTES)[0]
            else:
                self._take(head, raw[at : at + SAMPLE.size])
        if self._samples % _SWEEP_EVERY == 0:
            self._sweep()
        return len(raw) // SAMPLE.size

    def waits_between(
        self, pids: Collection[int], start_monotonic_s: float, end_monotonic_s: float
    ) -> ProcessWaits | None:
        """Return what the critical thread of these processes did; None where nothing is known of the interval."""
        start_ns, end_ns = int(start_monotonic_s * 1e9), int(end_monotonic_s * 1e9)
        now_ns = self._monotonic_ns()
        if self._sampled_ns < end_ns and self._sampled_ns + _FRESH_NS < now_ns:
            self.sample()
        threads = [
            t
            for t in self._by_identity.values()
            if t.pid in pids and _overlaps(t, start_ns, end_ns)
        ]
        if not threads:
            return None
        chosen = _critical(threads, start_ns, end_ns)
        waits_us, covered_ns = chosen.history.between(start_ns, end_ns)
        return ProcessWaits(
            pid=chosen.pid,
            tid=chosen.tid,
            comm=chosen.comm.rstrip(b"\0").decode(errors="replace"),
            wall_s=end_monotonic_s - start_monotonic_s,
            covered_s=covered_ns / 1e9,
            waits_s={wait: us / 1e6 for wait, us in zip(_WAITS, waits_us, strict=True) if us > 0},
            threads=len(threads),
        )

    def _take(self, head: bytes, raw: bytes) -> None:
        """Take a sample of a thread that is new or has moved on."""
        record = _Record(raw)
        thread = self._by_identity.get(head[:_IDENTITY_BYTES])
        if thread is None:
            self._admit(_Thread(head, record))
        elif self._update(thread, record):
            self._by_head.pop(thread.head, None)
            self._by_head[head] = thread
            thread.head, thread.comm = head, record.comm

    def _update(self, thread: _Thread, record: _Record) -> bool:
        """Add a sample to the history if the waits add up to the thread's time; begin anew if they twice do not."""
        if abs(record.base_ns - thread.base_ns) <= _TOLERANCE_NS:
            record.add_to(thread.history)
        elif abs(record.base_ns - thread.doubted_base_ns) <= _TOLERANCE_NS:
            self.dropped["restarted"] += 1
            thread.base_ns, thread.history = record.base_ns, record.begin()
        else:
            self.dropped["torn"] += 1
            thread.doubted_base_ns = record.base_ns
            return False
        thread.doubted_base_ns = -1
        return True

    def _admit(self, thread: _Thread) -> None:
        if len(self._by_identity) >= self._max_threads and not self._make_room():
            self.dropped["overflow"] += 1
            return
        self._by_identity[thread.head[:_IDENTITY_BYTES]] = thread
        self._by_head[thread.head] = thread

    def _make_room(self) -> bool:
        """Forget the thread that has been gone for longest, or has been idle for long; never one that works."""
        if self._replaceable is None:
            known = self._by_identity.values()
            self._replaceable = sorted(
                (t for t in known if self._is_gone(t) or self._is_idle(t)),
                key=lambda t: t.history.seen_ns if self._is_gone(t) else t.history.since_ns,
                reverse=True,
            )
        if not self._replaceable:
            return False
        self._forget(self._replaceable.pop())
        return True

    def _is_gone(self, thread: _Thread) -> bool:
        return thread.history.seen_ns < self._previous_ns

    def _is_idle(self, thread: _Thread) -> bool:
        history = thread.history
        long_ago_ns = self._sampled_ns - KEPT_NS // 2
        return history.current in _IDLE_CURRENT and history.since_ns < long_ago_ns

    def _sweep(self) -> None:
        """Forget threads that have been gone for as long as histories are kept."""
        for thread in list(self._by_identity.values()):
            if thread.history.seen_ns < self._sampled_ns - KEPT_NS:
                self._forget(thread)

    def _forget(self, thread: _Thread) -> None:
        self._by_identity.pop(thread.head[:_IDENTITY_BYTES], None)
        self._by_head.pop(thread.head, None)


def _critical(threads: Sequence[_Thread], start_ns: int, end_ns: int) -> _Thread:
    """Return the thread that speaks for an interval; of equals the oldest."""
    if len(threads) == 1:
        return threads[0]
    scored = [(t, *_score_parts(t.history, start_ns, end_ns), t.usual_work()) for t in threads]
    most = max(usual for *_, usual in scored) or 1.0
    best = max(
        scored, key=lambda one: (one[1] + BLOCKED_WEIGHT * one[2] * one[3] / most, -one[0].tid)
    )
    return best[0]


def _score_parts(history: History, start_ns: int, end_ns: int) -> tuple[float, float]:
    """Return work and blocked time of an interval, microseconds."""
    if history.since_ns <= start_ns and history.current in _IDLE_CURRENT:
        known_ns = min(end_ns, history.seen_ns) - start_ns
        return 0.0, known_ns / 1e3 if history.current in BLOCKED else 0.0
    waits, _ = history.between(start_ns, end_ns)
    return sum(_of_work(waits)), sum(_of_blocked(waits))


def _overlaps(thread: _Thread, start_ns: int, end_ns: int) -> bool:
    return thread.history.start_ns < end_ns and start_ns < thread.history.seen_ns
