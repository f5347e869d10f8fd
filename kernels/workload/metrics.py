"""Prometheus metrics of the server, under the names that vLLM's dashboards read."""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

TTFT_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
E2E_BUCKETS_S = (
    0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 20.0, 60.0,
)  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """What is read elsewhere at the time of a scrape."""

    running: int
    waiting: int
    kv_used_ratio: float
    spans_lost: int


class Metrics:
    """What the server counts; one registry of its own, so that several can live in one process."""

    def __init__(self, model: str) -> None:
        self._registry = CollectorRegistry()
        self._model = model
        self.e2e = self._histogram(
            "vllm:e2e_request_latency_seconds", "Request received to last token.", E2E_BUCKETS_S
        )
        self.ttft = self._histogram(
            "vllm:time_to_first_token_seconds", "Request received to first token.", TTFT_BUCKETS_S
        )
        self.prompt_tokens = self._counter("vllm:prompt_tokens", "Prompt tokens processed.")
        self.generation_tokens = self._counter("vllm:generation_tokens", "Tokens generated.")
        self.cache_queries = self._counter(
            "tailcause_workload_cache_queries", "Prompt cache look-ups."
        )
        self.cache_hits = self._counter("tailcause_workload_cache_hits", "Prompt cache hits.")
        self._responses = Counter(
            "tailcause_workload_responses",
            "Requests by HTTP status.",
            ("model_name", "code"),
            registry=self._registry,
        )
        self._running = self._gauge("vllm:num_requests_running", "Requests that hold a batch row.")
        self._waiting = self._gauge(
            "vllm:num_requests_waiting", "Requests waiting for a batch row."
        )
        self._kv_used = self._gauge("vllm:kv_cache_usage_perc", "KV cache in use; 1 is full.")
        self._spans_lost = self._gauge(
            "tailcause_workload_spans_lost", "Spans that could not be exported, so far."
        )

    def count_response(self, status: int) -> None:
        """Count a finished request by its HTTP status."""
        self._responses.labels(self._model, str(status)).inc()

    def expose(self, now: Reading) -> str:
        """Render the whole page, Prometheus text format 0.0.4."""
        self._running.set(now.running)
        self._waiting.set(now.waiting)
        self._kv_used.set(now.kv_used_ratio)
        self._spans_lost.set(now.spans_lost)
        return generate_latest(self._registry).decode()

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, ("model_name",), registry=self._registry).labels(self._model)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, ("model_name",), registry=self._registry).labels(self._model)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        found = Histogram(name, text, ("model_name",), registry=self._registry, buckets=buckets)
        return found.labels(self._model)
