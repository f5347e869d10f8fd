"""Which capabilities this process has, so that a refusal can name the one that is missing.

Source: capabilities(7). CAP_BPF and CAP_PERFMON split CAP_SYS_ADMIN in Linux 5.8, which still grants both.
"""

from pathlib import Path

_BITS = {"CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}


def effective(status: Path = Path("/proc/self/status")) -> frozenset[str]:
    """Return those of the capabilities that matter to BPF which are in effect."""
    for line in status.read_text().splitlines():
        if line.startswith("CapEff:"):
            held = int(line.split()[1], 16)
            return frozenset(name for name, bit in _BITS.items() if held >> bit & 1)
    return frozenset()


def missing(held: frozenset[str] | None = None) -> tuple[str, ...]:
    """Return what a process lacks to load and attach tracing programs; nothing when it has all."""
    have = effective() if held is None else held
    if "CAP_SYS_ADMIN" in have:
        return ()
    return tuple(name for name in ("CAP_BPF", "CAP_PERFMON") if name not in have)
