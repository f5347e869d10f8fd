"""Small copies of the cgroup file systems that real machines have."""

from pathlib import Path

HYBRID_SPLIT = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
"""Captured from a VM whose cpu and cpuacct are mounts of their own."""

V1_JOINED = """\
25 20 0:22 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
27 25 0:24 / /sys/fs/cgroup/systemd rw,relatime shared:11 - cgroup cgroup rw,xattr,name=systemd
30 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:14 - cgroup cgroup rw,cpu,cpuacct
31 25 0:28 / /sys/fs/cgroup/memory rw,relatime shared:15 - cgroup cgroup rw,memory
"""
"""The layout of distributions before cgroup v2, with the optional `shared:` field."""

V2 = """\
29 22 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate
"""
"""The layout of current distributions."""


def machine(root: Path, mountinfo: str) -> Path:
    """Lay out a root folder with this mountinfo and its mount points."""
    proc = root / "proc/self"
    proc.mkdir(parents=True)
    (proc / "mountinfo").write_text(mountinfo)
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        if right.startswith("cgroup"):
            (root / left.split()[4].lstrip("/")).mkdir(parents=True)
    return root


def v2_group(directory: Path, controllers: str = "cpu io memory pids", enabled: str = "") -> Path:
    """Give a v2 directory the files that the kernel would make."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cgroup.controllers").write_text(f"{controllers}\n")
    (directory / "cgroup.subtree_control").write_text(f"{enabled}\n")
    (directory / "cgroup.procs").write_text("")
    return directory
