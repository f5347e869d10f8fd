"""Fault `memory-limit`: the memory limit of the server's cgroup leaves little room for the files that it reads."""

from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultError, FaultKind, Injection, interpolate
from kernels.supervisor.actions import WriteFile
from kernels.supervisor.memory import MemoryGroup

MIN_FILES_BYTES = 16 << 20
"""With less in the page cache there is nothing to take back that anybody would miss."""

SLACK_BYTES = 4 << 20
SHARE = ((1.5, 0.6), (3.0, 0.3), (6.0, 0.1))
"""(P99 factor, share of the cached file pages that still fits), at 20 requests/s and a slow disk; a quick one gives files back unnoticed."""


@dataclass(frozen=True)
class MemoryLimitFault:
    """Sets the limit a little above what cannot be taken back; adapters are then read from disk again and again."""

    name: str = "memory-limit"
    kind: FaultKind = FaultKind.FAULT
    description: str = "memory limit that leaves no room for the page cache (needs root)"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ("--set", "adapters=64")

    def inject(self, context: FaultContext) -> Injection:
        """See what the server holds, then set the limit."""
        cgroup = context.workload_cgroup()
        memory = MemoryGroup(cgroup)
        before = memory.use()
        if before.files < MIN_FILES_BYTES:
            raise FaultError(
                f"the server holds {before.files >> 20} MiB of file pages, too little to miss: "
                "start `up --set adapters=64` and some load first"
            )
        share = interpolate(SHARE, context.options.intensity)
        limit_bytes = before.kept + SLACK_BYTES + int(share * before.files)
        context.reaper.add(WriteFile(str(memory.limit_file), memory.limit_text()))
        memory.set_limit(limit_bytes)
        return Injection(
            target=cgroup.path,
            parameters={
                "limit_bytes": limit_bytes,
                "used_bytes_before": before.total,
                "file_bytes_before": before.files,
            },
        )
