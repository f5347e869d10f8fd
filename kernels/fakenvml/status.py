"""What the library tells about its users: which hold it open, and which calls they made."""

from pathlib import Path

import msgspec


class Status(msgspec.Struct, frozen=True):
    """What one process has not given back; all zero but the generation is nothing."""

    pid: int
    inits: int
    generation: int
    device_handles: int
    event_sets: int
    gpm_samples: int

    @property
    def is_released(self) -> bool:
        """Tell whether the process would not block a driver upgrade."""
        return not (self.inits or self.device_handles or self.event_sets or self.gpm_samples)


class Call(msgspec.Struct, frozen=True, array_like=True):
    """One call of the trace; `gpu` and `mig` are -1 where the call names none."""

    at_s: float
    thread: int
    function: str
    gpu: int
    mig: int
    code: int
    took_s: float


def read_status(folder: Path) -> dict[int, Status]:
    """Return the status of every process that has used the library, by process id."""
    found = [
        msgspec.json.decode(path.read_bytes(), type=Status)
        for path in folder.iterdir()
        if path.name.isdecimal()
    ]
    return {status.pid: status for status in found}


def read_trace(path: Path) -> list[Call]:
    """Return the calls in the order in which they ended."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [msgspec.convert(line.split(), type=Call, strict=False) for line in lines]
