"""Ready-made scenarios: eight healthy H100 and what can be wrong with them."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

from kernels.fakenvml.scenario import (
    EVERY_FUNCTION,
    Failure,
    Gpu,
    Hang,
    Mig,
    Process,
    Ramp,
    Scenario,
    Value,
)

GPUS = 8
LINKS = 18
_NAMES = uuid.UUID("5e1f0000-0000-4000-8000-000000000000")
_GIB = 1 << 30
_MIB = 1 << 20

SW_POWER_CAP = 0x4
HW_SLOWDOWN = 0x8
SW_THERMAL = 0x20
HW_THERMAL = 0x40

_H100: dict[str, Value] = {
    "name": "NVIDIA H100 80GB HBM3",
    "vbios": "96.00.99.00.01",
    "part_number": "699-2G520-0200-000",
    "brand": 14,
    "architecture": 9,
    "cores": 16896,
    "capability.major": 9,
    "capability.minor": 0,
    "pci.device_id": 0x233010DE,
    "pci.subsystem_id": 0x16C110DE,
    "persistence": 1,
    "compute_mode": 0,
    "display.mode": 0,
    "display.active": 0,
    "accounting": 0,
    "virtualization": 0,
    "utilization.gpu": 62,
    "utilization.memory": 31,
    "utilization.encoder": 0,
    "utilization.decoder": 0,
    "utilization.jpeg": 0,
    "utilization.ofa": 0,
    "utilization.period_us": 167_000,
    "memory.total": 81_559 * _MIB,
    "memory.used": 60 * _GIB,
    "memory.reserved": 551 * _MIB,
    "memory.bus_width": 5120,
    "bar1.total": 128 * _GIB,
    "bar1.used": 2 * _MIB,
    "power.usage": 412_500,
    "power.average": 410_000,
    "power.management": 1,
    "power.limit": 700_000,
    "power.limit.default": 700_000,
    "power.limit.enforced": 700_000,
    "power.limit.min": 200_000,
    "power.limit.max": 700_000,
    "energy": Ramp(9_000_000, 412_500),
    "temperature.gpu": 61,
    "temperature.memory": 72,
    "temperature.threshold.shutdown": 92,
    "temperature.threshold.slowdown": 89,
    "temperature.threshold.mem_max": 95,
    "temperature.threshold.gpu_max": 87,
    **{f"clock.{domain}": 1980 for domain in ("graphics", "sm")},
    **{f"clock.max.{domain}": 1980 for domain in ("graphics", "sm")},
    **{f"clock.app.{domain}": 1980 for domain in ("graphics", "sm")},
    **{f"clock.default.{domain}": 1980 for domain in ("graphics", "sm")},
    **{f"clock.{which}mem": 2619 for which in ("", "max.", "app.", "default.")},
    "clock.video": 1545,
    "clock.max.video": 1545,
    "clocks.reasons": 0,
    "clocks.reasons.supported": 0x1FF,
    "pstate": 0,
    **{
        f"violation.{policy}": 0
        for policy in (
            *("power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability"),
            *("app_clocks", "base_clocks"),
        )
    },
    "ecc.mode": 1,
    "ecc.pending": 1,
    "ecc.default": 1,
    **{
        f"ecc.{counter}.{kind}{where}": 0
        for counter in ("volatile", "aggregate")
        for kind in ("corrected", "uncorrected")
        for where in ("", ".dram", ".sram")
    },
    "remapped.correctable": 0,
    "remapped.uncorrectable": 0,
    "remapped.pending": 0,
    "remapped.failure": 0,
    "remapped.histogram.max": 2560,
    **{f"remapped.histogram.{name}": 0 for name in ("high", "partial", "low", "none")},
    "pcie.tx": 1_250_000,
    "pcie.rx": 830_000,
    "pcie.tx_bytes": Ramp(0, 1.25e9),
    "pcie.rx_bytes": Ramp(0, 0.83e9),
    "pcie.replay": 0,
    "pcie.gen": 5,
    "pcie.gen.max": 5,
    "pcie.width": 16,
    "pcie.width.max": 16,
    "pcie.speed": 32_000,
    "events": 0x1 | 0x2 | 0x8 | 0x10 | 0x100,
    "mig.mode": 0,
    "mig.pending": 0,
    "mig.max": 7,
    "gpm.1": 62.0,
    "gpm.2": 55.0,
    "gpm.3": 28.0,
    "gpm.5": 21.0,
    "gpm.10": 34.0,
    "gpm.13": 3.0,
    "gpm.20": 1220.0,
    "gpm.21": 810.0,
    "gpm.60": 2048.0,
    "gpm.61": 2048.0,
}

_LINK: dict[str, Value] = {
    "state": 1,
    "version": 6,
    "remote": "00000000:C4:00.0",
    "remote_type": 2,
    "speed": 26_562,
    "tx": Ramp(0, 100_000),
    "rx": Ramp(0, 120_000),
    "raw_tx": Ramp(0, 110_000),
    "raw_rx": Ramp(0, 132_000),
    **dict.fromkeys(("replay", "recovery", "crc_flit", "crc_data", "ecc_data"), 0),
}

MIG_PROFILES: dict[str, dict[str, int]] = {
    "1g.10gb": {"gi.profile": 19, "gi.size": 1, "attribute.gi_slices": 1, "attribute.sm": 16},
    "2g.20gb": {"gi.profile": 14, "gi.size": 2, "attribute.gi_slices": 2, "attribute.sm": 32},
    "3g.40gb": {"gi.profile": 9, "gi.size": 4, "attribute.gi_slices": 3, "attribute.sm": 60},
    "7g.80gb": {"gi.profile": 0, "gi.size": 8, "attribute.gi_slices": 7, "attribute.sm": 132},
}
"""NVIDIA MIG user guide, "H100 MIG Profiles"."""

_WHOLE_GPU_ONLY = ("utilization.", "nvlink.", "gpm.")
"""What MIG mode takes away from the GPU itself (API reference, notes of the functions)."""


def gpu_uuid(index: int) -> str:
    """Return the UUID of a GPU of these scenarios."""
    return f"GPU-{uuid.uuid5(_NAMES, f'gpu {index}')}"


def mig_uuid(index: int, number: int) -> str:
    """Return the UUID of a MIG device of these scenarios."""
    return f"MIG-{uuid.uuid5(_NAMES, f'gpu {index} mig {number}')}"


def h100(index: int) -> Gpu:
    """Return a healthy H100 at work, without processes."""
    identity: dict[str, Value] = {
        "uuid": gpu_uuid(index),
        "serial": f"165402300{index:04d}",
        "pci": f"00000000:{0x19 + 0x10 * index:02X}:00.0",
        "minor": index,
        "board_id": 0x1900 + 0x1000 * index,
        "module_id": index + 1,
        "numa_node": index // 4,
    }
    links = {f"nvlink.{link}.{key}": v for link in range(LINKS) for key, v in _LINK.items()}
    return Gpu({**identity, **_H100, **links})


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
    whole = h100(0).lacking(*_WHOLE_GPU_ONLY).having({"mig.mode": 1, "mig.pending": 1})
    start, migs = 0, []
    for number, profile in enumerate(profiles):
        migs.append(_mig_device(number, profile, start))
        start += MIG_PROFILES[profile]["gi.size"]
    processes = tuple(
        Process(5000 + number, 2 * _GIB, instance=(number + 1, 0))
        for number in range(len(profiles))
    )
    return healthy(gpus).with_gpu(0, replace(whole, migs=tuple(migs), processes=processes))


def _mig_device(number: int, profile: str, start: int) -> Mig:
    known = MIG_PROFILES[profile]
    slices, total = known["attribute.gi_slices"], known["gi.size"] * 10_000 * _MIB
    return Mig(
        {
            **known,
            "name": f"NVIDIA H100 80GB HBM3 MIG {profile}",
            "uuid": mig_uuid(0, number),
            "gi": number + 1,
            "gi.start": start,
            "ci": 0,
            "ci.profile": slices - 1,
            "ci.start": 0,
            "ci.size": slices,
            "attribute.copy": slices,
            "attribute.decoder": slices,
            "attribute.encoder": 0,
            "attribute.jpeg": slices,
            "attribute.ofa": 0,
            "attribute.ci_slices": slices,
            "attribute.memory_mb": total // _MIB,
            "memory.total": total,
            "memory.used": 2 * _GIB,
            "memory.reserved": 0,
            "bar1.total": 16 * _GIB,
            "bar1.used": _MIB,
            "gpm.2": 40.0,
            "gpm.10": 20.0,
        }
    )


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
