"""The latency ledger of spans that no hook has seen: what the serving threads did between the span's start and end.

A server without our span processor, or one that creates its request span when the request is over (vLLM does, and the
work is done by another process), leaves nothing but a process and two times. They are joined with the ring of waits
(`ebpf.ring`, which also says whose waits they are). The ledger is the thread's, with whatever else it served meanwhile,
and is marked so: `tailcause.wait.scope` is `process`.
"""

import time
from collections.abc import Callable, Collection

from opentelemetry.proto.trace.v1 import trace_pb2

from agent.telemetry.keys import WAIT_SCOPE, WAIT_THREAD
from agent.waits import parts_of, write
from ebpf.ring import Ring

PROCESS = "process"
MIN_COVERED = 0.5
"""Of a span of which less is known, nothing is said; what is missing of another is unexplained."""


def annotate(
    span: trace_pb2.Span,
    pid: int,
    ring: Ring,
    serving: Callable[[int], Collection[int]] | None = None,
) -> bool:
    """Add the ledger of the process to a span that has none; False when there is nothing to add.

    `serving` says which processes may do the work of a span that `pid` sends, by default that process alone.
    """
    wall_ns = span.end_time_unix_nano - span.start_time_unix_nano
    if wall_ns <= 0 or has_ledger(span):
        return False
    to_monotonic_ns = time.monotonic_ns() - time.time_ns()
    waits = ring.waits_between(
        serving(pid) if serving else (pid,),
        (span.start_time_unix_nano + to_monotonic_ns) / 1e9,
        (span.end_time_unix_nano + to_monotonic_ns) / 1e9,
    )
    if waits is None or waits.covered_s < MIN_COVERED * waits.wall_s:
        return False
    write(span, parts_of(waits.waits_s), PROCESS)
    span.attributes.add(key=WAIT_THREAD).value.string_value = waits.comm
    return True


def has_ledger(span: trace_pb2.Span) -> bool:
    """Tell whether a span carries a ledger, whatever its scope."""
    return WAIT_SCOPE in [pair.key for pair in span.attributes]  # half the time of a generator
