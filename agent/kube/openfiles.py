"""Which processes have a GPU open: for containers that use one without a device limit.

Source: NVIDIA driver README, "Using the /proc File System Interface" (`gpus/*/information`);
proc_pid_fd(5).
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.host.files import read_text
from agent.host.paths import HostPaths

_GPUS = "driver/nvidia/gpus"
_DEVICE = re.compile(r"/dev/nvidia(\d+)$")
MAX_PROCESSES = 8192
MAX_FILES = 4096
"""Open files of one process that are looked at; a GPU is opened early in its life."""


@dataclass(frozen=True)
class Holders:
    """Processes by the UUID of the GPU that they have open, and how many could not be looked at."""

    pids: dict[str, set[int]] = field(default_factory=dict)
    unreadable: int = 0
    too_many: int = 0


def gpu_uuids(paths: HostPaths) -> dict[int, str]:
    """Return the UUID of each GPU by its device minor; empty without the NVIDIA driver."""
    uuids: dict[int, str] = {}
    for file in sorted((paths.procfs / _GPUS).glob("*/information")):
        try:
            text = read_text(file)
        except OSError:  # the GPU has gone
            continue
        said = {key.strip(): value.strip() for key, _, value in _pairs(text)}
        uuid, minor = said.get("GPU UUID", ""), said.get("Device Minor", "")
        if minor.isdigit() and uuid.startswith("GPU-") and "?" not in uuid:
            uuids[int(minor)] = uuid
    return uuids


def _pairs(text: str) -> Iterator[tuple[str, str, str]]:
    return (line.partition(":") for line in text.splitlines())


def holders(paths: HostPaths, uuids: Mapping[int, str]) -> Holders:
    """Return who has one of these GPUs open, given by their device minors."""
    found: dict[str, set[int]] = defaultdict(set)
    pids = sorted(int(one.name) for one in paths.procfs.iterdir() if one.name.isdigit())
    unreadable = 0
    for pid in pids[:MAX_PROCESSES]:
        try:
            for minor in _open_minors(paths.procfs / str(pid) / "fd"):
                if minor in uuids:
                    found[uuids[minor]].add(pid)
        except PermissionError:
            unreadable += 1
        except OSError:  # it has just ended
            continue
    return Holders(dict(found), unreadable, max(0, len(pids) - MAX_PROCESSES))


def _open_minors(folder: Path) -> set[int]:
    minors = set()
    with os.scandir(folder) as entries:
        for _, entry in zip(range(MAX_FILES), entries, strict=False):
            try:
                match = _DEVICE.match(os.readlink(entry.path))  # noqa: PTH115  a Path per file costs more
            except OSError:  # just closed
                continue
            if match:
                minors.add(int(match[1]))
    return minors
