"""Opens software perf events, one for each CPU, for programs that run when the kernel counts one.

Source: perf_event_open(2). libc has no wrapper for it.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from pathlib import Path

from ebpf.errors import NoPermissionError, NotSupportedError

_CALL_NUMBERS = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTES = struct.Struct("=IIQQ")  # type, size, config, sample_period; the rest is 0
_ATTRIBUTES_BYTES = 112  # PERF_ATTR_SIZE_VER5
_SOFTWARE = 1  # PERF_TYPE_SOFTWARE
_MAJOR_FAULTS = 6  # PERF_COUNT_SW_PAGE_FAULTS_MAJ
_CLOSE_ON_EXEC = 8  # PERF_FLAG_FD_CLOEXEC


def open_major_faults(cpu: int) -> int:
    """Return the descriptor of an event that overflows at each major page fault on a CPU, of any process."""
    number = _CALL_NUMBERS.get(platform.machine())
    if number is None:
        raise NotSupportedError(f"perf events: no system call number for {platform.machine()}")
    attributes = ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
    _ATTRIBUTES.pack_into(attributes, 0, _SOFTWARE, _ATTRIBUTES_BYTES, _MAJOR_FAULTS, 1)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(
        ctypes.c_long(number), attributes, -1, cpu, -1, ctypes.c_ulong(_CLOSE_ON_EXEC)
    )
    if fd >= 0:
        return int(fd)
    error = ctypes.get_errno()
    if error in {errno.EPERM, errno.EACCES}:
        raise NoPermissionError("perf events of all processes need CAP_PERFMON (or CAP_SYS_ADMIN)")
    raise NotSupportedError(f"major faults cannot be counted: {os.strerror(error)}")


def online_cpus(sysfs: Path = Path("/sys")) -> Iterator[int]:
    """Yield the numbers of the CPUs that are on."""
    for part in (sysfs / "devices/system/cpu/online").read_text().strip().split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
