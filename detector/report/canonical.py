"""Canonical JSON: the same data always gives the same bytes."""

import json
import math
from typing import Any

import msgspec

_INSTANT_SUFFIX = "_unix_s"


def dumps(obj: Any) -> bytes:
    """Serialise with sorted keys and six significant digits; NaN and infinity become null.

    Points in time (keys that end in `_unix_s`) keep their microseconds instead: six digits of a Unix
    time would round it to the nearest three hours.
    """
    plain = msgspec.to_builtins(obj, str_keys=True, order="deterministic")
    text = json.dumps(
        _canonical(plain, instant=False),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )
    return text.encode("utf-8", "backslashreplace")


def _canonical(value: object, *, instant: bool) -> object:
    if isinstance(value, dict):
        return {k: _canonical(v, instant=k.endswith(_INSTANT_SUFFIX)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item, instant=instant) for item in value]
    if isinstance(value, float):
        return _rounded(value, instant=instant)
    return value


def _rounded(value: float, *, instant: bool) -> float | None:
    if not math.isfinite(value):
        return None
    rounded = round(value, 6) if instant else float(f"{value:.6g}")
    return rounded + 0.0  # a negative zero becomes zero
