"""Reading what several probes keep alike: per-CPU counters by key, and what was dropped."""

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from ebpf import progstats
from ebpf.layout import stats
from ebpf.libbpf import Library, Object

Counters = tuple[int, ...]


class Entries(Protocol):
    """What a map hands out."""

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Yield keys and values."""
        ...


def per_cpu_items(found: Entries, size: int) -> Iterator[tuple[bytes, Counters]]:
    """Yield the keys of a per-CPU hash map with their values (u64 fields, `size` bytes) summed over the CPUs."""
    fields = size // 8
    for key, raw in found.items():
        values = struct.unpack(f"={len(raw) // 8}Q", raw)
        yield key, tuple(sum(values[field::fields]) for field in range(fields))


def drops(library: Library, opened: Object, program_fds: Iterable[int]) -> Mapping[str, int]:
    """Name what the programs could not count; `runs_missed` are those skipped because one was running already."""
    missed = sum(progstats.read(library, fd).missed for fd in program_fds)
    return {**stats(opened.map(".bss").lookup(b"\0" * 4) or b""), "runs_missed": missed}
