"""What crosses a process boundary: samples, points, spans.

They hold values and other such objects, never themselves, so the garbage collector has nothing to find in them (`gc=False`):
looking through thousands of samples a second took a tenth of the agent's time.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

AttributeValue = str | bool | int | float | tuple[str, ...]
Attributes = Mapping[str, AttributeValue]


class SignalState(StrEnum):
    """What a signal source can say of itself; never a false 0."""

    OK = "ok"
    NOT_SUPPORTED = "not_supported"
    NO_PERMISSION = "no_permission"
    GPU_LOST = "gpu_lost"
    HUNG = "hung"
    DISABLED = "disabled"
    FAILED = "failed"


class Buckets(msgspec.Struct, frozen=True, gc=False):
    """The counts of a cumulative histogram whose bucket i holds values from 2^(first+i) to 2^(first+i+1).

    `below` counts the values under 2^first.
    """

    first: int
    counts: tuple[int, ...]
    below: int
    sum: float


class Exemplar(msgspec.Struct, frozen=True, gc=False):
    """One measurement of a histogram and the span that it came from; ids in lower-case hex."""

    value: float
    time_unix_ns: int
    trace_id: str
    span_id: str


class ExplicitBuckets(msgspec.Struct, frozen=True, gc=False):
    """The counts of a cumulative histogram with bounds of its own.

    Bucket i holds values up to `bounds[i]`, the last one all above: there is one count more than bounds.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float
    exemplars: tuple[Exemplar, ...] = ()


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One value of one metric of the catalogue, as a collector reads it.

    `start_unix_ns` is when a counter began counting (0: unknown); gauges leave it at 0. The value of a
    histogram is the number of its events, and `buckets` or `explicit` tells how they lie.
    """

    metric: str
    value: float
    time_unix_ns: int
    attributes: Attributes = {}
    start_unix_ns: int = 0
    buckets: Buckets | None = None
    explicit: ExplicitBuckets | None = None


class Point(msgspec.Struct, frozen=True, gc=False):
    """One number of a metric as it came over OTLP; `cumulative` tells counters from gauges."""

    metric: str
    value: float
    time_unix_ns: int
    attributes: Attributes = {}
    resource: Attributes = {}
    cumulative: bool = False


class SpanKind(StrEnum):
    """OpenTelemetry span kinds."""

    UNSPECIFIED = "unspecified"
    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class SpanStatus(StrEnum):
    """OpenTelemetry span status codes."""

    UNSET = "unset"
    OK = "ok"
    ERROR = "error"


class Link(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A link from one span to another; ids in lower-case hex."""

    trace_id: str
    span_id: str


class Span(msgspec.Struct, frozen=True, gc=False):
    """One finished span; ids in lower-case hex, `parent_span_id` empty for a root."""

    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    kind: SpanKind
    start_unix_ns: int
    end_unix_ns: int
    status: SpanStatus = SpanStatus.UNSET
    attributes: Attributes = {}
    links: tuple[Link, ...] = ()
    resource: Attributes = {}
    weight: float = 1.0
    """How many spans it stands for where traces were sampled by probability."""

    @property
    def duration_s(self) -> float:
        """Wall time in seconds; negative clock steps read as 0."""
        return max(0, self.end_unix_ns - self.start_unix_ns) / 1e9
