"""What BPF maps of this process hold in the kernel, as the descriptors tell.

Source: `map_id` and `memlock` in /proc/PID/fdinfo/FD of a map (bpf_map_show_fdinfo in kernel/bpf/syscall.c).
"""

from collections.abc import Mapping
from pathlib import Path

_SELF = Path("/proc/self")
_MAP = "anon_inode:bpf-map"


def open_maps() -> Mapping[int, int]:
    """Return map id → a descriptor of it, for every map that this process has open."""
    found: dict[int, int] = {}
    for entry in (_SELF / "fd").iterdir():
        try:
            if str(entry.readlink()) == _MAP:
                found.setdefault(_number(int(entry.name), "map_id"), int(entry.name))
        except (OSError, ValueError):  # closed meanwhile
            continue
    return found


def held_bytes(maps: Mapping[int, int]) -> int | None:
    """Return what these maps hold together; None where that cannot be told of one of them."""
    total = 0
    for number, descriptor in maps.items():
        try:
            if _number(descriptor, "map_id") != number:
                return None
            total += _number(descriptor, "memlock")
        except (OSError, ValueError):
            return None
    return total


def _number(descriptor: int, name: str) -> int:
    for line in (_SELF / "fdinfo" / str(descriptor)).read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value)
    raise ValueError(name)
