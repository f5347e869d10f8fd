"""The agent on a full node at twenty times its pace: minutes that show what hours would do to its memory."""

from pathlib import Path
from statistics import median

import pytest

from tests.bench.agent_backend import backend
from tests.bench.agent_memory import MB, watch
from tests.bench.agent_node import Size, node
from tests.bench.bench_agent import FAST, Bench
from tests.support.probe_session import needs_probes

WARM_S, WATCHED_S = 60.0, 180.0
ENDS_S = 30.0
MOST_MB = 2.5
"""What is kept for the next time (attributes, files, the allocator's pages) is complete after about an hour of normal
pace, and takes 1.2 MB of the fifty minutes that are looked at here; a leak of 100 bytes for each of the 6 500 points of
an export would take 130 MB. Whether nothing at all grows, `make bench-agent` tells in twenty minutes."""


@pytest.mark.privileged
@needs_probes
@pytest.mark.timeout(600)
def test_memory_does_not_grow(tmp_path: Path) -> None:
    """Fifty minutes' worth of collections and exports leave the resident memory where it was."""
    with (
        node(Size(), tmp_path) as on,
        backend() as back,
        Bench(on, back, tmp_path).agent("--otlp-grpc-port", "off", *FAST) as running,
    ):
        watch({}, WARM_S)
        seen = watch({"agent": running}, WATCHED_S)["agent"]
        points = back.points()
    early = [size for at_s, size in seen if at_s < ENDS_S]
    late = [size for at_s, size in seen if at_s >= WATCHED_S - ENDS_S]
    assert points > 5000
    assert (median(late) - median(early)) / MB <= MOST_MB
