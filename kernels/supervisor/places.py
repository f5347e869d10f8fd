"""Where the servers of a workload run: their sockets and cgroups, made before the first one starts."""

import logging
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from kernels.errors import WorkloadError
from kernels.supervisor.actions import KillCgroup, RemoveCgroup
from kernels.supervisor.cgroups import Cgroup, CgroupError
from kernels.supervisor.mounts import discover
from kernels.supervisor.reaper import Reaper
from kernels.supervisor.slot import Slot

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Places:
    """Where servers run: a slot per replica, the one of the balancer before several, and the cgroup of all."""

    replicas: Sequence[Slot]
    balancer: Slot | None = None
    cgroup: Cgroup | None = None

    @property
    def front(self) -> Slot:
        """Where clients go."""
        return self.balancer or self.replicas[0]


def one(service: str, public: socket.socket, path: str, reaper: Reaper) -> Places:
    """Make the place of a server that clients reach directly."""
    cgroup = _enter_cgroup(path, reaper)
    return Places([Slot(f"{service}-0", public, cgroup)], cgroup=cgroup)


def several(
    service: str, sockets: tuple[socket.socket, list[socket.socket]], path: str, reaper: Reaper
) -> Places:
    """Make the places of replicas and their balancer, each in a group of its own below the workload's."""
    public, inner = sockets
    whole = Cgroup(discover(), path)
    _refuse_occupied(whole)
    slots = []
    for number, listener in enumerate(inner):
        name = f"{service}-{number}"
        slots.append(Slot(name, listener, _enter_cgroup(f"{path}/{name}", reaper)))
    front = Slot("balancer", public, _enter_cgroup(f"{path}/balancer", reaper))
    return Places(slots, front, whole if front.cgroup else None)


def balancer_command(places: Places) -> list[str]:
    """Build the command line of the balancer before these replicas."""
    words = [sys.executable, "-m", "kernels.cli", "balance"]
    words += ["--listen-fd", str(places.front.listener.fileno())]
    for slot in places.replicas:
        words += ["--backend", f"{slot.instance}=http://127.0.0.1:{slot.port}"]
    return words


def _enter_cgroup(path: str, reaper: Reaper) -> Cgroup | None:
    """Make the cgroup; None, with what is lost, where that is not allowed."""
    cgroup = Cgroup(discover(), path)
    _refuse_occupied(cgroup)
    directories = tuple(map(str, cgroup.directories))
    reaper.add(RemoveCgroup(directories, tuple(map(str, cgroup.removable_ancestors()))))
    try:
        cgroup.create()
    except CgroupError as exc:
        log.warning(
            "no cgroup reason=%r lost=%r", str(exc), "fault cpu-quota, CPU figures of the service"
        )
        return None
    reaper.add(KillCgroup(directories))
    return cgroup


def _refuse_occupied(cgroup: Cgroup) -> None:
    if cgroup.pids():
        raise WorkloadError(
            f"cgroup {cgroup.path} has processes in it already: choose another --cgroup"
        )
