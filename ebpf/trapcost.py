"""Measures what a uprobe's trap costs on this machine: the kernel's program statistics do not see it.

A few machine instructions in a file of our own are called in a loop, with and without uprobes on them.
"""

import ctypes
import mmap
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ebpf.errors import NotSupportedError
from ebpf.libbpf import Library, Object
from ebpf.session import BUILT, kernel_release
from ebpf.uprobes import Point, Uprobes

# call(count, function): a loop of `call r12`
_LOOP = bytes.fromhex("53415441554889fb4989f441ffd448ffcb75f8415d415c5bc3")
_FUNCTIONS = {
    "bare": "55 5d c3",  # without a uprobe
    "nop": "66666690 c3",  # as in libtailcause_span.so
    "push": "55 5d c3",  # push rbp; pop rbp; ret
    "stepped": "4883ec08 4883c408 c3",  # sub rsp, 8; add rsp, 8; ret
    "return": "55 5d c3",
}
_FIRST_AT, _APART, _FILE_BYTES = 128, 64, 4096
_ROUNDS = 5
_CALLS = {"stepped": 60}
_MOST_CALLS = 500
_PROGRAM = "trap"
_MAP_FAILED = ctypes.c_void_p(-1).value

_CALLER = ctypes.CFUNCTYPE(None, ctypes.c_long, ctypes.c_void_p)


@dataclass(frozen=True)
class TrapCost:
    """Nanoseconds that one hit costs the thread that runs into it, with a program that does nothing."""

    nop_ns: float
    """On a nop: a hook that was made to be probed."""
    push_ns: float
    """On an instruction that the kernel emulates, as most functions begin."""
    stepped_ns: float
    """On one that it must single-step."""
    return_ns: float
    """When the function returns, beside what its entry costs."""


def calibrate(library: Library | None = None, objects: Path = BUILT) -> TrapCost:
    """Measure, in less than a tenth of a second; raises EbpfError where uprobes are not to be had."""
    if platform.machine() != "x86_64":
        raise NotSupportedError("what a trap costs is only measured on x86_64")
    library = library or Library()
    with _code() as (file, address), Object(library, objects / "trap.bpf.o") as opened:
        uprobes = Uprobes(opened, kernel_release())
        uprobes.prepare([_PROGRAM])
        opened.load()
        entries = [_point(name) for name in ("nop", "push", "stepped")]
        try:
            uprobes.attach(_PROGRAM, file, entries)
            uprobes.attach(_PROGRAM, file, [_point("return")], on_return=True)
            cost = {name: _time_ns(address, name) for name in _FUNCTIONS}
        finally:
            uprobes.close()
    bare = cost["bare"]
    return TrapCost(
        nop_ns=cost["nop"] - bare,
        push_ns=cost["push"] - bare,
        stepped_ns=cost["stepped"] - bare,
        return_ns=cost["return"] - cost["push"],
    )


def _place(name: str) -> int:
    return _FIRST_AT + _APART * list(_FUNCTIONS).index(name)


def _point(name: str) -> Point:
    return Point(_place(name), 0)


@contextmanager
def _code() -> Iterator[tuple[Path, int]]:
    """Make a file in memory with the loop and the functions, and map it as code; yield its path and address."""
    image = bytearray(_FILE_BYTES)
    image[: len(_LOOP)] = _LOOP
    for name, code in _FUNCTIONS.items():
        machine = bytes.fromhex(code)
        image[_place(name) : _place(name) + len(machine)] = machine
    descriptor = os.memfd_create("tailcause-trap")
    try:
        os.write(descriptor, image)
        address = _map_code(descriptor)
        try:
            yield Path(f"/proc/self/fd/{descriptor}"), address
        finally:
            ctypes.CDLL(None).munmap(ctypes.c_void_p(address), ctypes.c_size_t(_FILE_BYTES))
    finally:
        os.close(descriptor)


def _map_code(descriptor: int) -> int:
    """Map the file; not by Python's mmap, whose address is only to be had where it is writable: no uprobe goes there."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    protection = mmap.PROT_READ | mmap.PROT_EXEC
    size, offset = ctypes.c_size_t(_FILE_BYTES), ctypes.c_long(0)
    address = libc.mmap(None, size, protection, mmap.MAP_PRIVATE, descriptor, offset)
    if address == _MAP_FAILED:
        raise NotSupportedError(f"cannot map code: {os.strerror(ctypes.get_errno())}")
    return int(address)


def _time_ns(address: int, name: str) -> float:
    """Return the best of some rounds: whatever disturbs only adds."""
    call, function, count = _CALLER(address), address + _place(name), _CALLS.get(name, _MOST_CALLS)
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter_ns()
        call(count, function)
        best = min(best, (time.perf_counter_ns() - start) / count)
    return best
