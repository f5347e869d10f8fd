"""Prometheus metrics of the server, under the names that vLLM's dashboards read."""

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from kernels.workload.generation import Generation, Step
from kernels.workload.openai_answers import Usage

TTFT_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
E2E_BUCKETS_S = (
    0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 20.0, 60.0,
)  # fmt: skip

STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
PHASES = ("queue", "prefill", "decode", "inference")


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
        self._success = Counter(
            "vllm:request_success",
            "Answered requests by the reason of their end.",
            ("model_name", "finished_reason"),
            registry=self._registry,
        )
        self.client_blocked = self._counter(
            "tailcause_workload_client_blocked_seconds", "Time that slow clients held answers up."
        )
        self._preemptions = self._counter(
            "vllm:num_preemptions", "Requests that lost their KV and were computed anew."
        )
        self._prefix_queries = self._counter(
            "vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache."
        )
        self._prefix_hits = self._counter(
            "vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache."
        )
        self._iteration_tokens = self._histogram(
            "vllm:iteration_tokens_total", "Tokens per engine step.", STEP_TOKENS
        )
        self._computed_tokens = self._counter(
            "tailcause_workload_computed_tokens", "Tokens computed, rows times width of every call."
        )
        self._useful_tokens = self._counter(
            "tailcause_workload_useful_tokens",
            "Tokens computed for somebody: neither padding nor rows whose request is finished.",
        )
        self._tpot = self._histogram(
            "vllm:request_time_per_output_token_seconds", "Decode time per token.", TTFT_BUCKETS_S
        )
        self._phases = {
            phase: self._histogram(
                f"vllm:request_{phase}_time_seconds", f"Time of the phase: {phase}.", E2E_BUCKETS_S
            )
            for phase in PHASES
        }
        self._store_up = Gauge(
            "tailcause_workload_store_up",
            "1 while the store is asked, 0 while requests are served without it.",
            ("model_name", "store"),
            registry=self._registry,
        )
        self._store_errors = Counter(
            "tailcause_workload_store_errors",
            "Requests served without the answer of a store.",
            ("model_name", "store", "error_type"),
            registry=self._registry,
        )
        self._dropped_writes = Counter(
            "tailcause_workload_cache_writes_dropped",
            "Completions that were not kept.",
            ("model_name", "reason"),
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

    def watch_store(self, store: str, available: Callable[[], bool]) -> None:
        """Show whether a store is asked, read at the time of a scrape."""
        self._store_up.labels(self._model, store).set_function(lambda: float(available()))

    def count_store_error(self, store: str, reason: str) -> None:
        """Count a request that was served without a store's answer."""
        self._store_errors.labels(self._model, store, reason).inc()

    def count_dropped_write(self, reason: str) -> None:
        """Count a completion that was not kept."""
        self._dropped_writes.labels(self._model, reason).inc()

    def count_response(self, status: int) -> None:
        """Count a finished request by its HTTP status."""
        self._responses.labels(self._model, str(status)).inc()

    def count_success(
        self, usage: Usage, finish: str, duration_s: float, one: Generation | None
    ) -> None:
        """Count an answered request; without a generation the prompt cache had it."""
        self.e2e.observe(duration_s)
        self.prompt_tokens.inc(usage.prompt)
        self.generation_tokens.inc(usage.completion)
        self._success.labels(self._model, finish).inc()
        if one is None:
            return
        self._prefix_queries.inc(usage.prompt)
        self._prefix_hits.inc(usage.cached)
        decode_s = (one.last_token_ns - one.first_token_ns) / 1e9
        self._phases["queue"].observe((one.scheduled_ns - one.submitted_ns) / 1e9)
        self._phases["prefill"].observe((one.first_token_ns - one.scheduled_ns) / 1e9)
        self._phases["decode"].observe(decode_s)
        self._phases["inference"].observe((one.last_token_ns - one.scheduled_ns) / 1e9)
        if len(one.tokens) > 1:
            self._tpot.observe(decode_s / (len(one.tokens) - 1))

    def count_step(self, step: Step) -> None:
        """Count an engine step, unless it was for nobody: the warm-up is no traffic."""
        self._preemptions.inc(step.preempted)
        if any(one.trace is not None for one in step.served):
            self._iteration_tokens.observe(step.prefill_tokens + step.decode_tokens)
            self._computed_tokens.inc(step.computed_tokens)
            self._useful_tokens.inc(step.useful_tokens)

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
