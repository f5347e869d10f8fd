"""Every fault there is. To add one: its file, and one line here."""

from kernels.faults.bad_deploy import BadDeployFault
from kernels.faults.base import Fault
from kernels.faults.cache_outage import CacheOutageFault
from kernels.faults.cold_start import ColdStart
from kernels.faults.cpu_quota import CpuQuotaFault
from kernels.faults.decoy_deploy import DecoyDeploy
from kernels.faults.decoy_neighbour import DecoyNeighbour
from kernels.faults.decoy_throttled import DecoyThrottled
from kernels.faults.gc_pause import GcPauseFault
from kernels.faults.gpu import GPU_HUNG, GPU_LOST, GPU_THROTTLE, GPU_XID
from kernels.faults.hang import HangFault
from kernels.faults.kv_exhaustion import KvExhaustionFault
from kernels.faults.lock_contention import LockContentionFault
from kernels.faults.long_prompts import LongPromptsFault
from kernels.faults.memory_limit import MemoryLimitFault
from kernels.faults.net_delay import NetDelayFault
from kernels.faults.net_loss import NetLossFault
from kernels.faults.net_rate import NetRateFault
from kernels.faults.noisy_neighbour import NoisyNeighbour
from kernels.faults.oom_kill import OomKillFault
from kernels.faults.retry_storm import RetryStormFault
from kernels.faults.slow_disk import SlowDiskFault
from kernels.faults.slow_sql import SlowSqlFault
from kernels.faults.surge import SurgeFault
from kernels.faults.tenant_mix import TenantMixFault

FAULTS: tuple[Fault, ...] = (
    CpuQuotaFault(),
    BadDeployFault(),
    NoisyNeighbour(),
    MemoryLimitFault(),
    OomKillFault(),
    SlowDiskFault(),
    NetLossFault(),
    NetRateFault(),
    NetDelayFault(),
    SlowSqlFault(),
    CacheOutageFault(),
    LockContentionFault(),
    GcPauseFault(),
    HangFault(),
    RetryStormFault(),
    KvExhaustionFault(),
    GPU_THROTTLE,
    GPU_XID,
    GPU_LOST,
    GPU_HUNG,
    SurgeFault(),
    LongPromptsFault(),
    TenantMixFault(),
    ColdStart(),
    DecoyDeploy(),
    DecoyThrottled(),
    DecoyNeighbour(),
)
