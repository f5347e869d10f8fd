"""NCCL calls by process: a rank that spends longer in a collective than its peers got there earlier."""

from ebpf.apiprobe import Api, ApiOptions, ApiProbe, ApiSet

_COLLECTIVES = (
    "ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "ncclReduce", "ncclAlltoAll",
    "ncclGather", "ncclScatter", "ncclSend", "ncclRecv",
)  # fmt: skip
_GROUPS = ("ncclGroupEnd",)
_SETUPS = (
    "ncclCommInitRank",
    "ncclCommInitRankConfig",
    "ncclCommSplit",
    "ncclCommDestroy",
    "ncclCommAbort",
)

NCCL = ApiSet(
    name="nccl",
    apis=(
        *(Api(name, "collective") for name in _COLLECTIVES),
        *(Api(name, "group") for name in _GROUPS),
        *(Api(name, "setup") for name in _SETUPS),
    ),
    libraries=("libnccl.so",),
    marks=("ncclAllReduce",),
    metric="gpu.collective.time",
    by_process=True,
)


class Nccl(ApiProbe):
    """Uprobes on libnccl and its static copies."""

    def __init__(self, options: ApiOptions | None = None) -> None:
        super().__init__(NCCL, options)
