"""When to come back to a back end that is away.

Source: OTLP specification 1.x, sections "Retryable Response Codes" and "OTLP/HTTP Throttling".
"""

import email.utils
import random
from dataclasses import dataclass

RETRYABLE_STATUSES = frozenset((429, 502, 503, 504))

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
