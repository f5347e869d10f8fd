"""The OpenTelemetry entry of a W3C tracestate: randomness and threshold of consistent probability sampling.

Source: OpenTelemetry specification, "TraceState: Probability Sampling" and "TraceState Handling"; W3C Trace
Context, section "tracestate Header".
"""

MAX_THRESHOLD = 1 << 56
_DIGITS = 14
_HEX = frozenset("0123456789abcdefABCDEF")
_MAX_CHARS = 256


def threshold(trace_state: str) -> int:
    """Return the rejection threshold of a trace state; 0, nothing rejected, where it has none or a wrong one."""
    found = _field(trace_state, "th")
    if not 0 < len(found) <= _DIGITS or not _HEX.issuperset(found):
        return 0
    return int(found.ljust(_DIGITS, "0"), 16)


def randomness(trace_id: bytes, trace_state: str) -> int:
    """Return the 56 random bits that all who sample a trace share: explicit ones, or the end of its id."""
    found = _field(trace_state, "rv") if trace_state else ""
    if len(found) == _DIGITS and _HEX.issuperset(found):
        return int(found, 16)
    return int.from_bytes(trace_id[-7:])


def adjusted_count(trace_state: str) -> float:
    """Return how many spans a span stands for."""
    return MAX_THRESHOLD / (MAX_THRESHOLD - threshold(trace_state)) if trace_state else 1.0


def threshold_of(probability: float) -> int:
    """Return the threshold of a probability, to four significant digits of it as SDKs write it."""
    exact = round((1.0 - probability) * MAX_THRESHOLD)
    digits = f"{exact:0{_DIGITS}x}"
    leading = len(digits) - len(digits.lstrip("f"))
    step = 1 << (4 * max(0, _DIGITS - 4 - leading))
    return min(round(exact / step) * step, MAX_THRESHOLD - 1)


def with_threshold(trace_state: str, value: int) -> str:
    """Return a trace state with another threshold, the rest as it was; as it came where that would be too long."""
    members = [one.strip() for one in trace_state.split(",") if one.strip()]
    others = [one for one in members if not one.startswith("ot=")]
    ours = next((one.removeprefix("ot=") for one in members if one.startswith("ot=")), "")
    fields = [one for one in ours.split(";") if one and not one.startswith("th:")]
    fields.append(f"th:{value:0{_DIGITS}x}".rstrip("0") if value else "th:0")
    entry = ";".join(fields)
    return ",".join([f"ot={entry}", *others]) if len(entry) <= _MAX_CHARS else trace_state


def without_threshold(trace_state: str) -> str:
    """Return a trace state that tells nothing of how its span was chosen."""
    kept = []
    for member in trace_state.split(","):
        if not member.strip().startswith("ot="):
            kept.append(member.strip())
            continue
        fields = member.strip().removeprefix("ot=").split(";")
        rest = ";".join(one for one in fields if one and not one.startswith("th:"))
        if rest:
            kept.append(f"ot={rest}")
    return ",".join(one for one in kept if one)


def _field(trace_state: str, key: str) -> str:
    for member in trace_state.split(","):
        entry = member.strip()
        if entry.startswith("ot="):
            for one in entry.removeprefix("ot=").split(";"):
                name, _, value = one.partition(":")
                if name == key:
                    return value
    return ""
