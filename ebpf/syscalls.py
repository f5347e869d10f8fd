"""Which wait each blocking system call stands for, by architecture.

Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux. A call that is not
listed counts as `Wait.OTHER`; a thread asleep outside of any call sleeps in a page fault.
"""

import platform
from collections.abc import Mapping

from ebpf.errors import NotSupportedError
from ebpf.layout import Wait

COUNT = 512

_CLASSES: Mapping[Wait, tuple[str, ...]] = {
    Wait.NETWORK: (
        "read", "readv", "recvfrom", "recvmsg", "recvmmsg", "write", "writev", "sendto", "sendmsg", "sendmmsg",
        "accept", "accept4", "connect",
    ),
    Wait.DISK: (
        "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "fsync", "fdatasync", "sync_file_range",
        "msync", "syncfs", "sync", "openat", "open", "unlinkat", "renameat2", "fallocate", "getdents64", "newfstatat",
    ),
    Wait.POLL: ("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"),
    Wait.LOCK: ("futex", "futex_waitv", "futex_wait", "flock", "mmap", "munmap", "mprotect", "madvise", "brk"),
    Wait.SLEEP: ("nanosleep", "clock_nanosleep", "pause"),
}  # fmt: skip
"""read and write stand for a peer's data: on a file the kernel marks the wait as I/O, which goes first."""

_X86_64: Mapping[str, int] = {
    "read": 0, "write": 1, "open": 2, "poll": 7, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "pread64": 17,
    "pwrite64": 18, "readv": 19, "writev": 20, "select": 23, "msync": 26, "madvise": 28, "pause": 34, "nanosleep": 35,
    "connect": 42, "accept": 43, "sendto": 44, "recvfrom": 45, "sendmsg": 46, "recvmsg": 47, "flock": 73, "fsync": 74,
    "fdatasync": 75, "sync": 162, "futex": 202, "getdents64": 217, "clock_nanosleep": 230, "epoll_wait": 232,
    "openat": 257, "newfstatat": 262, "unlinkat": 263, "pselect6": 270, "ppoll": 271, "sync_file_range": 277,
    "epoll_pwait": 281, "fallocate": 285, "accept4": 288, "preadv": 295, "pwritev": 296, "recvmmsg": 299, "syncfs": 306,
    "sendmmsg": 307, "renameat2": 316, "preadv2": 327, "pwritev2": 328, "epoll_pwait2": 441, "futex_waitv": 449,
    "futex_wait": 455,
}  # fmt: skip

_ARM64: Mapping[str, int] = {
    "epoll_pwait": 22, "flock": 32, "unlinkat": 35, "fallocate": 47, "openat": 56, "getdents64": 61, "read": 63,
    "write": 64, "readv": 65, "writev": 66, "pread64": 67, "pwrite64": 68, "preadv": 69, "pwritev": 70, "pselect6": 72,
    "ppoll": 73, "newfstatat": 79, "sync": 81, "fsync": 82, "fdatasync": 83, "sync_file_range": 84, "futex": 98,
    "nanosleep": 101, "clock_nanosleep": 115, "accept": 202, "connect": 203, "sendto": 206, "recvfrom": 207,
    "sendmsg": 211, "recvmsg": 212, "brk": 214, "munmap": 215, "mmap": 222, "mprotect": 226, "msync": 227,
    "madvise": 233, "accept4": 242, "recvmmsg": 243, "syncfs": 267, "sendmmsg": 269, "renameat2": 276, "preadv2": 286,
    "pwritev2": 287, "epoll_pwait2": 441, "futex_waitv": 449, "futex_wait": 455,
}  # fmt: skip

_TABLES: Mapping[str, Mapping[str, int]] = {"x86_64": _X86_64, "aarch64": _ARM64}


def wait_classes(machine: str | None = None) -> bytes:
    """Return one Wait per system call number (512 bytes) for an architecture as `uname -m` names it."""
    machine = machine or platform.machine()
    numbers = _TABLES.get(machine)
    if numbers is None:
        raise NotSupportedError(
            f"no table of system calls for {machine}: the ledger works on x86_64 and aarch64"
        )
    classes = bytearray([Wait.OTHER] * COUNT)
    for wait, names in _CLASSES.items():
        for name in names:
            if name in numbers:
                classes[numbers[name]] = wait
    return bytes(classes)
