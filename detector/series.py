"""From spans to windows: latencies per service x model x replica, assigned by the time a request ended."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.telemetry import keys
from agent.telemetry.model import Span, SpanKind, SpanStatus
from detector.config import SeriesConfig
from detector.model import SeriesKey, Signal


class Group(NamedTuple):
    """What is judged together; an empty replica stands for all replicas of the service."""

    service: str
    model: str
    replica: str

    def key(self, signal: Signal) -> SeriesKey:
        """Return the series of one latency of this group."""
        return SeriesKey(self.service, self.model, self.replica, signal)


@dataclass
class Bucket:
    """What one group did in one window."""

    values_s: dict[Signal, list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: int = 0


@dataclass(frozen=True)
class Window:
    """One closed window; every group that is known has a bucket, empty when it finished nothing."""

    start_unix_s: float
    end_unix_s: float
    buckets: dict[Group, Bucket]
    retired: tuple[Group, ...] = ()


def is_request(span: Span) -> bool:
    """Whether a span is a served inference request."""
    return span.kind is SpanKind.SERVER and keys.GEN_AI_MODEL in span.attributes


def is_failure(span: Span) -> bool:
    """Whether a request failed; a quick refusal must not pass for a quick answer."""
    status = _number(span, "http.response.status_code") or 0
    return span.status is SpanStatus.ERROR or status >= 400


def latencies_s(span: Span) -> dict[Signal, float]:
    """Return the latencies that a successful request span states, in seconds."""
    total_s = span.duration_s
    found = {Signal.E2E: total_s}
    first_s = _number(span, keys.GEN_AI_TTFT)
    if first_s is None or not 0 <= first_s <= total_s + 0.001:
        return found
    found[Signal.TTFT] = first_s
    tokens = _number(span, keys.GEN_AI_OUTPUT_TOKENS)
    if tokens is not None and tokens >= 2:
        found[Signal.TPOT] = max(0.0, total_s - first_s) / (tokens - 1)
    return found


def _number(span: Span, key: str) -> float | None:
    value = span.attributes.get(key)
    return float(value) if isinstance(value, int | float) else None


def _text(value: object) -> str:
    return str(value) if value is not None else "unknown"


class Windower:
    """Collects request spans into aligned windows and closes them `grace_s` after their end."""

    def __init__(self, config: SeriesConfig) -> None:
        self._config = config
        self._width_ns = round(config.window_s * 1e9)
        self._open: dict[int, dict[Group, Bucket]] = {}
        self._last_closed: int | None = None
        self._seen: dict[Group, int] = {}
        self.dropped: Counter[str] = Counter()

    def add(self, spans: Iterable[Span]) -> None:
        """Take in spans of any kind; only requests count."""
        for span in spans:
            if is_request(span):
                self._add_request(span)

    def _add_request(self, span: Span) -> None:
        index = span.end_unix_ns // self._width_ns
        if self._last_closed is not None and index <= self._last_closed:
            self.dropped["late_requests"] += 1
            return
        service = _text(span.resource.get(keys.SERVICE_NAME))
        model = _text(span.attributes.get(keys.GEN_AI_MODEL))
        replica = str(span.resource.get(keys.SERVICE_INSTANCE_ID, ""))
        failed = is_failure(span)
        latencies = {} if failed else latencies_s(span)
        for name in ("", replica) if replica else ("",):
            self._put(Group(service, model, name), index, latencies, failed=failed)

    def _put(
        self, group: Group, index: int, latencies: dict[Signal, float], *, failed: bool
    ) -> None:
        if group not in self._seen and len(self._seen) >= self._config.max_groups:
            self.dropped["overflow_requests"] += 1
            return
        self._seen[group] = max(index, self._seen.get(group, index))
        bucket = self._open.setdefault(index, {}).setdefault(group, Bucket())
        bucket.failures += failed
        for signal, value in latencies.items():
            bucket.values_s[signal].append(value)

    def close(self, now_unix_s: float) -> list[Window]:
        """All windows whose end lies `grace_s` in the past, oldest first."""
        ready = int((now_unix_s - self._config.grace_s) * 1e9) // self._width_ns - 1
        if self._last_closed is None:
            if not self._open or min(self._open) > ready:
                return []
            self._last_closed = min(self._open) - 1
        first = self._last_closed + 1
        if ready - first > self._config.idle_windows and not self._open:
            first = ready - self._config.idle_windows  # the machine slept; do not make up its time
        return [self._close_one(index) for index in range(first, ready + 1)]

    def _close_one(self, index: int) -> Window:
        self._last_closed = index
        found = self._open.pop(index, {})
        retired = tuple(
            group for group, last in self._seen.items() if index - last >= self._config.idle_windows
        )
        for group in retired:
            del self._seen[group]
        return Window(
            start_unix_s=index * self._config.window_s,
            end_unix_s=(index + 1) * self._config.window_s,
            buckets={group: found.get(group, Bucket()) for group in self._seen} | found,
            retired=retired,
        )
