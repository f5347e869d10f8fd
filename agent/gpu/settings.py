"""What is said of the GPUs, and who uses them: what the rest of the agent shares with their collector."""

from collections.abc import Collection
from dataclasses import dataclass

OFF = "off"


@dataclass(frozen=True)
class GpuSettings:
    """`library` is a path or empty: look for it; `dcgm` a URL, `off`, or empty: look on loopback.

    `device_deadline_s` is how long one GPU may take to answer before it counts as hung.
    """

    library: str = ""
    dcgm: str = ""
    device_deadline_s: float = 1.0


class GpuUsers:
    """The processes that use a GPU, as of the last collection."""

    def __init__(self) -> None:
        self._pids: tuple[int, ...] = ()

    def __call__(self) -> tuple[int, ...]:
        """Return their ids."""
        return self._pids

    def replace(self, pids: Collection[int]) -> None:
        """Take up those of a new collection."""
        self._pids = tuple(pids)
