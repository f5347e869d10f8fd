"""Decoy `cold-start`: the same release, started anew with nothing warm; slow at first, and then as before."""

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kernels.faults.base import FaultContext, FaultKind, Injection
from kernels.supervisor.actions import AskSupervisor
from kernels.supervisor.control import DeployRequest, ask
from kernels.supervisor.state import control_socket
from kernels.workload.cache import default_cache_dir


@dataclass(frozen=True)
class ColdStart:
    """Replaces the server by one that accepts before it has run anything, and drops its files from the page cache."""

    name: str = "cold-start"
    kind: FaultKind = FaultKind.DECOY
    description: str = "the same release started cold: its first requests are slow"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Deploy what runs already, without its warm-up."""
        old = context.workload
        back = DeployRequest(old.revision, old.version, old.settings)
        cold = DeployRequest(old.revision, old.version, old.settings | {"warm_up": "off"})
        socket = str(control_socket(context.state_dir))
        context.reaper.add(AskSupervisor(socket, msgspec.to_builtins(back)))
        dropped = _drop_cached_files(default_cache_dir())
        deployed = ask(context.state_dir, cold)
        return Injection(
            target=old.service,
            started_unix_s=deployed.new_accepting_unix_s,
            parameters={"revision": old.revision, "files_dropped": dropped},
        )


def _drop_cached_files(folder: Path) -> int:
    """Ask the kernel to forget the pages of these files, posix_fadvise(2); those in use stay."""
    files = [file for file in folder.glob("*") if file.is_file()]
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return len(files)
