"""What a demo needs of the machine, looked up before anything starts."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from detector.cli.demo import stores
from detector.cli.demo.counter import cpu_mount
from detector.cli.demo.faults import Fault
from detector.cli.demo.plan import NEEDS_PROBES
from detector.errors import CannotStartError

_NEEDED: tuple[tuple[str, str], ...] = (
    ("aiohttp", "detector"),
    ("numpy", "detector"),
    ("pyarrow", "detector"),
    ("rich", "detector"),
    ("opentelemetry.proto", "agent"),
    ("prometheus_client", "agent"),
    ("onnx", "workload"),
    ("onnxruntime", "workload"),
    ("opentelemetry.sdk", "workload"),
)
"""Modules that a part imports, and the extra that brings each."""
_DOCTOR = (sys.executable, "-P", "-m", "agent.cli", "doctor", "--json")
_DOCTOR_S = 60.0
_NETWORK_TOOLS = {"ip": "iproute2", "nft": "nftables", "tc": "iproute2"}
"""Programs that make the network and its faults, and the package that has each."""
_BUSY_SHARE = 0.5
_LOOK_S = 0.4


def check_packages(needed: tuple[tuple[str, str], ...] = _NEEDED) -> None:
    """Raise when a package is missing, naming the extra to install."""
    missing = [(module, extra) for module, extra in needed if not _installed(module)]
    if missing:
        names = ", ".join(module for module, _ in missing)
        extras = ",".join(sorted({extra for _, extra in missing}))
        verb = "is" if len(missing) == 1 else "are"
        raise CannotStartError(f"{names} {verb} not installed: pip install 'tailcause[{extras}]'")


def no_cgroups_because() -> str | None:
    """Say why this process cannot make cgroups with a CPU limit, or None if it can."""
    mount = cpu_mount()
    if mount is None:
        return "no cgroup hierarchy with a CPU controller is mounted"
    if os.access(mount.root, os.W_OK):
        return None
    why = "not root" if os.geteuid() != 0 else "read-only"
    return f"{mount.root} is not writable ({why})"


def no_network_because() -> str | None:
    """Say why the workload cannot have a network of its own, or None if it can."""
    if os.geteuid() != 0:
        return "only root can make one (not root)"
    places = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [name for name in _NETWORK_TOOLS if shutil.which(name, path=places) is None]
    packages = sorted({_NETWORK_TOOLS[name] for name in absent})
    return f"`{absent[0]}` is missing (apt-get install {' '.join(packages)})" if absent else None


def no_probes_because(doctor: Sequence[str] = _DOCTOR) -> str | None:
    """Say why the agent has no scheduler probe here, or None if it has; the agent itself is asked."""
    try:
        answered = subprocess.run(doctor, capture_output=True, check=False, timeout=_DOCTOR_S)
        found = {one["name"]: one for one in msgspec.json.decode(answered.stdout)["findings"]}
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"`tailcause-agent doctor` does not answer ({exc})"
    except (msgspec.DecodeError, KeyError, TypeError):
        last = answered.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return f"`tailcause-agent doctor` failed ({last or f'exit code {answered.returncode}'})"
    probe: dict[str, Any] = found.get("probe sched") or found.get("ebpf") or {}
    if probe.get("state") == "ok" and probe["name"] != "ebpf":
        return None
    return str(probe.get("reason") or f"its state is {probe.get('state', 'unknown')}")


def check_fault(fault: Fault, no_cgroups: str | None, no_probes: str | None = None) -> None:
    """Raise when `fault` cannot be injected for real, or not be told apart, on this machine."""
    if fault.name in NEEDS_PROBES and no_probes:
        raise CannotStartError(
            f"{fault.name} needs the agent's eBPF probes, to see who had the CPU, and there are none: {no_probes}; "
            "`tailcause demo --fault bad-deploy` works without"
        )
    if fault.needs_cgroup and no_cgroups:
        raise CannotStartError(
            f"{fault.name} needs a cgroup of its own and {no_cgroups}: "
            "run as root, or `tailcause demo --fault bad-deploy`, which works without"
        )
    if fault.needs_network and (no_network := no_network_because()):
        raise CannotStartError(
            f"{fault.name} needs a network of the workload's own and {no_network}: "
            "`tailcause demo --fault bad-deploy` works without"
        )
    for scheme in fault.stores:
        if no_store := stores.missing(scheme):
            raise CannotStartError(f"{fault.name} needs a store of its own and {no_store}")


def busy_note(before: str, after: str) -> str | None:
    """Warn where others use so much CPU that they may slow the requests; takes two /proc/stat texts."""
    idle, total = (new - old for old, new in zip(_ticks(before), _ticks(after), strict=True))
    if total <= 0 or 1 - idle / total < _BUSY_SHARE:
        return None
    return (
        f"other work uses {1 - idle / total:.0%} of the CPUs: "
        "the report may well name that instead of the injected fault"
    )


def _ticks(stat: str) -> tuple[int, int]:
    """Return idle (with iowait) and all ticks since boot, proc_stat(5)."""
    user, nice, system, idle, iowait, *rest = map(int, stat.split("\n", 1)[0].split()[1:9])
    return idle + iowait, user + nice + system + idle + iowait + sum(rest)


def look_at_cpus(stat: Path = Path("/proc/stat")) -> str | None:
    """Watch the CPUs for a moment; return the warning, if any."""
    before = stat.read_text(encoding="ascii")
    time.sleep(_LOOK_S)
    return busy_note(before, stat.read_text(encoding="ascii"))


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
