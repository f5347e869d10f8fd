"""SGLang (started with `--enable-metrics`).

Source: SGLang documentation, "Production Metrics", of 0.4 and 0.5. A retraction is what vLLM calls a preemption;
every prompt token is looked up in the radix cache.
"""

from agent.servers import table
from agent.servers.table import Row, Server

SGLANG = Server(
    "sglang",
    "sglang:",
    (
        Row(table.DURATION, ("sglang:e2e_request_latency_seconds",)),
        Row(table.TTFT, ("sglang:time_to_first_token_seconds",)),
        Row(
            table.TPOT,
            ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
        ),
        Row(
            table.INTER_TOKEN,
            ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
        ),
        Row(table.QUEUE_TIME, ("sglang:queue_time_seconds",)),
        Row(table.RUNNING, ("sglang:num_running_reqs",)),
        Row(table.WAITING, ("sglang:num_queue_reqs",)),
        Row(table.FINISHED, ("sglang:num_requests",)),
        Row(table.KV_CACHE, ("sglang:token_usage",)),
        Row(table.PREEMPTIONS, ("sglang:num_retracted_requests",)),
        Row(table.CACHE_QUERIES, ("sglang:prompt_tokens",)),
        Row(table.CACHE_HITS, ("sglang:cached_tokens",)),
        Row(table.CACHE_HIT_RATIO, ("sglang:cache_hit_rate",)),
        Row(table.PROMPT_TOKENS, ("sglang:prompt_tokens",)),
        Row(table.GENERATION_TOKENS, ("sglang:generation_tokens",)),
    ),
    ports=(30000,),
    commands=("sglang",),
    engine_label="dp_rank",
    rank_labels=("tp_rank", "pp_rank", "moe_ep_rank"),
)
