"""The nccl probe on a stub library: series by process."""

from pathlib import Path

import pytest

from ebpf.probes.nccl import Nccl
from ebpf.probes.sched import Sched
from ebpf.reading import Histogram
from tests.support.cuda_calls import ASKED
from tests.support.cuda_victim import CC, Victim, build_library
from tests.support.probe_session import attached, close_to, needs_probes

pytestmark = [
    pytest.mark.privileged,
    needs_probes,
    pytest.mark.skipif(not CC, reason="needs a C compiler"),
]


def test_collectives_are_told_apart_by_process(victim_program: Path, tmp_path: Path) -> None:
    """Two ranks in one cgroup have a series each; the slower one shows."""
    functions = {"ncclAllReduce": "SPINNING", "ncclGroupEnd": "PLAIN"}
    library = build_library(tmp_path, "libnccl.so.2", functions)
    with Victim(victim_program) as fast, Victim(victim_program) as slow:
        fast.load(library)
        slow.load(library)
        with attached(Sched(), Nccl(ASKED)) as session:
            fast.call("ncclAllReduce", 11, 100)
            slow.call("ncclAllReduce", 13, 3_000)
            took_s = slow.took_s
            slow.call("ncclGroupEnd", 5)
            series = session.read()["nccl"].series
    found = {(r.labels["pid"], r.labels["api"]): r.value for r in series}
    counts = {key: value.count for key, value in found.items() if isinstance(value, Histogram)}
    assert counts == {
        (str(fast.pid), "ncclAllReduce"): 11,
        (str(slow.pid), "ncclAllReduce"): 13,
        (str(slow.pid), "ncclGroupEnd"): 5,
    }
    slowest = found[str(slow.pid), "ncclAllReduce"]
    assert isinstance(slowest, Histogram)
    assert slowest.sum_s == close_to(took_s)


def test_a_process_that_has_ended_is_read_once_more_and_then_dropped(
    victim_program: Path, tmp_path: Path
) -> None:
    """Its last numbers are not lost, and series do not pile up."""
    library = build_library(tmp_path, "libnccl.so.2", {"ncclAllReduce": "PLAIN"})
    with attached(Sched(), Nccl(ASKED)) as session:
        with Victim(victim_program) as victim:
            victim.load(library)
            session.detach("nccl")
            session.attach("nccl")
            victim.call("ncclAllReduce", 3)
            assert len(session.read()["nccl"].series) == 1
            victim.call("ncclAllReduce", 2)
        (last,) = session.read()["nccl"].series
        assert isinstance(last.value, Histogram)
        assert last.value.count == 5
        assert session.read()["nccl"].series == ()
