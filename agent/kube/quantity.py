"""Kubernetes quantities: `500m` CPUs, `16Gi` bytes.

Source: Kubernetes API reference, "Quantity" (k8s.io/apimachinery/pkg/api/resource).
"""

import re

_PATTERN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,3}))?")
_FACTOR = {
    "": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3,
    "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip


def parse_quantity(text: str) -> float | None:
    """Return a quantity in its base unit (CPUs, bytes), or None for what is no quantity."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        return None
    number, suffix, exponent = match.groups()
    return float(number) * (10.0 ** int(exponent) if exponent else _FACTOR[suffix or ""])
