"""Which of root's capabilities this process has, what each is for, and how the others are given up.

Numbers: include/uapi/linux/capability.h. Capabilities belong to threads: give up before there are others.
"""

import ctypes
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.errors import AgentError
from agent.host.files import read_text
from ebpf.session import kernel_release

NET_BIND_SERVICE, SYS_ADMIN, SYS_RESOURCE, PERFMON, BPF = 10, 21, 24, 38, 39
_MAPS_BY_CGROUP = (5, 11)  # since then maps are charged to the cgroup, not to locked memory
_PR_SET_NO_NEW_PRIVS = 38
_VERSION_3 = 0x20080522
_WORD_BITS = 32
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO of include/linux/proc_ns.h
_STATUS = Path("/proc/self/status")
_PID_NAMESPACE = Path("/proc/self/ns/pid")
FIRST_FREE_PORT = 1024


@dataclass(frozen=True)
class Capability:
    """One that the agent has a use for: `lost` is what it cannot do without."""

    name: str
    number: int
    lost: str
    probes_only: bool = False


NEEDED: tuple[Capability, ...] = (
    Capability("CAP_DAC_READ_SEARCH", 2, "files of other users: their processes, cgroups, GPUs"),
    Capability("CAP_NET_BIND_SERVICE", NET_BIND_SERVICE, "ports below 1024"),
    Capability("CAP_SYS_PTRACE", 19, "open files, I/O and libraries of other users' processes"),
    Capability("CAP_SYS_ADMIN", SYS_ADMIN, "cost of the probes, and probes where PERFMON is not enough", True),
    Capability("CAP_SYS_RESOURCE", SYS_RESOURCE, "memory of the probes' maps on kernels before 5.11", True),
    Capability("CAP_SYSLOG", 34, "the kernel's log: Xids, OOM kills"),
    Capability("CAP_PERFMON", PERFMON, "attaching probes", True),
    Capability("CAP_BPF", BPF, "loading probes", True),
)  # fmt: skip


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def effective() -> int:
    """Return the effective capabilities of this process as bits; 0 where the kernel does not say."""
    return _of_status("CapEff")


def _of_status(field: str) -> int:
    try:
        lines = read_text(_STATUS).splitlines()
    except OSError:
        return 0
    words = [line.split()[1] for line in lines if line.startswith(f"{field}:")]
    return int(words[0], 16) if words else 0


def needed(*, probes: bool, ports: Iterable[int]) -> list[Capability]:
    """Return those that an agent with or without probes has a use for, listening on these ports."""
    useless = set()
    if not any(0 < port < FIRST_FREE_PORT for port in ports):
        useless.add(NET_BIND_SERVICE)
    if kernel_release() >= _MAPS_BY_CGROUP:
        useless.add(SYS_RESOURCE)
    return [one for one in NEEDED if one.number not in useless and (probes or not one.probes_only)]


def can_probe(mask: int) -> bool:
    """Tell whether these bits suffice to load and attach probes: SYS_ADMIN stands for the newer two."""
    return bool(mask >> SYS_ADMIN & 1 or (mask >> BPF & 1 and mask >> PERFMON & 1))


def missing(capabilities: Iterable[Capability], mask: int) -> list[Capability]:
    """Return those that are not in a set of bits."""
    return [one for one in capabilities if not mask >> one.number & 1]


def in_host_pid_namespace() -> bool:
    """Tell whether process ids here are those of the host; also where that cannot be told."""
    try:
        return _PID_NAMESPACE.stat().st_ino == _INITIAL_PID_NAMESPACE
    except OSError:
        return True


def give_up(keep: Iterable[Capability]) -> int:
    """Keep these, as far as they are there, for good, and let no program that is started gain any.

    Returns the bits that are left; raises `AgentError` where the kernel refuses.
    """
    wanted = 0
    for one in keep:
        wanted |= 1 << one.number
    left = wanted & _of_status("CapPrm")
    words = [left >> shift & (1 << _WORD_BITS) - 1 for shift in (0, _WORD_BITS)]
    data = (_Data * 2)(*(_Data(word, word, 0) for word in words))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.capset(
        ctypes.byref(_Header(_VERSION_3, 0)), data
    ):
        raise AgentError(f"capabilities cannot be given up: {os.strerror(ctypes.get_errno())}")
    return left
