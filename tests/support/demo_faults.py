"""Faults as the workload lists them, for tests that must not depend on what it has today."""

from detector.cli.demo.faults import NONE, Fault, Kind

CPU_QUOTA = Fault("cpu-quota", Kind.FAULT, requires=("root",))
BAD_DEPLOY = Fault("bad-deploy", Kind.FAULT)
NEIGHBOUR = Fault("noisy-neighbour", Kind.FAULT, requires=("root",))
SURGE = Fault("surge", Kind.DEMAND)
FIRST_FIVE = (CPU_QUOTA, BAD_DEPLOY, NEIGHBOUR, SURGE, NONE)

SLOW_DISK = Fault("slow-disk", Kind.FAULT, needs=("--set", "adapters=64"), requires=("root",))
NET_LOSS = Fault("net-loss", Kind.FAULT, needs=("--network",), requires=("root",))
SLOW_SQL = Fault("slow-sql", Kind.FAULT, needs=("--set", "tenant_db=postgresql://…"))
GPU_LOST = Fault("gpu-lost", Kind.FAULT, needs=("--hook",), requires=("gpus",))
LONG_PROMPTS = Fault("long-prompts", Kind.DEMAND)
COLD_START = Fault("cold-start", Kind.DECOY)
BYSTANDER = Fault("decoy-throttled", Kind.DECOY, requires=("root",))
IDLE_NEIGHBOUR = Fault("decoy-neighbour", Kind.DECOY, requires=("root",))

EVERY = (
    CPU_QUOTA, BAD_DEPLOY, NEIGHBOUR, SLOW_DISK, NET_LOSS, SLOW_SQL, GPU_LOST, SURGE, LONG_PROMPTS,
    COLD_START, BYSTANDER, IDLE_NEIGHBOUR, NONE,
)  # fmt: skip
