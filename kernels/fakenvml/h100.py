"""An H100 as NVML describes it: whole, and cut into MIG devices."""

import uuid

from kernels.fakenvml.scenario import Gpu, Mig, Ramp, Value

LINKS = 18
_NAMES = uuid.UUID("5e1f0000-0000-4000-8000-000000000000")
GIB = 1 << 30
MIB = 1 << 20

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
    "memory.total": 81_559 * MIB,
    "memory.used": 60 * GIB,
    "memory.reserved": 551 * MIB,
    "memory.bus_width": 5120,
    "bar1.total": 128 * GIB,
    "bar1.used": 2 * MIB,
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

WHOLE_GPU_ONLY = ("utilization.", "nvlink.", "gpm.")
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


def mig_device(number: int, profile: str, start: int) -> Mig:
    """Return a MIG device of GPU 0: its number, its profile, its first memory slice."""
    known = MIG_PROFILES[profile]
    slices, total = known["attribute.gi_slices"], known["gi.size"] * 10_000 * MIB
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
            "attribute.memory_mb": total // MIB,
            "memory.total": total,
            "memory.used": 2 * GIB,
            "memory.reserved": 0,
            "bar1.total": 16 * GIB,
            "bar1.used": MIB,
            "gpm.2": 40.0,
            "gpm.10": 20.0,
        }
    )
