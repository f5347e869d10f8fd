"""What a server's table of names is made of."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from agent.telemetry.metric import Kind
from agent.telemetry.names import BY_NAME

DURATION = "gen_ai.server.request.duration"
TTFT = "gen_ai.server.time_to_first_token"
TPOT = "gen_ai.server.time_per_output_token"
_PREFIX = "tailcause.server."
INTER_TOKEN = f"{_PREFIX}inter_token.latency"
QUEUE_TIME = f"{_PREFIX}queue.time"
PREFILL_TIME = f"{_PREFIX}prefill.time"
DECODE_TIME = f"{_PREFIX}decode.time"
INFERENCE_TIME = f"{_PREFIX}inference.time"
FIRST_RESPONSE_TIME = f"{_PREFIX}first_response.time"
RUNNING = f"{_PREFIX}requests.running"
WAITING = f"{_PREFIX}requests.waiting"
SWAPPED = f"{_PREFIX}requests.swapped"
FINISHED = f"{_PREFIX}requests.finished"
KV_CACHE = f"{_PREFIX}kv_cache.utilization"
PREEMPTIONS = f"{_PREFIX}preemptions"
CACHE_QUERIES = f"{_PREFIX}prefix_cache.queries"
CACHE_HITS = f"{_PREFIX}prefix_cache.hits"
CACHE_HIT_RATIO = f"{_PREFIX}prefix_cache.hit_ratio"
PROMPT_TOKENS = f"{_PREFIX}prompt.tokens"
GENERATION_TOKENS = f"{_PREFIX}generation.tokens"
ITERATION_TOKENS = f"{_PREFIX}iteration.tokens"
PHASE_TIME = f"{_PREFIX}phase.time"
PHASE_QUANTILE = f"{_PREFIX}phase.quantile"

PROCESS_START = "process_start_time_seconds"
"""When the server's process began, as Prometheus' client libraries tell it."""
BUCKET, COUNT, SUM, CREATED, TOTAL = "_bucket", "_count", "_sum", "_created", "_total"


@dataclass(frozen=True)
class Row:
    """A metric of ours and the server's names for it: the first that is on the page counts.

    Names are those of the families: a counter's with or without `_total`. Rows of the same metric are
    added up.
    """

    metric: str
    names: tuple[str, ...]
    where: tuple[tuple[str, str], ...] = ()
    """Labels by which the series that count are told from others."""
    attributes: tuple[tuple[str, str], ...] = ()
    """What all of them get."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels that are kept, and as which attributes."""
    factor: float = 1.0
    """What the server's unit is multiplied by to get ours."""

    @property
    def kind(self) -> Kind:
        """Return what the catalogue says that the metric is."""
        return BY_NAME[self.metric].kind

    @property
    def candidates(self) -> tuple[str, ...]:
        """Return the names as they may stand on a page, the preferred first."""
        if self.kind is not Kind.COUNTER:
            return self.names
        return tuple(name for one in self.names for name in (f"{one}{TOTAL}", one))


@dataclass(frozen=True)
class Server:
    """One kind of server: how it is recognised, where it is found, and its names."""

    name: str
    """The kind in the configuration, and `gen_ai.provider.name`."""
    marker: str
    """What its own names begin with; a page without is another server's."""
    rows: tuple[Row, ...]
    ports: tuple[int, ...] = ()
    path: str = "/metrics"
    commands: tuple[str, ...] = ()
    """Words in the command line of its process."""
    model_labels: tuple[str, ...] = ("model_name",)
    engine_label: str = ""
    """Tells engines of one server apart, each with a cache and a queue of its own."""
    rank_labels: tuple[str, ...] = ()
    """Tell apart processes that work on the same requests: the first one's word counts."""

    @cached_property
    def wanted(self) -> frozenset[str]:
        """Return every name of a series that is to be read."""
        return frozenset((PROCESS_START, *_names(self.rows)))


def _names(rows: Iterable[Row]) -> Iterable[str]:
    for row in rows:
        for name in row.candidates:
            if row.kind is Kind.HISTOGRAM:
                yield from (f"{name}{part}" for part in (BUCKET, COUNT, SUM, CREATED))
            else:
                yield name
                yield f"{name.removesuffix(TOTAL)}{CREATED}"
