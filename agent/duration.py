"""Durations as people write them."""

import re

from agent.errors import ConfigError

_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*")


def parse_duration_s(text: str | float) -> float:
    """Return the seconds of `500ms`, `1s`, `1.5m`, `2h` or a plain number of seconds."""
    match = _PATTERN.fullmatch(str(text))
    if match is None:
        raise ConfigError(f"{text!r} is no duration: write 500ms, 1s, 2m or a number of seconds")
    return float(match[1]) * _UNITS_S[match[2] or "s"]
