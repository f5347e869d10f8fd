"""Triton Inference Server, also with its TensorRT-LLM and vLLM backends.

Sources: Triton user guide, "Metrics", of 23.04 and later; READMEs of its tensorrtllm and vllm backends. Its duration
counters are sums: they give means. Quantiles come with `--metrics-config summary_latencies=true`, over a window of
Triton's own; the first response of a decoupled model with `histogram_latencies=true`.
"""

from agent.servers import table, vllm
from agent.servers.table import Row, Server
from agent.telemetry.keys import FINISH_REASON, SERVER_PHASE, SERVER_QUANTILE

_PHASES = (
    ("request", "request"),
    ("queue", "queue"),
    ("compute_input", "compute_input"),
    ("compute_infer", "compute"),
    ("compute_output", "compute_output"),
)
_US, _MS = 1e-6, 1e-3


def _phase(name: str, phase: str) -> tuple[Row, Row]:
    named = ((SERVER_PHASE, phase),)
    return (
        Row(table.PHASE_TIME, (f"nv_inference_{name}_duration_us",), attributes=named, factor=_US),
        Row(
            table.PHASE_QUANTILE,
            (f"nv_inference_{name}_summary_us",),
            attributes=named,
            labels=(("quantile", SERVER_QUANTILE),),
            factor=_US,
        ),
    )


def _batcher(metric: str, request_type: str) -> Row:
    where = (("request_type", request_type),)
    return Row(metric, ("nv_trt_llm_request_metrics",), where)


TRITON = Server(
    "triton",
    "nv_inference_",
    (
        *(row for name, phase in _PHASES for row in _phase(name, phase)),
        Row(table.FIRST_RESPONSE_TIME, ("nv_inference_first_response_histogram_ms",), factor=_MS),
        Row(
            table.FINISHED,
            ("nv_inference_request_success",),
            attributes=((FINISH_REASON, "success"),),
        ),
        Row(
            table.FINISHED,
            ("nv_inference_request_failure",),
            attributes=((FINISH_REASON, "error"),),
            labels=(("reason", FINISH_REASON),),
        ),
        Row(table.WAITING, ("nv_inference_pending_request_count",)),
        _batcher(table.WAITING, "waiting"),
        _batcher(table.RUNNING, "scheduled"),
        Row(
            table.KV_CACHE,
            ("nv_trt_llm_kv_cache_block_metrics",),
            where=(("kv_cache_block_type", "fraction"),),
        ),
        *vllm.ROWS,
    ),
    ports=(8002,),
    commands=("tritonserver",),
    model_labels=("model", "model_name"),
)
