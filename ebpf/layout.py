"""The C structs of `include/` and `probes/*.h`, as Python reads and writes them.

Sizes are asserted on both sides; `tests/unit/ebpf/test_layout.py` compares them.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

MAX_CGROUPS = 1024
OTHER_SLOT, IDLE_SLOT, FIRST_FREE_SLOT = 0, 1, 2
SLOTS = 40
FIRST_SLOT_S = 2.0**-30
"""Slot i of a histogram holds times from 2^(i-30) s to 2^(i-29) s."""


class Hierarchy(IntEnum):
    """Whose cgroups count (enum tc_hierarchy)."""

    UNIFIED = 0
    CPU_CONTROLLER = 1


class Wait(IntEnum):
    """What a thread can be doing (enum tc_wait); numbers are never reused."""

    CPU = 0
    RUNQUEUE = 1
    THROTTLED = 2
    DISK = 3
    NETWORK = 4
    LOCK = 5
    FAULT = 6
    SLEEP = 7
    GPU_SYNC = 8
    RECLAIM = 9
    POLL = 10
    OTHER = 11


WAITS = len(Wait)


@dataclass(frozen=True)
class Layout:
    """One C struct: the name it has in C and its format for `struct`."""

    c_name: str
    format: str

    @property
    def size(self) -> int:
        """Bytes."""
        return struct.calcsize(self.format)

    def pack(self, *values: object) -> bytes:
        """Build the bytes of one struct."""
        return struct.pack(self.format, *values)

    def unpack(self, raw: bytes) -> tuple[int, ...]:
        """Take the bytes of one struct apart."""
        return struct.unpack(self.format, raw[: self.size])

    def iterate(self, raw: bytes) -> Iterator[tuple[int, ...]]:
        """Take an array of structs apart."""
        return struct.iter_unpack(self.format, raw)


CONFIG = Layout("tc_config", "=II512s")
STATS = Layout("tc_stats", "=8Q")
THREAD = Layout("tc_thread", f"=QQIIIHBBQQQII{WAITS}Q")
DELAY = Layout("tc_delay", f"={SLOTS}QQQQ")
PAIR = Layout("tc_pair", "=IIQ")
SPAN = Layout("tc_span", f"=5Q4I{WAITS}Q")
SAMPLE = Layout("tc_sample", f"=IIQQIIQQ16s{WAITS}I")
CALL_KEY = Layout("tc_call_key", "=4I")
CALL_TIME = Layout("tc_call_time", f"={SLOTS}QQ")

STATS_FIELDS = (
    "storage_full",
    "cgroups_full",
    "pairs_full",
    "spans_full",
    "spans_lost",
    "spans_unknown",
    "events_lost",
    "delays_unknown",
)

IO_KEY = Layout("tc_io_key", "=IHH")
FLIGHT = Layout("tc_flight", "=4QIHHII16x")
IO = Layout("tc_io", f"={SLOTS}Q{SLOTS}QQQQ")
PEER = Layout("tc_peer", "=I16s")
TCP = Layout("tc_tcp", f"={SLOTS}QQQ")
TCP_CGROUP = Layout("tc_tcp_cgroup", f"={SLOTS}QQQ{SLOTS}QQQ")
STALL_KEY = Layout("tc_stall_key", "=II")
STALLS = Layout("tc_stalls", f"={SLOTS}QQ")
MEMORY = Layout("tc_memory", "=QQ")
OOM = Layout("tc_oom", "=QII16s")

LAYOUTS = (
    CONFIG, STATS, THREAD, DELAY, PAIR, SPAN, SAMPLE,
    IO_KEY, FLIGHT, IO, PEER, TCP, TCP_CGROUP, STALL_KEY, STALLS, MEMORY, OOM, CALL_KEY, CALL_TIME,
)  # fmt: skip


def config(hierarchy: Hierarchy, syscall_waits: bytes) -> bytes:
    """Build what a program is configured with; `syscall_waits` holds one Wait per system call."""
    return CONFIG.pack(hierarchy, 0, syscall_waits)


def stats(raw: bytes) -> Mapping[str, int]:
    """Name the counters of a `.bss` section."""
    return dict(zip(STATS_FIELDS, STATS.unpack(raw), strict=True))
