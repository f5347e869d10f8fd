"""When to come back to a back end that is away.

Source: OTLP specification 1.x, sections "Retryable Response Codes", "OTLP/HTTP Throttling", "OTLP/gRPC Response" and
"OTLP/gRPC Throttling"; googleapis, google/rpc/status.proto and error_details.proto; protobuf's encoding guide.
"""

import email.utils
import random
from collections.abc import Iterator
from dataclasses import dataclass

RETRYABLE_STATUSES = frozenset((429, 502, 503, 504))
RETRYABLE_CODES = frozenset(
    ("CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS")
)
THROTTLE_CODE = "RESOURCE_EXHAUSTED"
"""Retryable only where the answer carries RetryInfo."""

_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"
_STATUS_DETAILS, _ANY_TYPE, _ANY_VALUE, _RETRY_DELAY = 3, 1, 2, 1
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIRST_BACKOFF_S = 0.5


@dataclass(frozen=True)
class Retry:
    """The back end asks to come back; `after_s` is None when it did not say when."""

    why: str
    after_s: float | None = None


def retry_after_s(header: str | None, now_unix_s: float, max_s: float) -> float | None:
    """Return the seconds of a Retry-After header: a number or an HTTP date (RFC 9110)."""
    if header is None:
        return None
    text = header.strip()
    try:
        if text.isascii() and text.isdigit():
            seconds = float(text)
        else:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - now_unix_s
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, seconds), max_s)


def backoff_s(attempt: int, retry: Retry, max_s: float, rng: random.Random) -> float:
    """Return how long to wait: what the back end said, else doubling with up to half off."""
    if retry.after_s is not None:
        return retry.after_s
    ceiling_s = min(max_s, _FIRST_BACKOFF_S * 2.0 ** min(attempt, 16))
    return ceiling_s * rng.uniform(0.5, 1.0)


def retry_info_s(status: bytes, max_s: float) -> float | None:
    """Return the delay of the RetryInfo in a `google.rpc.Status`, None where there is none."""
    try:
        for number, detail in _fields(status):
            if number != _STATUS_DETAILS or not isinstance(detail, bytes):
                continue
            parts = dict(_fields(detail))
            info = parts.get(_ANY_VALUE, b"")
            if parts.get(_ANY_TYPE) == _RETRY_INFO and isinstance(info, bytes):
                return min(_duration_s(dict(_fields(info)).get(_RETRY_DELAY, b"")), max_s)
    except (IndexError, ValueError):
        return None
    return None


def _duration_s(raw: int | bytes) -> float:
    parts = dict(_fields(raw)) if isinstance(raw, bytes) else {}
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int) or seconds >> 63:
        return 0.0  # a negative delay is none
    return seconds + nanos / 1e9


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: numbers as int, all else as bytes."""
    position = 0
    while position < len(raw):
        tag, position = _varint(raw, position)
        kind = tag & 7
        if kind == _VARINT:
            number, position = _varint(raw, position)
            yield tag >> 3, number
            continue
        if kind == _LENGTH:
            length, position = _varint(raw, position)
        else:
            length = {_FIXED64: 8, _FIXED32: 4}.get(kind, len(raw))
        if position + length > len(raw):
            raise ValueError("cut short")
        yield tag >> 3, raw[position : position + length]
        position += length


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = raw[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > 63:
            raise ValueError("no number is so long")
