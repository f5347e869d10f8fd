"""One encoded OTLP request on its way out, and the id by which a receiver tells that it comes again."""

import os
from dataclasses import dataclass, field

from agent.otlp.codec import Signal

BATCH_HEADER = "X-Tailcause-Batch"
"""HTTP header, and in lower case gRPC metadata: 32 hexadecimal digits, the same at every attempt."""

BATCH_ID_BYTES = 16


def _new_id() -> bytes:
    return os.urandom(BATCH_ID_BYTES)


@dataclass(frozen=True)
class Batch:
    """One encoded request and how many spans, points or log records it holds."""

    signal: Signal
    body: bytes
    items: int
    batch_id: bytes = field(default_factory=_new_id)
