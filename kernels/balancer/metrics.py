"""Prometheus metrics of the balancer."""

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import generate_latest

from kernels.balancer.backends import Backends


class Metrics:
    """What the balancer counts, by replica."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests", "Answers by replica and status.", "code")
        self._retries = self._counter(
            "retries", "Requests that went on to another replica.", "reason"
        )
        self._cut = self._counter("cut", "Answers that ended before their end.", "reason")
        self._refused = Counter(
            "tailcause_balancer_refused",
            "Requests that no replica answered.",
            ("reason",),
            registry=self._registry,
        )
        self._up = self._gauge("up", "1 while the replica is healthy.")
        self._in_flight = self._gauge("in_flight", "Requests that the replica is answering.")

    def answered(self, instance: str, status: int) -> None:
        """Count an answer that was passed on."""
        self._requests.labels(instance, str(status)).inc()

    def retried(self, instance: str, reason: str) -> None:
        """Count a request that this replica did not answer and another one got."""
        self._retries.labels(instance, reason).inc()

    def cut(self, instance: str, reason: str) -> None:
        """Count an answer that broke off."""
        self._cut.labels(instance, reason).inc()

    def refused(self, reason: str) -> None:
        """Count a request that the balancer answered itself."""
        self._refused.labels(reason).inc()

    def expose(self, backends: Backends) -> str:
        """Render the whole page, Prometheus text format 0.0.4."""
        for one in backends.all:
            self._up.labels(one.name).set(one.healthy)
            self._in_flight.labels(one.name).set(one.in_flight)
        return generate_latest(self._registry).decode()

    def _counter(self, name: str, text: str, label: str) -> Counter:
        return Counter(
            f"tailcause_balancer_{name}", text, ("instance", label), registry=self._registry
        )

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"tailcause_balancer_{name}", text, ("instance",), registry=self._registry)
