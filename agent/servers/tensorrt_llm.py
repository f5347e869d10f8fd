"""TensorRT-LLM's own server, `trtllm-serve`, whose `/metrics` is something else (JSON).

Source: TensorRT-LLM documentation, "trtllm-serve", and its list of Prometheus metrics. Cache look-ups are counted in
blocks: those reused, and those that were missed.
"""

from agent.servers import table
from agent.servers.table import Row, Server
from agent.telemetry.keys import FINISH_REASON

TENSORRT_LLM = Server(
    "tensorrt_llm",
    "trtllm_",
    (
        Row(table.DURATION, ("trtllm_e2e_request_latency_seconds",)),
        Row(table.TTFT, ("trtllm_time_to_first_token_seconds",)),
        Row(table.TPOT, ("trtllm_time_per_output_token_seconds",)),
        Row(table.QUEUE_TIME, ("trtllm_request_queue_time_seconds",)),
        Row(table.PREFILL_TIME, ("trtllm_request_prefill_time_seconds",)),
        Row(table.DECODE_TIME, ("trtllm_request_decode_time_seconds",)),
        Row(table.INFERENCE_TIME, ("trtllm_request_inference_time_seconds",)),
        Row(table.RUNNING, ("trtllm_num_requests_running",)),
        Row(table.WAITING, ("trtllm_num_requests_waiting",)),
        Row(
            table.FINISHED,
            ("trtllm_request_success",),
            labels=(("finished_reason", FINISH_REASON),),
        ),
        Row(table.FINISHED, ("trtllm_request_error",), attributes=((FINISH_REASON, "error"),)),
        Row(table.KV_CACHE, ("trtllm_kv_cache_utilization",)),
        Row(table.CACHE_QUERIES, ("trtllm_kv_cache_reused_blocks",)),
        Row(table.CACHE_QUERIES, ("trtllm_kv_cache_missed_blocks",)),
        Row(table.CACHE_HITS, ("trtllm_kv_cache_reused_blocks",)),
        Row(table.CACHE_HIT_RATIO, ("trtllm_kv_cache_hit_rate",)),
        Row(table.PROMPT_TOKENS, ("trtllm_prompt_tokens",)),
        Row(table.GENERATION_TOKENS, ("trtllm_generation_tokens",)),
    ),
    ports=(8000,),
    path="/prometheus/metrics",
    commands=("trtllm-serve",),
)
