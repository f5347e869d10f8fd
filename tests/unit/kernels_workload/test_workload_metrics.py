"""The exposition, read back by the official parser."""

from prometheus_client.parser import text_string_to_metric_families

from kernels.workload.metrics import Metrics, Reading

MODEL = 'odd"name\\'


def samples(metrics: Metrics) -> dict[tuple[str, str], float]:
    """Parse a page: (name, `le` or `code`) to value."""
    page = metrics.expose(Reading(running=2, waiting=3, kv_used_ratio=0.5, spans_lost=7))
    return {
        (one.name, one.labels.get("le", one.labels.get("code", ""))): one.value
        for family in text_string_to_metric_families(page)
        for one in family.samples
        if one.labels["model_name"] == MODEL
    }


def test_gauges_carry_vllm_names() -> None:
    """What a vLLM dashboard reads is there."""
    page = samples(Metrics(MODEL))
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    assert [page[name, ""] for name in names] == [2, 3, 0.5]


def test_histogram_buckets_are_cumulative() -> None:
    """A value on a bound belongs to that bucket; +Inf holds all."""
    metrics = Metrics(MODEL)
    for value in (0.1, 0.11, 99.0):
        metrics.e2e.observe(value)
    page = samples(metrics)
    name = "vllm:e2e_request_latency_seconds"
    counts = [page[f"{name}_bucket", bound] for bound in ("0.08", "0.1", "0.15", "60.0", "+Inf")]
    assert counts == [0, 1, 2, 2, 3]
    assert page[f"{name}_count", ""] == 3


def test_responses_are_counted_by_status() -> None:
    """Refusals show up under their status."""
    metrics = Metrics(MODEL)
    for status in (200, 429, 200):
        metrics.count_response(status)
    page = samples(metrics)
    assert {code: page["tailcause_workload_responses_total", str(code)] for code in (200, 429)} == {
        200: 2,
        429: 1,
    }
