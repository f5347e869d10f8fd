"""Finds where this machine mounts its cgroup hierarchies (v1, v2 or both)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

CONTROLLERS = ("cpu", "cpuacct", "memory", "blkio", "io")
"""The controllers that the workload wants; `cpuacct` and `blkio` exist in v1 only, `io` in v2."""


class Layout(StrEnum):
    """Which kernel interface rules the CPU and memory of a process here."""

    V1 = "v1"
    V2 = "v2"
    HYBRID = "hybrid"
    NONE = "none"


@dataclass(frozen=True)
class Hierarchies:
    """The mount point of each v1 controller that we want, and of the v2 tree with what it offers."""

    v1: Mapping[str, Path]
    v2: Path | None
    v2_controllers: frozenset[str]

    @property
    def layout(self) -> Layout:
        """The layout by systemd's names: hybrid is v1 controllers beside a v2 tree."""
        if self.v1:
            return Layout.HYBRID if self.v2 else Layout.V1
        return Layout.V2 if self.v2 else Layout.NONE

    @property
    def v1_trees(self) -> tuple[Path, ...]:
        """The v1 mount points, each once: `cpu,cpuacct` is one tree on most machines."""
        return tuple(dict.fromkeys(self.v1[name] for name in CONTROLLERS if name in self.v1))


@dataclass(frozen=True)
class _Mount:
    point: str
    kind: str
    options: frozenset[str]


def discover(root: Path = Path("/")) -> Hierarchies:
    """Read `proc/self/mountinfo` below `root`; mount points are taken below `root` too."""
    text = (root / "proc/self/mountinfo").read_text()
    mounts = [mount for line in text.splitlines() if (mount := _parse(line)) is not None]
    v1: dict[str, Path] = {}
    v2: Path | None = None
    for mount in mounts:
        point = root / mount.point.lstrip("/")
        if mount.kind == "cgroup2":
            v2 = v2 or point
            continue
        for name in mount.options.intersection(CONTROLLERS):
            v1.setdefault(name, point)
    return Hierarchies(v1, v2, _offered(v2) - v1.keys())


def _offered(v2: Path | None) -> frozenset[str]:
    """Read what the v2 tree can hand out at its mount point."""
    if v2 is None:
        return frozenset()
    try:
        words = (v2 / "cgroup.controllers").read_text().split()
    except OSError:  # unreadable for us: then nothing can be enabled there either
        return frozenset()
    return frozenset(words).intersection(CONTROLLERS)


def _parse(line: str) -> _Mount | None:
    """One line of mountinfo (proc(5)): fixed fields, optional ones, a dash, then type and options."""
    left, dash, right = line.partition(" - ")
    fields, tail = left.split(), right.split()
    if not dash or len(fields) < 5 or len(tail) < 3 or tail[0] not in ("cgroup", "cgroup2"):
        return None
    return _Mount(_unescape(fields[4]), tail[0], frozenset(tail[2].split(",")))


def _unescape(text: str) -> str:
    """Undo the octal escapes by which the kernel writes blanks in mount points."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
