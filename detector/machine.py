"""What this machine offers: one function per check, a literal table of them."""

import ctypes
import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

_NEEDED_BYTES = 1 << 30
_PORTS = {4318: "agent OTLP", 9464: "agent metrics", 14318: "detector OTLP", 8790: "detector API"}
_PACKAGES = {
    "aiohttp": "detector",
    "numpy": "detector",
    "pyarrow": "detector",
    "rich": "detector",
    "opentelemetry.proto": "detector",
    "pynvml": "agent",
    "prometheus_client": "agent",
    "onnxruntime": "workload",
    "opentelemetry.sdk": "workload",
}
"""Import name and the extra that brings it."""


class Check(msgspec.Struct, frozen=True):
    """One finding: `lost` says what does not work without it, `remedy` what to do."""

    name: str
    ok: bool
    found: str
    lost: str = ""
    remedy: str = ""
    needed: bool = False


@dataclass(frozen=True)
class Machine:
    """Where to look; the defaults are this machine."""

    state: Path
    proc: Path = Path("/proc")
    python: tuple[int, ...] = sys.version_info[:3]
    euid: int = field(default_factory=os.geteuid)
    nvml: str = "libnvidia-ml.so.1"
    ports: dict[int, str] = field(default_factory=lambda: dict(_PORTS))


def check_all(machine: Machine) -> list[Check]:
    """Run every check."""
    return [check(machine) for check in CHECKS]


def check_python(machine: Machine) -> Check:
    """Python 3.11 or later."""
    return Check(
        name="python",
        ok=machine.python >= (3, 11),
        found=".".join(map(str, machine.python)),
        lost="everything",
        remedy="install Python 3.11 or later",
        needed=True,
    )


def check_packages(_: Machine) -> Check:
    """Every package of the extras that the demo uses."""
    missing = {name: extra for name, extra in _PACKAGES.items() if not _is_installed(name)}
    extras = ",".join(sorted(set(missing.values())))
    return Check(
        name="packages",
        ok=not missing,
        found=f"missing: {', '.join(missing)}" if missing else f"all {len(_PACKAGES)} found",
        lost="" if not missing else f"the parts of the extras {extras}",
        remedy=f"pip install 'tailcause[{extras}]'" if missing else "",
        needed="detector" in missing.values(),
    )


def check_root(machine: Machine) -> Check:
    """Root, for cgroups of our own and for other users' processes."""
    return Check(
        name="root",
        ok=machine.euid == 0,
        found=f"user {machine.euid}",
        lost="CPU limits as a fault of the demo, cgroups of other users",
        remedy="run as root; `tailcause demo --fault bad-deploy` works without",
    )


def check_cgroups(machine: Machine) -> Check:
    """Control groups and their version."""
    version = _cgroup_version(_read(machine.proc / "self/mountinfo"))
    return Check(
        name="cgroups",
        ok=bool(version),
        found=version or "none mounted",
        lost="throttling, memory and pressure per container",
        remedy="mount cgroup2 on /sys/fs/cgroup",
    )


def check_pressure(machine: Machine) -> Check:
    """Pressure stall information."""
    ok = "some" in _read(machine.proc / "pressure/cpu")
    return Check(
        name="pressure",
        ok=ok,
        found="PSI on" if ok else "PSI off",
        lost="contention for CPU, memory and disk as evidence",
        remedy="boot with psi=1",
    )


def check_gpu(machine: Machine) -> Check:
    """NVIDIA's management library."""
    try:
        ctypes.CDLL(machine.nvml)
    except OSError:
        ok = False
    else:
        ok = True
    return Check(
        name="gpu",
        ok=ok,
        found="NVML found" if ok else f"no {machine.nvml}",
        lost="GPU clocks, throttling, memory and errors as evidence",
        remedy="on a GPU node, install NVIDIA's driver; elsewhere nothing is amiss",
    )


def check_ports(machine: Machine) -> Check:
    """Whether the default ports are free."""
    taken = [f"{port} ({what})" for port, what in machine.ports.items() if not _is_free(port)]
    return Check(
        name="ports",
        ok=not taken,
        found=f"in use: {', '.join(taken)}" if taken else "default ports free",
        lost=""
        if not taken
        else "a second service on the same ports (a running one is why they are taken)",
        remedy="choose others with --otlp-port, --api-port, --metrics-port; the demo picks free ones",
    )


def check_disk(machine: Machine) -> Check:
    """Space for the state folder."""
    existing = next(path for path in (machine.state, *machine.state.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    return Check(
        name="disk",
        ok=free >= _NEEDED_BYTES and os.access(existing, os.W_OK),
        found=f"{free / 2**30:.1f} GiB free for {machine.state}",
        lost="history over a restart, stored incidents",
        remedy="free 1 GiB, or choose a writable folder with --state or TAILCAUSE_STATE",
        needed=True,
    )


CHECKS: tuple[Callable[[Machine], Check], ...] = (
    check_python,
    check_packages,
    check_root,
    check_cgroups,
    check_pressure,
    check_gpu,
    check_ports,
    check_disk,
)


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _cgroup_version(mountinfo: str) -> str:
    kinds = {line.partition(" - ")[2].split(" ")[0] for line in mountinfo.splitlines()}
    if {"cgroup", "cgroup2"} <= kinds:
        return "v1 and v2 (hybrid)"
    if "cgroup2" in kinds:
        return "v2"
    return "v1" if "cgroup" in kinds else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
