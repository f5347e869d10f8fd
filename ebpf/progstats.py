"""Run counts and run times of programs, as the kernel counts them while its statistics are on.

Switching them on costs every BPF program of the machine some 20 ns a run, so they are on for short spells only.
Source: struct bpf_prog_info in include/uapi/linux/bpf.h; BPF_ENABLE_STATS since Linux 5.8.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ebpf.errors import NoPermissionError
from ebpf.libbpf import Library

_RUN_TIME = 0  # BPF_STATS_RUN_TIME
_INFO_BYTES = 256
_RUN_TIME_AT = 192


@dataclass(frozen=True)
class RunStats:
    """What a program has cost while statistics were on."""

    runs: int
    time_ns: int
    instructions: int
    missed: int = 0
    """Runs that were skipped, ever, because the program was running on that CPU already."""

    @property
    def ns_per_run(self) -> float:
        """Mean cost of a run, nanoseconds; 0 before the first."""
        return self.time_ns / self.runs if self.runs else 0.0


@contextmanager
def enabled(library: Library) -> Iterator[None]:
    """Keep the kernel's program statistics on; others' switches are left alone."""
    fd = library.call.bpf_enable_stats(_RUN_TIME)
    if fd < 0:
        raise NoPermissionError("program statistics need CAP_SYS_ADMIN and Linux 5.8 or newer")
    try:
        yield
    finally:
        os.close(fd)


def read(library: Library, program_fd: int) -> RunStats:
    """Return the statistics of a loaded program."""
    info = (ctypes.c_uint8 * _INFO_BYTES)()
    size = ctypes.c_uint32(_INFO_BYTES)
    library.call.bpf_obj_get_info_by_fd(program_fd, info, ctypes.byref(size))
    words = (ctypes.c_uint64 * 3).from_buffer(info, _RUN_TIME_AT)
    instructions = ctypes.c_uint32.from_buffer(info, _RUN_TIME_AT + 24).value
    return RunStats(
        runs=int(words[1]),
        time_ns=int(words[0]),
        instructions=int(instructions),
        missed=int(words[2]),
    )
