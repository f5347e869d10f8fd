"""One cgroup, addressed by its path below every hierarchy's mount point.

Rules followed for v2 come from the kernel's Documentation/admin-guide/cgroup-v2.rst: controllers
are enabled from the top down, and processes sit in leaves only.
"""

import errno
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernels.errors import WorkloadError
from kernels.supervisor.files import write_existing
from kernels.supervisor.mounts import Hierarchies, Layout

PERIOD_US = 100_000
MIN_QUOTA_US = 1_000
"""The kernel refuses a smaller CFS quota."""

OWN_ROOT = "tailcause"
"""Empty groups from here down are ours to remove, whoever created them."""


class CgroupError(WorkloadError):
    """A cgroup could not be made, entered or changed."""


@dataclass(frozen=True)
class CpuQuota:
    """CPU time allowed in each period; `quota_us=None` is no limit."""

    quota_us: int | None
    period_us: int = PERIOD_US


@dataclass(frozen=True)
class Ruled:
    """Where a controller rules a group, and by which interface."""

    directory: Path
    v2: bool


@dataclass(frozen=True)
class CpuStat:
    """CFS bandwidth counters since the group was made."""

    periods: int
    throttled_periods: int
    throttled_s: float


class Cgroup:
    """A cgroup path with its directory in each tree that this machine has."""

    def __init__(self, hierarchies: Hierarchies, path: str) -> None:
        parts = PurePosixPath(path).parts
        if parts[:1] != ("/",) or len(parts) < 2 or ".." in parts:
            raise CgroupError(f"cgroup path {path!r} must start with / and name a group")
        self.path = "/" + "/".join(parts[1:])
        self._hierarchies = hierarchies

    @property
    def directories(self) -> tuple[Path, ...]:
        """The group's directory in every tree, v1 first."""
        v2 = (self._hierarchies.v2,) if self._hierarchies.v2 else ()
        return tuple(tree / self.path[1:] for tree in (*self._hierarchies.v1_trees, *v2))

    @property
    def procs_files(self) -> tuple[Path, ...]:
        """The files that take a process id; writing "0" moves the writer itself."""
        return tuple(directory / "cgroup.procs" for directory in self.directories)

    def removable_ancestors(self) -> tuple[Path, ...]:
        """List the groups above that are ours to remove once empty; ask before `create`."""
        ours = OWN_ROOT in self.path.split("/")[1:2]
        steps = len(PurePosixPath(self.path).parts) - 2
        above = [d for directory in self.directories for d in list(directory.parents)[:steps]]
        return tuple(directory for directory in above if ours or not directory.exists())

    def create(self) -> None:
        """Make the group in every tree; in v2 with cpu and memory enabled down to it."""
        if self._hierarchies.layout is Layout.NONE:
            raise CgroupError("no cgroup hierarchy is mounted: mount one at /sys/fs/cgroup")
        for directory in self.directories:
            _make(directory)
        if self._hierarchies.v2 is not None:
            self._enable_controllers(self._hierarchies.v2)

    def _enable_controllers(self, top: Path) -> None:
        """Top-down: a controller can be handed on only by a group that has received it."""
        wanted = sorted(self._hierarchies.v2_controllers)
        leaf = top / self.path[1:]
        inner = [leaf, *leaf.parents]
        for directory in reversed(inner[1 : inner.index(top) + 1]):
            file = directory / "cgroup.subtree_control"
            enabled = _read(file).split() if wanted else []
            for name in wanted:
                if name not in enabled:
                    _write(file, f"+{name}")

    def enter(self, pid: int) -> None:
        """Move a process, with all its threads, into the group in every tree."""
        for file in self.procs_files:
            _write(file, str(pid))

    def pids(self) -> frozenset[int]:
        """List the processes that sit in this group itself, in any tree."""
        found = (pid for file in self.procs_files if file.exists() for pid in _read(file).split())
        return frozenset(map(int, found))

    def ruled_by(self, v1_name: str, v2_name: str) -> Ruled:
        """Find the directory in which a controller, by its names in v1 and v2, rules this group."""
        if (v1 := self._hierarchies.v1.get(v1_name)) is not None:
            return Ruled(v1 / self.path[1:], v2=False)
        v2 = self._hierarchies.v2
        if v2 is None or v2_name not in self._hierarchies.v2_controllers:
            raise CgroupError(
                f"no hierarchy here has the {v2_name} controller: enable it in the kernel"
            )
        return Ruled(v2 / self.path[1:], v2=True)

    def quota_writes(self, quota: CpuQuota) -> tuple[tuple[Path, str], ...]:
        """Give the file writes that put a quota in force, in order."""
        if quota.quota_us is not None and quota.quota_us < MIN_QUOTA_US:
            raise CgroupError(f"a quota of {quota.quota_us} µs is under the kernel's minimum 1000")
        if (v1 := self._hierarchies.v1.get("cpu")) is not None:
            directory = v1 / self.path[1:]
            quota_us = -1 if quota.quota_us is None else quota.quota_us
            return (
                (directory / "cpu.cfs_period_us", str(quota.period_us)),
                (directory / "cpu.cfs_quota_us", str(quota_us)),
            )
        allowed = "max" if quota.quota_us is None else str(quota.quota_us)
        return ((self._v2_cpu() / "cpu.max", f"{allowed} {quota.period_us}"),)

    def set_quota(self, quota: CpuQuota) -> None:
        """Put a CPU quota in force."""
        for file, value in self.quota_writes(quota):
            _write(file, value)

    def set_weight(self, factor: float) -> None:
        """Set the CPU weight, as a multiple of the default one."""
        if (v1 := self._hierarchies.v1.get("cpu")) is not None:
            _write(v1 / self.path[1:] / "cpu.shares", str(max(2, round(1024 * factor))))
            return
        _write(self._v2_cpu() / "cpu.weight", str(min(max(1, round(100 * factor)), 10_000)))

    def quota(self) -> CpuQuota:
        """Read the CPU quota in force."""
        if (v1 := self._hierarchies.v1.get("cpu")) is not None:
            directory = v1 / self.path[1:]
            quota_us = int(_read(directory / "cpu.cfs_quota_us"))
            period_us = int(_read(directory / "cpu.cfs_period_us"))
            return CpuQuota(None if quota_us < 0 else quota_us, period_us)
        allowed, period = _read(self._v2_cpu() / "cpu.max").split()
        return CpuQuota(None if allowed == "max" else int(allowed), int(period))

    def cpu_stat(self) -> CpuStat:
        """Throttling so far; v1 counts nanoseconds, v2 microseconds."""
        v1 = self._hierarchies.v1.get("cpu")
        stat = _pairs((v1 / self.path[1:] if v1 else self._v2_cpu()) / "cpu.stat")
        throttled_s = stat["throttled_time"] / 1e9 if v1 else stat["throttled_usec"] / 1e6
        return CpuStat(stat["nr_periods"], stat["nr_throttled"], throttled_s)

    def cpu_usage_s(self) -> float:
        """CPU time used by the group and all below it; needs no controller in v2."""
        if (v1 := self._hierarchies.v1.get("cpuacct")) is not None:
            return int(_read(v1 / self.path[1:] / "cpuacct.usage")) / 1e9
        if self._hierarchies.v2 is None:
            raise CgroupError("no hierarchy here counts CPU time: mount cpuacct or cgroup2")
        return _pairs(self._hierarchies.v2 / self.path[1:] / "cpu.stat")["usage_usec"] / 1e6

    def _v2_cpu(self) -> Path:
        if self._hierarchies.v2 is None or "cpu" not in self._hierarchies.v2_controllers:
            raise CgroupError("no hierarchy here has the cpu controller: enable it in the kernel")
        return self._hierarchies.v2 / self.path[1:]


