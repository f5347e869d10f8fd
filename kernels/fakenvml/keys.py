"""The keys of a scenario, with their units: NVML's own, since the file scripts NVML's interface.

`N` stands for a number; a key that is not here is read by nothing.
"""

import re
from collections.abc import Iterable

NODE: dict[str, str] = {
    "driver": "driver version, text",
    "nvml": "NVML version, text",
    "cuda": "CUDA version: 12080 is 12.8",
}

DEVICE: dict[str, str] = {
    "name": "product, text",
    "uuid": "GPU-… or MIG-…, text",
    "serial": "text",
    "pci": "DDDDDDDD:BB:DD.F",
    "pci.device_id": "device and vendor, 0x233010de",
    "pci.subsystem_id": "device and vendor",
    "minor": "N of /dev/nvidiaN",
    "vbios": "text",
    "part_number": "text",
    "board_id": "number",
    "module_id": "number",
    "brand": "NVML_BRAND_*",
    "architecture": "NVML_DEVICE_ARCH_*",
    "cores": "CUDA cores",
    "capability.major": "compute capability",
    "capability.minor": "compute capability",
    "numa_node": "number",
    "persistence": "0, 1",
    "compute_mode": "NVML_COMPUTEMODE_*",
    "display.mode": "0, 1",
    "display.active": "0, 1",
    "accounting": "0, 1",
    "virtualization": "NVML_GPU_VIRTUALIZATION_MODE_*",
    "utilization.gpu": "percent",
    "utilization.memory": "percent",
    "utilization.encoder": "percent",
    "utilization.decoder": "percent",
    "utilization.jpeg": "percent",
    "utilization.ofa": "percent",
    "utilization.period_us": "sampling period of encoder and decoder",
    "memory.total": "bytes",
    "memory.used": "bytes, without what is reserved",
    "memory.reserved": "bytes",
    "memory.bus_width": "bits",
    "bar1.total": "bytes",
    "bar1.used": "bytes",
    "power.usage": "mW",
    "power.average": "mW, field 185; field 186 is power.usage",
    "power.management": "0, 1",
    "power.limit": "mW",
    "power.limit.default": "mW",
    "power.limit.enforced": "mW",
    "power.limit.min": "mW",
    "power.limit.max": "mW",
    "energy": "mJ since the driver was loaded",
    "temperature.gpu": "°C",
    "temperature.gpu_max": "°C",
    "temperature.memory": "°C, field 82",
    "temperature.margin": "°C to the slow-down",
    "temperature.threshold.shutdown": "°C",
    "temperature.threshold.slowdown": "°C",
    "temperature.threshold.mem_max": "°C",
    "temperature.threshold.gpu_max": "°C",
    "temperature.threshold.acoustic_min": "°C",
    "temperature.threshold.acoustic": "°C",
    "temperature.threshold.acoustic_max": "°C",
    "temperature.threshold.gps": "°C",
    **{
        f"clock.{which}{domain}": "MHz"
        for which in ("", "max.", "app.", "default.", "boost.")
        for domain in ("graphics", "sm", "mem", "video")
    },
    "clocks.reasons": "mask of nvmlClocksEventReason*",
    "clocks.reasons.supported": "mask",
    "pstate": "0 to 15, 32 unknown",
    **{
        f"violation.{policy}": "ns since the driver was loaded"
        for policy in (
            *("power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability"),
            *("app_clocks", "base_clocks"),
        )
    },
    "fans": "number of fans",
    "fan.N": "percent",
    "ecc.mode": "0, 1",
    "ecc.pending": "0, 1",
    "ecc.default": "0, 1",
    **{
        f"ecc.{counter}.{kind}{where}": "errors"
        for counter in ("volatile", "aggregate")
        for kind in ("corrected", "uncorrected")
        for where in ("", ".l1", ".l2", ".dram", ".register", ".texture", ".shm", ".cbu", ".sram")
    },
    "retired.sbe": "pages",
    "retired.dbe": "pages",
    "retired.pending": "0, 1",
    "remapped.correctable": "rows",
    "remapped.uncorrectable": "rows",
    "remapped.pending": "0, 1",
    "remapped.failure": "0, 1",
    **{f"remapped.histogram.{n}": "banks" for n in ("max", "high", "partial", "low", "none")},
    "pcie.tx": "KB/s",
    "pcie.rx": "KB/s",
    "pcie.tx_bytes": "bytes, field 197",
    "pcie.rx_bytes": "bytes, field 198",
    "pcie.replay": "replays",
    "pcie.gen": "generation",
    "pcie.gen.max": "generation",
    "pcie.width": "lanes",
    "pcie.width.max": "lanes",
    "pcie.speed": "MB/s",
    "nvlink.N.state": "0, 1",
    "nvlink.N.version": "NVML_NVLINK_VERSION_*",
    "nvlink.N.remote": "PCI address of the other end",
    "nvlink.N.remote_type": "NVML_NVLINK_DEVICE_TYPE_*",
    "nvlink.N.speed": "MB/s",
    "nvlink.N.tx": "KiB of data sent",
    "nvlink.N.rx": "KiB of data received",
    "nvlink.N.raw_tx": "KiB sent, with overhead",
    "nvlink.N.raw_rx": "KiB received, with overhead",
    **{
        f"nvlink.N.{error}": "errors"
        for error in ("replay", "recovery", "crc_flit", "crc_data", "ecc_data")
    },
    "events": "mask of event types that can be registered",
    "mig.mode": "0, 1",
    "mig.pending": "0, 1",
    "mig.max": "MIG devices that fit",
    "gpm.N": "value of GPM metric N; a GPU with one supports GPM",
    "field.N": "value of field N, before what the library would derive",
    "field.N.N": "the same for a scope, such as a link",
}

MIG: dict[str, str] = {
    "gi": "GPU instance",
    "gi.profile": "profile of the GPU instance",
    "gi.start": "first memory slice",
    "gi.size": "memory slices",
    "ci": "compute instance in it",
    "ci.profile": "profile of the compute instance",
    "ci.start": "first compute slice",
    "ci.size": "compute slices",
    "attribute.sm": "multiprocessors",
    **{f"attribute.{name}": "engines" for name in ("copy", "decoder", "encoder", "jpeg", "ofa")},
    "attribute.gi_slices": "slices of the GPU instance",
    "attribute.ci_slices": "slices of the compute instance",
    "attribute.memory_mb": "MiB",
}

_PATTERN = re.compile(
    "|".join(re.escape(key).replace("N", r"\d+") for key in (*NODE, *DEVICE, *MIG))
)


def unknown_keys(keys: Iterable[str]) -> list[str]:
    """Return those keys that nothing reads."""
    return [key for key in keys if not _PATTERN.fullmatch(key)]


def is_text(key: str) -> bool:
    """Tell whether a key's value is text even when it looks like a number, as a serial may."""
    return (NODE.get(key) or DEVICE.get(key) or "").endswith("text")
