"""vLLM, from its first engine (V0) to the present one.

Sources: vLLM documentation, "Production Metrics" of 0.5.3, 0.7.0, 0.8.5, 0.9.1, 0.32.0; "Metrics" (design).
"""

from agent.servers import table
from agent.servers.table import Row, Server
from agent.telemetry.keys import FINISH_REASON

ROWS = (
    Row(table.DURATION, ("vllm:e2e_request_latency_seconds",)),
    Row(table.TTFT, ("vllm:time_to_first_token_seconds",)),
    Row(
        table.TPOT,
        (
            "vllm:request_time_per_output_token_seconds",
            "vllm:inter_token_latency_seconds",
            "vllm:time_per_output_token_seconds",
        ),
    ),
    Row(
        table.INTER_TOKEN,
        ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    ),
    Row(
        table.QUEUE_TIME,
        ("vllm:request_queue_time_seconds", "vllm:time_in_queue_requests"),
    ),
    Row(table.PREFILL_TIME, ("vllm:request_prefill_time_seconds",)),
    Row(table.DECODE_TIME, ("vllm:request_decode_time_seconds",)),
    Row(table.INFERENCE_TIME, ("vllm:request_inference_time_seconds",)),
    Row(table.RUNNING, ("vllm:num_requests_running",)),
    Row(table.WAITING, ("vllm:num_requests_waiting",)),
    Row(table.SWAPPED, ("vllm:num_requests_swapped",)),
    Row(
        table.FINISHED,
        ("vllm:request_success",),
        labels=(("finished_reason", FINISH_REASON),),
    ),
    Row(table.KV_CACHE, ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")),
    Row(table.PREEMPTIONS, ("vllm:num_preemptions",)),
    Row(table.CACHE_QUERIES, ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries")),
    Row(table.CACHE_HITS, ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits")),
    Row(table.CACHE_HIT_RATIO, ("vllm:gpu_prefix_cache_hit_rate",)),
    Row(table.PROMPT_TOKENS, ("vllm:prompt_tokens",)),
    Row(table.GENERATION_TOKENS, ("vllm:generation_tokens",)),
    Row(table.ITERATION_TOKENS, ("vllm:iteration_tokens_total",)),
)

VLLM = Server(
    "vllm",
    "vllm:",
    ROWS,
    ports=(8000,),
    commands=("vllm",),
    engine_label="engine",
)
