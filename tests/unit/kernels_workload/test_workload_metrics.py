"""The exposition, read back by the official parser."""

from prometheus_client.parser import text_string_to_metric_families

from kernels.workload.generation import Call, Generation, Step, Task
from kernels.workload.metrics import Metrics, Reading
from kernels.workload.openai_answers import Usage

LABELS = ("le", "code", "finished_reason")
MODEL = 'odd"name\\'


def samples(metrics: Metrics) -> dict[tuple[str, str], float]:
    """Parse a page: name and the label that tells samples apart, to value."""
    page = metrics.expose(Reading(running=2, waiting=3, kv_used_ratio=0.5, spans_lost=7))
    return {
        (one.name, next((one.labels[name] for name in LABELS if name in one.labels), "")): one.value
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


MS = 1_000_000


def finished() -> Generation:
    """Return a generation with 4 tokens whose phases took 10, 20 and 30 ms."""
    one = Generation(Task([1, 2, 3], 4), sink=lambda _: None)
    one.tokens = [65, 66, 67, 68]
    one.submitted_ns, one.scheduled_ns = 1_000 * MS, 1_010 * MS
    one.first_token_ns, one.last_token_ns = 1_030 * MS, 1_060 * MS
    return one


def test_phases_of_a_request_are_vllm_s() -> None:
    """Queue, prefill, decode, both together, and the time per token after the first."""
    metrics = Metrics(MODEL)
    metrics.count_success(Usage(33, 4, 16), "stop", 0.065, finished())
    page = samples(metrics)
    sums = {
        name: round(page[f"vllm:{name}_seconds_sum", ""], 6)
        for name in (
            "e2e_request_latency",
            "request_queue_time",
            "request_prefill_time",
            "request_decode_time",
            "request_inference_time",
            "request_time_per_output_token",
        )
    }
    assert list(sums.values()) == [0.065, 0.01, 0.02, 0.03, 0.05, 0.01]
    names = ("prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits")
    assert [page[f"vllm:{name}_total", ""] for name in names] == [33, 4, 33, 16]
    assert page["vllm:request_success_total", "stop"] == 1


def test_what_the_prompt_cache_had_has_no_phases() -> None:
    """A request that never saw the engine must not pass for one that was served in no time."""
    metrics = Metrics(MODEL)
    metrics.count_success(Usage(33, 4), "length", 0.002, None)
    page = samples(metrics)
    assert page["vllm:request_queue_time_seconds_count", ""] == 0
    assert page["vllm:prefix_cache_queries_total", ""] == 0
    assert page["vllm:e2e_request_latency_seconds_count", ""] == 1


def test_steps_are_counted_unless_they_warm_up() -> None:
    """Tokens per step of traffic, and everybody who was preempted."""
    metrics, one = Metrics(MODEL), finished()
    calls = (Call(False, 0, 1, 3, 99, (one,), 3, 2), Call(True, 1, 2, 30, 0, (one,), 40, 30))
    metrics.count_step(Step(calls, 0.5, preempted=2))
    one.trace = object()
    metrics.count_step(Step(calls, 0.5, preempted=1))
    page = samples(metrics)
    name = "vllm:iteration_tokens_total"
    assert [page[f"{name}_{part}", ""] for part in ("count", "sum")] == [1, 33]
    assert page["vllm:num_preemptions_total", ""] == 3
    work = [page[f"tailcause_workload_{kind}_tokens_total", ""] for kind in ("computed", "useful")]
    assert work == [43, 32]


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
