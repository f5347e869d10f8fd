"""The table of servers: to add one, write its file and its line here.

A page is the first one's whose marker it bears: those that bear a second one's names as well come first.
"""

from agent.servers.kserve import KSERVE
from agent.servers.sglang import SGLANG
from agent.servers.table import Server
from agent.servers.tensorrt_llm import TENSORRT_LLM
from agent.servers.tgi import TGI
from agent.servers.triton import TRITON
from agent.servers.vllm import VLLM
from agent.servers.workload import WORKLOAD

SERVERS: tuple[Server, ...] = (WORKLOAD, TRITON, KSERVE, SGLANG, TENSORRT_LLM, TGI, VLLM)

BY_KIND: dict[str, Server] = {server.name: server for server in SERVERS}
