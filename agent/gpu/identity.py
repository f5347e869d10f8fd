"""Who a GPU or MIG instance is: what its series carry, and what is told of it once."""

from dataclasses import dataclass
from typing import Any

from agent.host.kmsg import pci_address
from agent.telemetry.keys import (
    GPU_INDEX,
    GPU_INSTANCE,
    GPU_PCI,
    GPU_PROFILE,
    HW_DRIVER,
    HW_ID,
    HW_MODEL,
    HW_NAME,
    HW_PARENT,
    HW_SERIAL,
    HW_VENDOR,
)


@dataclass(frozen=True)
class Identity:
    """A GPU, or an instance of one, whose `parent` is then the GPU's UUID; empty where it is not known."""

    index: int
    uuid: str
    name: str
    model: str = ""
    serial: str = ""
    driver: str = ""
    pci: str = ""
    parent: str = ""
    profile: str = ""
    instance: str = ""

    @property
    def address(self) -> str:
        """Return the PCI address as the kernel writes it, the UUID where it is not known."""
        return pci_address(self.pci) if self.pci.count(":") == 2 else self.uuid

    @property
    def attributes(self) -> dict[str, str]:
        """Return what every series carries."""
        own = {HW_ID: self.uuid, HW_NAME: self.name}
        return {**own, HW_PARENT: self.parent} if self.parent else own

    @property
    def info(self) -> dict[str, str]:
        """Return all that is known."""
        further = {
            GPU_INDEX: str(self.index),
            HW_VENDOR: "NVIDIA",
            HW_MODEL: self.model,
            HW_SERIAL: self.serial,
            HW_DRIVER: self.driver,
            GPU_PCI: self.pci,
            GPU_PROFILE: self.profile,
            GPU_INSTANCE: self.instance,
        }
        return self.attributes | {key: value for key, value in further.items() if value}


def identify(nvml: Any, device: Any, index: int, driver: str) -> Identity:
    """Return who a GPU is; only its UUID must be had, whose `NVMLError` goes through."""
    uuid = text(nvml.nvmlDeviceGetUUID(device))
    minor = _optional(nvml, nvml.nvmlDeviceGetMinorNumber, device)
    pci = _optional(nvml, nvml.nvmlDeviceGetPciInfo, device)
    return Identity(
        index=index,
        uuid=uuid,
        name=f"nvidia{index if minor is None else minor}",  # as its file under /dev is called
        model=text(_optional(nvml, nvml.nvmlDeviceGetName, device)),
        serial=text(_optional(nvml, nvml.nvmlDeviceGetSerial, device)),
        driver=driver,
        pci=text(pci.busId) if pci is not None else "",
    )


def _optional(nvml: Any, read: Any, device: Any) -> Any:
    try:
        return read(device)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return None
    except nvml.NVMLError_NoPermission:
        return None


def text(value: str | bytes | None) -> str:
    """Return what the binding gives as text, which of old ones is bytes."""
    if value is None:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
