"""Pressure stall information: files of the form `some avg10=… total=…`.

Source: Documentation/accounting/psi.rst of the kernel.
"""

RESOURCES = ("cpu", "memory", "io")

_US_PER_S = 1e6


def parse_pressure(text: str) -> dict[str, float]:
    """Return the stalled seconds by kind of stall, `some` and `full`."""
    totals: dict[str, float] = {}
    for line in text.splitlines():
        stall, _, rest = line.partition(" ")
        _, found, total = rest.rpartition("total=")
        if found:
            totals[stall] = int(total) / _US_PER_S
    return totals


def defined_at_root(resource: str, stall: str) -> bool:
    """Tell whether a stall has a meaning for the whole machine.

    `full` for the CPU has none: the kernel writes a constant 0 for compatibility.
    """
    return (resource, stall) != ("cpu", "full")
