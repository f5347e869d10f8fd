"""The tools that people use today, run beside ours: libbpf-tools and perf."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ebpf import progstats
from ebpf.libbpf import Library
from ebpf.progstats import RunStats

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def find(tool: str) -> str | None:
    """Return where a tool is installed; Debian keeps these where only root's PATH looks."""
    return shutil.which(tool, path=PATH)


@dataclass(frozen=True)
class Peer:
    """A running tool and descriptors of the programs that it has loaded."""

    process: "subprocess.Popen[str]"
    programs: tuple[int, ...]

    def stats(self, library: Library) -> list[RunStats]:
        """Read the kernel's statistics of its programs."""
        return [progstats.read(library, fd) for fd in self.programs]


@contextmanager
def running(tool: str, library: Library) -> Iterator[Peer]:
    """Start a tool, wait until it traces, and stop it as a user would."""
    process = subprocess.Popen(
        ("stdbuf", "-oL", str(find(tool)), "3600", "1"), stdout=subprocess.PIPE, text=True
    )
    programs: tuple[int, ...] = ()
    try:
        assert process.stdout is not None
        if "Tracing" not in process.stdout.readline():
            raise RuntimeError(f"{tool} does not start")
        programs = tuple(_open(library, identity) for identity in _program_ids(process.pid))
        yield Peer(process, programs)
    finally:
        for fd in programs:
            os.close(fd)
        process.send_signal(signal.SIGINT)
        process.communicate()


def _program_ids(pid: int) -> list[int]:
    found = set()
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        if "bpf-prog" in str((Path(f"/proc/{pid}/fd") / entry.name).readlink()):
            fields = dict(line.split(":", 1) for line in entry.read_text().splitlines())
            found.add(int(fields["prog_id"]))
    return sorted(found)


def _open(library: Library, identity: int) -> int:
    fd = int(library.call.bpf_prog_get_fd_by_id(ctypes.c_uint32(identity)))
    if fd < 0:
        raise RuntimeError(
            f"program {identity} cannot be opened: {os.strerror(ctypes.get_errno())}"
        )
    return fd


@dataclass(frozen=True)
class Pipe:
    """`perf bench sched pipe` on one CPU: two tasks that hand a byte to and fro."""

    cpu: int
    loops: int
    threaded: bool = False

    def start(self) -> "subprocess.Popen[str]":
        """Start it behind a gate: it begins when a line comes in, under the process id that it has now."""
        kind = " -T" if self.threaded else ""
        command = (
            f"read go; exec {find('taskset')} -c {self.cpu} {find('perf')} bench"
            f" sched pipe{kind} -l {self.loops}"
        )
        return subprocess.Popen(
            ("sh", "-c", command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self, process: "subprocess.Popen[str] | None" = None) -> float:
        """Let it run and return how long its loops took."""
        said, _ = (process or self.start()).communicate("\n")
        per_loop_us = re.search(r"([\d.]+) usecs/op", said)  # its total has milliseconds only
        if per_loop_us is None:
            raise RuntimeError(f"perf bench says something else than it used to: {said}")
        return float(per_loop_us[1]) * self.loops / 1e6


def missing() -> Mapping[str, str]:
    """Return the tools that are not installed, with the package that has them."""
    wanted = {
        "perf": "linux-perf (Ubuntu: linux-tools-generic)",
        "runqlat": "libbpf-tools",
        "biolatency": "libbpf-tools",
        "taskset": "util-linux",
        "cc": "gcc",
    }
    return {tool: package for tool, package in wanted.items() if find(tool) is None}
