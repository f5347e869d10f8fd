"""KServe's Python model server, also with its vLLM backend.

Source: KServe documentation, "Prometheus Metrics" of the Python SDK.
"""

from agent.servers import table, vllm
from agent.servers.table import Row, Server

_OTHERS = tuple(row for row in vllm.ROWS if row.metric != table.INFERENCE_TIME)

KSERVE = Server(
    "kserve",
    "request_predict_seconds",
    (
        Row(
            table.INFERENCE_TIME,
            ("vllm:request_inference_time_seconds", "request_predict_seconds"),
        ),
        *_OTHERS,
    ),
    ports=(8080,),
    commands=("kserve", "huggingfaceserver"),
)
