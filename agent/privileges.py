"""What the agent does with its privileges before it starts: see the host's cgroups, give up what it does not need."""

import ctypes
import logging
import os
from collections.abc import Sequence

from agent.capabilities import (
    Capability,
    can_probe,
    effective,
    give_up,
    in_host_pid_namespace,
    missing,
    needed,
)
from agent.config import Config
from agent.errors import AgentError
from agent.host.paths import DEFAULT_PROCFS, HostPaths

_log = logging.getLogger(__name__)

_CLONE_NEWCGROUP = 0x02000000  # include/uapi/linux/sched.h
NO_HOST_PIDS = "processes outside this container, and spans joined by their process id"


def settle(config: Config) -> None:
    """Do both; to be called while there is one thread, because each thread has its own.

    A child of the agent cannot gain more. What does not work is told and stops nothing.
    """
    join_host_cgroups(config.paths)
    try:
        give_up(wanted(config))
    except AgentError as exc:
        _log.warning("event=capabilities_kept why=%r", str(exc))


def wanted(config: Config) -> Sequence[Capability]:
    """Return the capabilities that these settings have a use for."""
    if config.unprivileged:
        return ()
    return needed(probes=config.probes.enabled, ports=_ports(config))


def _ports(config: Config) -> tuple[int, ...]:
    return config.otlp_port, config.grpc_port or 0, config.metrics_port


def lost(config: Config) -> list[str]:
    """Return what these settings ask for and this process may not."""
    held = effective()
    probes = config.unprivileged or config.probes.enabled
    lacking = missing(needed(probes=False, ports=_ports(config)), held)
    found = [one.lost for one in lacking]
    if probes and not can_probe(held):
        found.append("eBPF probes: the latency ledger, and who had the CPU")
    return found if in_host_pid_namespace() else [*found, NO_HOST_PIDS]


def tell(config: Config) -> None:
    """Log once what is lost for want of privileges; nothing where nothing is."""
    missed = lost(config)
    if missed:
        mode = "unprivileged" if config.unprivileged else "few_privileges"
        _log.info("event=%s lost=%r next='tailcause-agent doctor'", mode, "; ".join(missed))


def join_host_cgroups(paths: HostPaths) -> bool:
    """Leave a container's cgroup namespace: in it, the paths of all others begin with `/..`.

    True where this thread is in the namespace of the host's first process.
    """
    theirs = paths.procfs / "1" / "ns" / "cgroup"
    try:
        if theirs.stat().st_ino == (DEFAULT_PROCFS / "self/ns/cgroup").stat().st_ino:
            return True
        descriptor = os.open(theirs, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        _log.debug("event=cgroup_namespace_unknown why=%r", str(exc))
        return False
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, _CLONE_NEWCGROUP) == 0:
            return True
        why = os.strerror(ctypes.get_errno())
        _log.warning("event=cgroup_namespace_kept why=%r lost='cgroups of other containers'", why)
        return False
    finally:
        os.close(descriptor)
