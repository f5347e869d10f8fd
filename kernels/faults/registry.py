"""Every fault there is. To add one: its file, and one line here."""

from kernels.faults.bad_deploy import BadDeployFault
from kernels.faults.base import Fault
from kernels.faults.cpu_quota import CpuQuotaFault
from kernels.faults.decoy_deploy import DecoyDeploy
from kernels.faults.decoy_neighbour import DecoyNeighbour
from kernels.faults.decoy_throttled import DecoyThrottled
from kernels.faults.noisy_neighbour import NoisyNeighbour
from kernels.faults.surge import SurgeFault

FAULTS: tuple[Fault, ...] = (
    CpuQuotaFault(),
    BadDeployFault(),
    SurgeFault(),
    NoisyNeighbour(),
    DecoyDeploy(),
    DecoyThrottled(),
    DecoyNeighbour(),
)
