"""A latency ledger as attributes of a span.

The probes tell twelve kinds of wait, the ledger has nine parts: reclaim counts as `fault` (the thread stalled for
memory, whether it touched a page or asked for one), poll as `network` (it waited for a peer, and asked the kernel to say
which), and what the probes cannot name is `unexplained`.
"""

from collections.abc import Mapping

from opentelemetry.proto.trace.v1 import trace_pb2

from agent.telemetry.keys import WAIT_PARTIAL, WAIT_PARTS, WAIT_PREFIX, WAIT_SCOPE, WAIT_UNEXPLAINED
from agent.telemetry.steps import Parts
from ebpf.layout import Wait

_PART_OF: Mapping[Wait, str] = {
    Wait.CPU: "cpu",
    Wait.RUNQUEUE: "runqueue",
    Wait.THROTTLED: "throttled",
    Wait.DISK: "disk",
    Wait.NETWORK: "network",
    Wait.LOCK: "lock",
    Wait.FAULT: "fault",
    Wait.SLEEP: "sleep",
    Wait.GPU_SYNC: "gpu_sync",
    Wait.RECLAIM: "fault",
    Wait.POLL: "network",
}
_PLACE_OF = {wait: WAIT_PARTS.index(part) for wait, part in _PART_OF.items()}
_KEYS = tuple(WAIT_PREFIX + part for part in WAIT_PARTS)

_SHOWN_S = 1e-6
_SLACK = 1.05
_SLACK_S = 0.001


def parts_of(waits_s: Mapping[Wait, float]) -> Parts:
    """Return the nine parts of what the probes counted."""
    parts = [0.0] * len(WAIT_PARTS)
    for wait, seconds in waits_s.items():
        place = _PLACE_OF.get(wait)
        if place is not None:
            parts[place] += seconds
    return parts


def write(span: trace_pb2.Span, parts: Parts, scope: str, *, partial: bool = False) -> None:
    """Write a ledger into a span; parts under a microsecond are left out.

    A ledger that is longer than its span holds others' time and is marked as partial.
    """
    duration_s = max(0, span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
    named_s = sum(parts)
    attributes = span.attributes
    for key, seconds in zip(_KEYS, parts, strict=True):
        if seconds >= _SHOWN_S:
            attributes.add(key=key).value.double_value = seconds
    attributes.add(key=WAIT_UNEXPLAINED).value.double_value = max(0.0, duration_s - named_s)
    attributes.add(key=WAIT_SCOPE).value.string_value = scope
    partial = partial or named_s > duration_s * _SLACK + _SLACK_S
    if partial and not any(pair.key == WAIT_PARTIAL for pair in attributes):
        attributes.add(key=WAIT_PARTIAL).value.bool_value = True
