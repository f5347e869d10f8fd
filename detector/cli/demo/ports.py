"""Free ports on the loopback interface for the parts of a demo."""

import random
import socket
from pathlib import Path

import msgspec

from detector.errors import CannotStartError

_LOWEST = 15000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports(msgspec.Struct, frozen=True):
    """The ports of one run."""

    workload: int
    agent_otlp: int
    agent_metrics: int
    detector_otlp: int
    detector_api: int


def take(rng: random.Random | None = None) -> Ports:
    """Choose free ports below the ephemeral range, where no outgoing connection can take them."""
    below = _ephemeral_start()
    candidates = list(range(_LOWEST, below))
    (rng or random.SystemRandom()).shuffle(candidates)
    free: list[int] = []
    for port in candidates[:2000]:
        if _is_free(port):
            free.append(port)
        if len(free) == len(Ports.__struct_fields__):
            return Ports(*free)
    raise CannotStartError(f"no five free TCP ports between {_LOWEST} and {below} on 127.0.0.1")


def _ephemeral_start() -> int:
    try:
        return max(int(_EPHEMERAL.read_text().split()[0]), _LOWEST + 1000)
    except (OSError, ValueError, IndexError):
        return 32768  # the kernel's default


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
