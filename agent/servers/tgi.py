"""Hugging Face Text Generation Inference, which names no model.

Source: TGI documentation, "Metrics". Its time per token includes the prefill, and it has no time to first token:
neither is passed off as what others mean by it.
"""

from agent.servers import table
from agent.servers.table import Row, Server
from agent.telemetry.keys import FINISH_REASON

TGI = Server(
    "tgi",
    "tgi_",
    (
        Row(table.DURATION, ("tgi_request_duration",)),
        Row(table.QUEUE_TIME, ("tgi_request_queue_duration",)),
        Row(table.INFERENCE_TIME, ("tgi_request_inference_duration",)),
        Row(table.RUNNING, ("tgi_batch_current_size",)),
        Row(table.WAITING, ("tgi_queue_size",)),
        Row(table.FINISHED, ("tgi_request_success",), attributes=((FINISH_REASON, "success"),)),
        Row(
            table.FINISHED,
            ("tgi_request_failure",),
            attributes=((FINISH_REASON, "error"),),
            labels=(("err", FINISH_REASON),),
        ),
        Row(table.PROMPT_TOKENS, ("tgi_request_input_length_sum",)),
        Row(table.GENERATION_TOKENS, ("tgi_request_generated_tokens_sum",)),
    ),
    ports=(3000, 8080),
    commands=("text-generation-router", "text-generation-launcher"),
)
