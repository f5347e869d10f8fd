"""The product's own workload: vLLM's names, and its own for what it counts in another way."""

from agent.servers import table, vllm
from agent.servers.table import Row, Server
from agent.telemetry.keys import FINISH_REASON

_OWN = (
    Row(
        table.CACHE_QUERIES,
        ("vllm:prefix_cache_queries", "tailcause_workload_cache_queries"),
    ),
    Row(table.CACHE_HITS, ("vllm:prefix_cache_hits", "tailcause_workload_cache_hits")),
    Row(table.FINISHED, ("tailcause_workload_responses",), labels=(("code", FINISH_REASON),)),
)
_METRICS = {row.metric for row in _OWN}

WORKLOAD = Server(
    "tailcause",
    "tailcause_workload_",
    (*_OWN, *(row for row in vllm.ROWS if row.metric not in _METRICS)),
    ports=(8000,),
    commands=("tailcause-workload", "kernels.cli"),
)
