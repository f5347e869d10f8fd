"""The probes that exist, in the order in which they are attached."""

from collections.abc import Callable, Mapping

from ebpf.bcc_loader.probe import SchedBcc
from ebpf.probe import Fallback, Probe
from ebpf.probes.blkio import Blkio
from ebpf.probes.cuda import Cuda
from ebpf.probes.mem import Mem
from ebpf.probes.nccl import Nccl
from ebpf.probes.sched import Sched
from ebpf.probes.tcp import Tcp
from ebpf.probes.waits import Waits

PROBES: Mapping[str, Callable[[], Probe]] = {
    "sched": Sched,
    "waits": Waits,
    "blkio": Blkio,
    "tcp": Tcp,
    "mem": Mem,
    "cuda": Cuda,
    "nccl": Nccl,
}

FALLBACKS: Mapping[str, Callable[[], Fallback]] = {
    "sched-bcc": SchedBcc,
}
"""What the bcc loader has, for kernels without BTF."""
