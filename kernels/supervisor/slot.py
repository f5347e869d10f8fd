"""The place of one server: what outlives its releases, and who serves there now."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.supervisor.cgroups import Cgroup
from kernels.supervisor.replica import Replica
from kernels.supervisor.state import ReplicaState


@dataclass(eq=False)
class Slot:
    """A name, a listening socket and a cgroup that stay the same while one release follows another."""

    instance: str
    listener: socket.socket
    cgroup: Cgroup | None = None
    active: Replica | None = None

    @property
    def port(self) -> int:
        """The port of the socket."""
        return int(self.listener.getsockname()[1])

    @property
    def socket_inode(self) -> int:
        """What the socket is called in `/proc/PID/fd`."""
        return os.fstat(self.listener.fileno()).st_ino

    @property
    def procs_files(self) -> Sequence[Path]:
        """Where a process enters the cgroup; none without one."""
        return self.cgroup.procs_files if self.cgroup else ()

    def state(self) -> ReplicaState:
        """Describe it for `workload.json`; pid 0 while nobody serves."""
        return ReplicaState(
            instance=self.instance,
            pid=self.active.pid if self.active else 0,
            port=self.port,
            cgroup=self.cgroup.path if self.cgroup else None,
        )
