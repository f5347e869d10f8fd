"""One request being answered, and the record that it leaves: span, log line, counts."""

import logging
from dataclasses import dataclass, field

from kernels.workload.clock import Clock
from kernels.workload.generation import Generation
from kernels.workload.metrics import Metrics
from kernels.workload.openai_answers import Usage
from kernels.workload.spans import RequestTrace

log = logging.getLogger(__name__)


@dataclass
class Exchange:
    """What is known of a request so far."""

    trace: RequestTrace
    status: int = 200
    error: str = ""
    prompt_tokens: int = 0
    tokens: list[int] = field(default_factory=list)
    finish: str = ""
    first_token_ns: int = 0
    blocked_ns: int = 0
    generation: Generation | None = None

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        cached = self.generation.reused if self.generation is not None else 0
        return Usage(self.prompt_tokens, len(self.tokens), cached)

    def add(self, token: int, finish: str) -> None:
        """Note the next token of the completion."""
        self.tokens.append(token)
        self.finish = finish

    def fail(self, status: int, error: str) -> None:
        """Note why this is no plain success."""
        self.status, self.error = status, error

    def record(self, metrics: Metrics, clock: Clock) -> None:
        """End the span, count and log; call once, at the end."""
        self._add_phases()
        if self.first_token_ns:
            ttft_s = (self.first_token_ns - self.trace.started_ns) / 1e9
            self.trace.describe({"gen_ai.latency.time_to_first_token": ttft_s})
            metrics.ttft.observe(ttft_s)
        if self.tokens:
            self.trace.describe({"gen_ai.usage.output_tokens": len(self.tokens)})
        if self.blocked_ns:
            self.trace.describe({"tailcause.client.blocked": self.blocked_ns / 1e9})
            metrics.client_blocked.inc(self.blocked_ns / 1e9)
        duration_s = (
            self.trace.finish(self._served_ns(clock.now_ns()), self.status, self.error) / 1e9
        )
        metrics.count_response(self.status)
        if self.status == 200:
            metrics.count_success(self.usage, self.finish, duration_s, self.generation)
        log.info("request", extra={"fields": self._log_fields(duration_s)})

    def _served_ns(self, now_ns: int) -> int:
        """Return the moment at which the service was done: what a slow client took on top is not its latency."""
        last_ns = self.generation.last_token_ns if self.generation is not None else 0
        return max(now_ns - self.blocked_ns, last_ns)

    def _add_phases(self) -> None:
        one = self.generation
        if one is None:
            return
        self.trace.describe({"gen_ai.usage.cache_read.input_tokens": one.reused})
        if one.preemptions:
            self.trace.describe({"tailcause.request.preemptions": one.preemptions})
        self.trace.phase("queue", one.submitted_ns, one.scheduled_ns)
        self.trace.phase("prefill", one.scheduled_ns, one.first_token_ns)
        if len(one.tokens) > 1:
            self.trace.phase("decode", one.first_token_ns, one.last_token_ns)

    def _log_fields(self, duration_s: float) -> dict[str, object]:
        return {
            "status": self.status,
            "error": self.error,
            "input_tokens": self.prompt_tokens,
            "output_tokens": len(self.tokens),
            "duration_s": round(duration_s, 6),
            **self.trace.ids,
        }
