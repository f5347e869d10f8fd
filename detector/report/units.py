"""How values read: durations, quantities, shares, times, revisions; what is absent reads "unknown"."""

import math
import re
import unicodedata
from datetime import UTC, datetime
from typing import TypeGuard

UNKNOWN = "unknown"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"
EN_DASH = "\N{EN DASH}"
_THOUSANDS = "\N{NO-BREAK SPACE}"
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_HEX_SHA = re.compile(r"[0-9a-fA-F]{12,64}")
_UNIT_NAMES = {"Cel": "°C", "%": "%", "{cpu}": "CPUs"}


def clean(text: str) -> str:
    """Make data one safe line: whitespace becomes a space, control and invisible ones a U+FFFD."""
    return printable(text).strip()


def printable(text: str) -> str:
    """Do the same, but keep leading and trailing space."""
    return "".join(_safe(character) for character in text)


def _safe(character: str) -> str:
    category = unicodedata.category(character)
    if character.isspace() and category != "Zs":
        return " "
    # Cc: terminal escapes; Cf: bidirectional overrides; Cs: lone surrogates that no encoder takes.
    return "\ufffd" if category in {"Cc", "Cf", "Cs"} else character


def known(value: float | None) -> TypeGuard[float]:
    """Tell whether there is a finite number to show."""
    return value is not None and math.isfinite(value)


def number(value: float) -> str:
    """Write three significant digits, whole numbers in full, thousands apart."""
    size = abs(value)
    if size >= 100 or value == int(value):
        text = f"{size:,.0f}".replace(",", _THOUSANDS)
    elif size >= 10:
        text = f"{size:.1f}"
    elif size >= 0.01:
        text = f"{size:.2f}"
    else:
        text = f"{size:.2g}"
    return f"{MINUS}{text}" if value < 0 else text


def duration(seconds: float | None) -> str:
    """Write seconds in the unit that reads best."""
    if not known(seconds):
        return UNKNOWN
    size = abs(seconds)
    if size == 0 or 0.9995 <= size < 120:
        return f"{_digits(seconds)} s"
    if size < 0.0009995:
        return f"{_digits(seconds * 1e6)} µs"
    if size < 1:
        return f"{_digits(seconds * 1e3)} ms"
    return _long_duration(seconds)


def _digits(value: float) -> str:
    """Write three significant digits of a duration; 0 stays 0."""
    size = abs(value)
    text = "0" if size == 0 else f"{size:.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f}"
    return f"{MINUS}{text}" if value < 0 else text


def _long_duration(seconds: float) -> str:
    sign = MINUS if seconds < 0 else ""
    minutes, rest = divmod(round(abs(seconds)), 60)
    if minutes < 120:
        return f"{sign}{minutes} min {rest:02d} s"
    return f"{sign}{minutes // 60:,} h {minutes % 60:02d} min".replace(",", _THOUSANDS)


def signed_duration(seconds: float) -> str:
    """Write a difference with its sign: `+509 ms`."""
    return f"+{duration(seconds)}" if seconds > 0 else duration(seconds)


def quantity(value: float | None, unit: str) -> str:
    """Write a value with its UCUM unit as people do; unit `1` is a share and reads as per cent."""
    if not known(value):
        return UNKNOWN
    if unit == "s":
        return duration(value)
    if unit == "1":
        return f"{number(value * 100)} %"
    if unit == "By":
        return _bytes(value)
    if unit in {"x", TIMES}:
        return f"{TIMES}{number(value)}"
    name = _UNIT_NAMES.get(unit) or clean(re.sub(r"[{}]", "", unit))
    return f"{number(value)} {name}".strip()


def _bytes(value: float) -> str:
    power = min(int(math.log2(abs(value)) // 10) if abs(value) >= 1 else 0, len(_BINARY) - 1)
    return f"{number(value / 1024**power)} {_BINARY[power]}"


def percent(share: float) -> str:
    """Write a share of 1 in whole per cent, without the sign."""
    if 0 < share < 0.005:
        return "<1"
    return f"{round(share * 100)}".replace("-", MINUS)


def share_with_band(share: float, low: float, high: float) -> str:
    """Write `62 % (55 to 70 %)` with an en dash; without the band where it is not known."""
    if not known(share):
        return UNKNOWN
    if not (known(low) and known(high)):
        return f"{percent(share)} %"
    return f"{percent(share)} % ({percent(low)}{EN_DASH}{percent(high)} %)"


def factor(before: float, since: float) -> str:
    """Write how many times as long it takes; empty where either is unknown."""
    if not (known(before) and known(since)) or before <= 0:
        return ""
    times = since / before
    return f"{times:.0f} times" if times >= 9.95 else f"{times:.1f} times"


def _utc(unix_s: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(unix_s, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def iso(unix_s: float) -> str:
    """Write UTC to the millisecond, for machines; empty where unknown."""
    at = _utc(unix_s)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z") if at else ""


def clock(unix_s: float) -> str:
    """Write the time of day, UTC: `03:12:44`."""
    at = _utc(unix_s)
    return f"{at:%H:%M:%S}" if at else UNKNOWN


def date_and_clock(unix_s: float) -> str:
    """Write `2026-12-01 03:12:44 UTC`."""
    at = _utc(unix_s)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else UNKNOWN


def relative(unix_s: float, onset_unix_s: float) -> str:
    """Write `20 s before the onset`, in whole seconds above 10."""
    seconds = unix_s - onset_unix_s
    if not math.isfinite(seconds):
        return UNKNOWN
    if abs(seconds) < 0.05:
        return "at the onset"
    size = abs(seconds)
    text = f"{size:.1f} s" if size < 9.95 else f"{size:.0f} s" if size < 120 else duration(size)
    return f"{text} {'before' if seconds < 0 else 'after'} the onset"


def short_revision(revision: str) -> str:
    """Cut a Git SHA to seven digits; anything else stays as it stands."""
    text = clean(revision)
    return (text[:7] if _HEX_SHA.fullmatch(text) else text) or UNKNOWN
