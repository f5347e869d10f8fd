"""A real cgroup to put processes in; needs root."""

import time
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")


class RealCgroup:
    """A cgroup with a quota of a tenth of a CPU, in whatever layout this machine has."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.v2 = (MOUNT / "cgroup.controllers").exists()
        names = ("cpu", "cpuacct", "memory", "blkio", "pids", "unified")
        trees = [MOUNT] if self.v2 else [MOUNT / name for name in names]
        self.directories = [tree / path.lstrip("/") for tree in trees if tree.is_dir()]
        if self.v2:
            (MOUNT / "cgroup.subtree_control").write_text("+cpu +memory +pids +io")
        self.make()

    def make(self) -> None:
        """Create it and set the quota."""
        for directory in self.directories:
            directory.mkdir()
        cpu = self.directories[0]
        if self.v2:
            (cpu / "cpu.max").write_text("10000 100000")
        else:
            (cpu / "cpu.cfs_quota_us").write_text("10000")

    def add(self, pid: int) -> None:
        """Move a process in."""
        for directory in self.directories:
            (directory / "cgroup.procs").write_text(str(pid))

    def throttled_s(self) -> float:
        """Read the throttled seconds straight from the kernel's file."""
        words = (self.directories[0] / "cpu.stat").read_text().split()
        values = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        return values["throttled_usec"] / 1e6 if self.v2 else values["throttled_time"] / 1e9

    def remove(self) -> None:
        """Remove it; its processes must be gone."""
        for directory in self.directories:
            for _ in range(100):
                try:
                    directory.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.02)
