"""Prometheus exposition of the server, under the names that vLLM's dashboards read."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

TTFT_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
E2E_BUCKETS_S = (
    0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 20.0, 60.0,
)  # fmt: skip


@dataclass
class Histogram:
    """Counts per bucket; `observe` is called from one thread."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, label: str) -> list[str]:
        """Exposition lines with cumulative buckets."""
        seen, rows = 0, []
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            seen += count
            rows.append(f'{name}_bucket{{{label},le="{bound}"}} {seen}')
        return [*rows, f"{name}_sum{{{label}}} {self.total}", f"{name}_count{{{label}}} {seen}"]


@dataclass
class Metrics:
    """What the HTTP side counts."""

    e2e: Histogram = field(default_factory=lambda: Histogram(E2E_BUCKETS_S))
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BUCKETS_S))
    prompt_tokens: int = 0
    generation_tokens: int = 0
    responses: dict[int, int] = field(default_factory=dict)
    cache_queries: int = 0
    cache_hits: int = 0

    def count_response(self, status: int) -> None:
        """Count a finished request by its HTTP status."""
        self.responses[status] = self.responses.get(status, 0) + 1


@dataclass(frozen=True)
class Reading:
    """What is read elsewhere at the time of a scrape."""

    running: int
    waiting: int
    kv_used_ratio: float
    spans_lost: int


def expose(model: str, metrics: Metrics, now: Reading) -> str:
    """Render the whole page, Prometheus text format 0.0.4."""
    label = f'model_name="{_escape(model)}"'
    singles: tuple[tuple[str, str, str, float], ...] = (
        ("vllm:num_requests_running", "gauge", "Requests that hold a batch row.", now.running),
        ("vllm:num_requests_waiting", "gauge", "Requests waiting for a batch row.", now.waiting),
        ("vllm:kv_cache_usage_perc", "gauge", "KV cache in use; 1 is full.", now.kv_used_ratio),
        ("vllm:prompt_tokens_total", "counter", "Prompt tokens processed.", metrics.prompt_tokens),
        ("vllm:generation_tokens_total", "counter", "Tokens generated.", metrics.generation_tokens),
        (
            "tailcause_workload_cache_queries_total",
            "counter",
            "Prompt cache look-ups.",
            metrics.cache_queries,
        ),
        (
            "tailcause_workload_cache_hits_total",
            "counter",
            "Prompt cache hits.",
            metrics.cache_hits,
        ),
        (
            "tailcause_workload_spans_lost_total",
            "counter",
            "Spans that could not be exported.",
            now.spans_lost,
        ),
    )
    lines: list[str] = []
    for name, kind, text, value in singles:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name}{{{label}}} {value}"]
    lines += _responses(label, metrics)
    for name, text, histogram in (
        ("vllm:e2e_request_latency_seconds", "Request received to last token.", metrics.e2e),
        ("vllm:time_to_first_token_seconds", "Request received to first token.", metrics.ttft),
    ):
        lines += [
            f"# HELP {name} {text}",
            f"# TYPE {name} histogram",
            *histogram.lines(name, label),
        ]
    return "\n".join(lines) + "\n"


def _responses(label: str, metrics: Metrics) -> list[str]:
    name = "tailcause_workload_responses_total"
    rows = [
        f'{name}{{{label},code="{code}"}} {count}'
        for code, count in sorted(metrics.responses.items())
    ]
    return [f"# HELP {name} Requests by HTTP status.", f"# TYPE {name} counter", *rows]


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
