"""A node with work on it: real processes in real cgroups, and GPUs of the fake NVML."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agent.host.cgroup_walk import directory
from agent.host.hierarchies import Hierarchies, discover
from agent.host.paths import HostPaths
from kernels.fakenvml import build, scenarios

PARENT = f"/tailcause-bench-{os.getpid()}"
TENANT, CHURNER = "tenant", "churner"
_CROWD = Path(__file__).with_name("agent_crowd.c")
_REMOVE_S = 30.0


@dataclass(frozen=True)
class Size:
    """How much there is on the node; of the cgroups one in `awake_one_in` has processes that wake up every second."""

    cgroups: int = 200
    processes: int = 1000
    gpus: int = 8
    awake_one_in: int = 4


@dataclass(frozen=True)
class Node:
    """What is on the node."""

    size: Size
    hierarchies: Hierarchies
    cgroups: tuple[str, ...]
    """Paths below the mounts."""
    pids: tuple[int, ...]
    """One process of each cgroup."""
    scenario: Path
    gpu_library: Path
    programs: Path

    @property
    def awake(self) -> tuple[str, ...]:
        """The cgroups with processes that wake up."""
        return self.cgroups[:: self.size.awake_one_in]

    def directories(self, cgroup: str) -> list[Path]:
        """Return where a cgroup lies in each tree."""
        return [Path(directory(tree, cgroup)) for tree in self.hierarchies.trees]


class Crowd:
    """Processes that sleep, or wake up every second; `replaced_per_s` (a multiple of 50) give way to new ones."""

    def __init__(
        self,
        program: Path,
        alive: int,
        replaced_per_s: int = 0,
        *,
        awake: bool = False,
        into: str = "",
    ) -> None:
        """`into` is a shell's words that place the processes."""
        command = f'{into}exec "$0" {alive} {replaced_per_s} {int(awake)}'
        self._process = subprocess.Popen(
            ("sh", "-c", command, program), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @property
    def pid(self) -> int:
        """The first of them; it is the others' parent."""
        return self._process.pid

    def started(self) -> int:
        """Return how many have been started so far; waits until the first ones live."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("processes cannot be started: is pid_max or a pids.max too low?")
        return int(line)

    def ask(self) -> int:
        """Return how many have been started by now."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.started()

    def close(self) -> None:
        """End all of them."""
        self._process.communicate()


@contextmanager
def node(size: Size, folder: Path) -> Iterator[Node]:
    """Build the node, and remove it."""
    programs = _compile(folder)
    hierarchies = discover(HostPaths())
    cgroups = tuple(f"{PARENT}/{number:03}" for number in range(size.cgroups))
    with ExitStack() as built:
        for cgroup in (PARENT, *cgroups):
            built.callback(_remove, hierarchies, cgroup)
            _make(hierarchies, cgroup)
        share = size.processes // size.cgroups - 1  # and the parent of these
        crowds = [
            Crowd(
                programs / TENANT,
                share,
                awake=number % size.awake_one_in == 0,
                into=_into(hierarchies, cgroup),
            )
            for number, cgroup in enumerate(cgroups)
        ]
        for crowd in crowds:
            built.callback(crowd.close)
        for crowd in crowds:
            crowd.started()
        pids = tuple(crowd.pid for crowd in crowds)
        scenario = _scenario(size.gpus, pids, folder / "gpus")
        yield Node(size, hierarchies, cgroups, pids, scenario, build.library(), programs)


def _compile(folder: Path) -> Path:
    subprocess.run(
        ["cc", "-O2", "-Wall", "-Werror", str(_CROWD), "-o", str(folder / TENANT)], check=True
    )
    shutil.copy(folder / TENANT, folder / CHURNER)
    return folder


def _make(hierarchies: Hierarchies, cgroup: str) -> None:
    for tree in hierarchies.trees:
        path = Path(directory(tree, cgroup))
        controllers = path.parent / "cgroup.controllers"
        if controllers.exists() and (names := controllers.read_text().split()):
            wanted = [f"+{name}" for name in ("cpu", "memory", "io", "pids") if name in names]
            (path.parent / "cgroup.subtree_control").write_text(" ".join(wanted))
        path.mkdir()
        for name in ("cpus", "mems"):  # a v1 cpuset takes nobody in before it has some
            own, inherited = path / f"cpuset.{name}", path.parent / f"cpuset.{name}"
            if tree.version == 1 and own.exists():
                own.write_text(inherited.read_text())


def _remove(hierarchies: Hierarchies, cgroup: str) -> None:
    deadline_s = time.monotonic() + _REMOVE_S
    for tree in hierarchies.trees:
        path = Path(directory(tree, cgroup))
        while path.exists():
            try:
                path.rmdir()
            except OSError:  # its processes are still ending
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.02)


def _into(hierarchies: Hierarchies, cgroup: str) -> str:
    files = [f"{directory(tree, cgroup)}/cgroup.procs" for tree in hierarchies.trees]
    return "".join(f"echo $$ >{file} && " for file in files)


def _scenario(gpus: int, pids: tuple[int, ...], path: Path) -> Path:
    """Write healthy GPUs, each used by a process of the node."""
    healthy = scenarios.healthy(gpus)
    used = [
        replace(gpu, processes=tuple(replace(one, pid=pid) for one in gpu.processes))
        for gpu, pid in zip(healthy.gpus, pids, strict=False)
    ]
    replace(healthy, gpus=tuple(used)).write(path)
    return path
