"""Ready-made scenarios: eight healthy H100 and what can be wrong with them."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from kernels.fakenvml.h100 import MIG_PROFILES, WHOLE_GPU_ONLY, gpu_uuid, h100, mig_device, mig_uuid
from kernels.fakenvml.scenario import (
    EVERY_FUNCTION,
    Failure,
    Hang,
    Process,
    Ramp,
    Scenario,
    Value,
)

__all__ = [
    "SCENARIOS", "ecc", "gpu_uuid", "h100", "healthy", "hung", "lost", "mig", "mig_uuid", "no_driver", "not_supported",
    "throttled", "time_sliced", "xid_twice",
]  # fmt: skip

GPUS = 8
_GIB = 1 << 30
_MIB = 1 << 20

HW_SLOWDOWN = 0x8
HW_THERMAL = 0x40


def healthy(gpus: int = GPUS) -> Scenario:
    """Return H100s with a process each (pids from 4000 on) and nothing wrong."""
    use = (60, 30, 0, 0)
    return Scenario(
        tuple(
            replace(h100(i), processes=(Process(4000 + i, 60 * _GIB, use=use),))
            for i in range(gpus)
        )
    )


def mig(
    profiles: tuple[str, ...] = ("3g.40gb", "2g.20gb", "1g.10gb"), gpus: int = GPUS
) -> Scenario:
    """Return `healthy` with GPU 0 cut into MIG devices of these profiles, a process in each."""
    whole = h100(0).lacking(*WHOLE_GPU_ONLY).having({"mig.mode": 1, "mig.pending": 1})
    start, migs = 0, []
    for number, profile in enumerate(profiles):
        migs.append(mig_device(number, profile, start))
        start += MIG_PROFILES[profile]["gi.size"]
    processes = tuple(
        Process(5000 + number, 2 * _GIB, instance=(number + 1, 0))
        for number in range(len(profiles))
    )
    return healthy(gpus).with_gpu(0, replace(whole, migs=tuple(migs), processes=processes))


def time_sliced(pods: int = 3) -> Scenario:
    """Return one GPU that several processes share.

    NVML has no sign for time-slicing: it is only the device plug-in that hands out one GPU many
    times, so all there is to see are processes of several containers on one UUID.
    """
    processes = tuple(Process(6000 + i, 8 * _GIB, use=(20, 10, 0, 0)) for i in range(pods))
    return Scenario((replace(h100(0), processes=processes),))


def throttled(index: int = 0) -> Scenario:
    """Return `healthy` with one GPU held back by its heat, half of the time."""
    return healthy().having(
        index,
        {
            "clock.sm": 990,
            "clock.graphics": 990,
            "clocks.reasons": HW_SLOWDOWN | HW_THERMAL,
            "temperature.gpu": 90,
            "power.usage": 310_000,
            "violation.thermal": Ramp(0, 0.5e9),
        },
    )


def ecc(index: int = 0) -> Scenario:
    """Return `healthy` with one GPU whose memory makes errors and has rows to be remapped."""
    return healthy().having(
        index,
        {
            "ecc.volatile.corrected": Ramp(12, 2),
            "ecc.volatile.corrected.dram": Ramp(12, 2),
            "ecc.volatile.uncorrected": 1,
            "ecc.volatile.uncorrected.dram": 1,
            "ecc.aggregate.corrected": Ramp(4012, 2),
            "ecc.aggregate.corrected.dram": Ramp(4012, 2),
            "ecc.aggregate.uncorrected": 3,
            "ecc.aggregate.uncorrected.dram": 3,
            "remapped.correctable": 2,
            "remapped.uncorrectable": 1,
            "remapped.pending": 1,
        },
    )


def xid_twice(index: int = 0, code: int = 94) -> Scenario:
    """Return `healthy` with the same XID twice on one GPU, now: register before writing it."""
    return healthy().with_xid(index, code).with_xid(index, code)


def lost(index: int = 0) -> Scenario:
    """Return `healthy` with one GPU fallen off the bus; NVML still counts it."""
    return _with_fault(index, Failure(EVERY_FUNCTION, "GPU_IS_LOST"))


def hung(index: int = 0, seconds: float = 3600.0) -> Scenario:
    """Return `healthy` with one GPU whose every call blocks."""
    return _with_fault(index, Hang(EVERY_FUNCTION, seconds))


def _with_fault(index: int, fault: Failure | Hang) -> Scenario:
    scenario = healthy()
    return scenario.with_gpu(index, scenario.gpus[index].faulty(fault))


def not_supported() -> Scenario:
    """Return one consumer GPU of 2016, which lacks most of what the others have."""
    gpu = h100(0).lacking(
        *("nvlink.", "gpm.", "ecc.", "remapped.", "mig.", "violation.", "utilization.jpeg"),
        *("utilization.ofa", "energy", "serial", "temperature.memory", "pcie.tx_bytes"),
        *("pcie.rx_bytes", "power.average", "part_number", "module_id", "clock.default."),
    )
    consumer: dict[str, Value] = {
        "name": "NVIDIA GeForce GTX 1080",
        "brand": 5,
        "architecture": 4,
        "capability.major": 6,
        "capability.minor": 1,
        "cores": 2560,
        "memory.total": 8192 * _MIB,
        "memory.used": 512 * _MIB,
        "memory.reserved": 80 * _MIB,
        "memory.bus_width": 256,
        "power.limit": 180_000,
        "power.limit.enforced": 180_000,
        "fans": 1,
        "fan.0": 41,
    }
    return Scenario((gpu.having(consumer),))


def no_driver() -> Scenario:
    """Return what the library says when the kernel module is not loaded."""
    return healthy().faulty(Failure("nvmlInit*", "DRIVER_NOT_LOADED"))


SCENARIOS: Mapping[str, Callable[[], Scenario]] = {
    "healthy": healthy,
    "mig": mig,
    "time-sliced": time_sliced,
    "throttled": throttled,
    "ecc": ecc,
    "xid-twice": xid_twice,
    "lost": lost,
    "hung": hung,
    "not-supported": not_supported,
    "no-driver": no_driver,
}