def _make(directory: Path) -> None:
    """Make a group and those above it; one that a neighbour removes meanwhile is made again."""
    for _ in range(5):
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise CgroupError(_advice("create", directory, exc)) from exc
        return
    raise CgroupError(f"cannot create {directory}: something keeps removing the groups above it")


def _write(file: Path, value: str) -> None:
    try:
        write_existing(file, value)
    except OSError as exc:
        raise CgroupError(_advice(f"write {value!r} to", file, exc)) from exc


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError as exc:
        raise CgroupError(_advice("read", file, exc)) from exc


def _pairs(file: Path) -> dict[str, int]:
    """Read a flat-keyed file: one `name value` a line."""
    return {key: int(value) for key, value in map(str.split, _read(file).splitlines())}


_ADVICE = {
    errno.EACCES: "run as root",
    errno.EPERM: "run as root",
    errno.EROFS: "mount the cgroup file system read-write",
    errno.EBUSY: "processes sit in an inner group: move them to a leaf, or choose another --cgroup",
    errno.ENOENT: "the group is gone, or the controller is not enabled above it",
}


def _advice(verb: str, file: Path, exc: OSError) -> str:
    reason = exc.strerror or str(exc)
    advice = _ADVICE.get(exc.errno or 0)
    return f"cannot {verb} {file}: {reason}" + (f" ({advice})" if advice else "")
