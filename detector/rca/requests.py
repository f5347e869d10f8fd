"""Reads requests and engine steps out of spans: who waited where, on which revision."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agent.telemetry import keys
from agent.telemetry.model import Attributes, Span
from detector.series import is_failure, is_request

STEP_NAME = "engine step"


@dataclass(frozen=True)
class Request:
    """One request to the service; `operations` maps an operation to its own time in seconds."""

    trace_id: str
    span_id: str
    start_s: float
    end_s: float
    failed: bool
    version: str
    revision: str
    replica: str
    cgroup: str
    host: str
    input_tokens: int
    output_tokens: int
    operations: dict[str, float] = field(default_factory=dict)

    @property
    def duration_s(self) -> float:
        """Wall time of the request."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Step:
    """One step of an engine: its wall time and the work in it."""

    start_s: float
    end_s: float
    batch_size: float
    prefill_tokens: float
    decode_tokens: float
    context_tokens: float

    @property
    def duration_s(self) -> float:
        """Wall time of the step."""
        return self.end_s - self.start_s


def text(attributes: Attributes, key: str) -> str:
    """Read an attribute as text, empty when absent."""
    value = attributes.get(key, "")
    return value if isinstance(value, str) else str(value)


def number(attributes: Attributes, key: str) -> float:
    """Read an attribute as a number, 0 when absent or not a number."""
    value = attributes.get(key, 0)
    return float(value) if isinstance(value, int | float) else 0.0


def read_requests(spans: Sequence[Span], service: str, model: str) -> list[Request]:
    """Return the requests of one service and model in order of their end."""
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_trace[span.trace_id].append(span)
    requests = [
        _read_request(span, by_trace[span.trace_id])
        for span in spans
        if is_request(span)
        and text(span.resource, keys.SERVICE_NAME) == service
        and text(span.attributes, keys.GEN_AI_MODEL) == model
    ]
    return sorted(requests, key=lambda request: (request.end_s, request.trace_id))


def read_steps(spans: Iterable[Span], service: str) -> list[Step]:
    """Return the engine steps of one service in order of their start."""
    steps = [
        Step(
            start_s=span.start_unix_ns / 1e9,
            end_s=span.end_unix_ns / 1e9,
            batch_size=number(span.attributes, "tailcause.step.batch_size"),
            prefill_tokens=number(span.attributes, "tailcause.step.prefill_tokens"),
            decode_tokens=number(span.attributes, "tailcause.step.decode_tokens"),
            context_tokens=number(span.attributes, "tailcause.step.context_tokens"),
        )
        for span in spans
        if span.name == STEP_NAME and text(span.resource, keys.SERVICE_NAME) == service
    ]
    return sorted(steps, key=lambda step: step.start_s)


def _read_request(root: Span, trace: Sequence[Span]) -> Request:
    return Request(
        trace_id=root.trace_id,
        span_id=root.span_id,
        start_s=root.start_unix_ns / 1e9,
        end_s=root.end_unix_ns / 1e9,
        failed=is_failure(root),
        version=text(root.resource, keys.SERVICE_VERSION),
        revision=text(root.resource, keys.REVISION),
        replica=text(root.resource, keys.SERVICE_INSTANCE_ID),
        cgroup=text(root.resource, keys.CGROUP),
        host=text(root.resource, keys.HOST_NAME),
        input_tokens=int(number(root.attributes, keys.GEN_AI_INPUT_TOKENS)),
        output_tokens=int(number(root.attributes, keys.GEN_AI_OUTPUT_TOKENS)),
        operations=_own_times(root, trace),
    )


def _own_times(root: Span, trace: Sequence[Span]) -> dict[str, float]:
    """Own time of every operation below (and in) `root`: its duration less what its children cover."""
    children: dict[str, list[Span]] = defaultdict(list)
    for span in trace:
        children[span.parent_span_id].append(span)
    own: dict[str, float] = defaultdict(float)
    pending = [root]
    seen = set()
    while pending:
        span = pending.pop()
        if span.span_id in seen:  # a cycle in the parent ids of a lying client
            continue
        seen.add(span.span_id)
        below = children[span.span_id]
        own[_operation(span, root)] += span.duration_s - _covered_s(span, below)
        pending.extend(below)
    return dict(own)


def _operation(span: Span, root: Span) -> str:
    service = text(span.resource, keys.SERVICE_NAME)
    if service != text(root.resource, keys.SERVICE_NAME):
        return f"{service}: {span.name}"
    return span.name


def _covered_s(span: Span, below: Iterable[Span]) -> float:
    """Length of the union of the children's intervals, clipped to the span, in seconds."""
    covered = 0
    reached = span.start_unix_ns
    for child in sorted(below, key=lambda child: child.start_unix_ns):
        start = max(child.start_unix_ns, reached)
        end = min(child.end_unix_ns, span.end_unix_ns)
        if end > start:
            covered += end - start
            reached = end
    return covered / 1e9
