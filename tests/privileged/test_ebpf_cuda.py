"""What the cuda probe counts on a stub library, without a GPU: calls, times, and waits for the GPU."""

import time
from pathlib import Path

import pytest

from ebpf.apiprobe import ApiProbe
from ebpf.layout import Wait
from ebpf.probes.cuda import CUDA, Cuda
from ebpf.probes.nccl import NCCL
from ebpf.probes.sched import Sched
from ebpf.probes.span import SpanProbe, SpanWaits
from ebpf.reading import Histogram, Readings
from tests.support.cuda_calls import ASKED, calls, gaps, triangle
from tests.support.cuda_victim import CC, Victim
from tests.support.probe_session import attached, close_to, loosely, needs_probes

pytestmark = [
    pytest.mark.privileged,
    needs_probes,
    pytest.mark.skipif(not CC, reason="needs a C compiler"),
]

WAIT_US = 60_000


def test_a_launch_counts_once_whichever_layers_it_goes_through(victim: Victim) -> None:
    """997 launches through the runtime and 101 through the driver alone are 997 and 101."""
    with attached(Sched(), Cuda(ASKED)) as session:
        assert victim.call("cudaLaunchKernel", 997) == triangle(997)
        victim.call("cuLaunchKernel", 101)
        victim.call("cudaLaunchKernel_ptsz", 31)
        victim.call("cudaMalloc", 13)
        readings = session.read()["cuda"]
    expected = {"cudaLaunchKernel": 997 + 31, "cuLaunchKernel": 101, "cudaMalloc": 13}
    assert calls(readings, victim) == expected
    assert gaps(readings, victim).count == 997 + 101 + 31 - 1


def test_every_trap_is_counted_for_the_cost(victim: Victim) -> None:
    """An entry and a return for each call, for the calls inside of it too."""
    with attached(Sched(), Cuda(ASKED)) as session:
        victim.call("cudaLaunchKernel", 499)
        victim.call("cudaMalloc", 7)
        readings = session.read()["cuda"]
    assert readings.events == 2 * (2 * 499 + 7)


def test_time_in_a_call_and_between_launches(victim: Victim) -> None:
    """The histogram's sum is the time that the calls took; the pause between two launches is a gap."""
    with attached(Sched(), Cuda(ASKED)) as session:
        victim.call("cudaLaunchKernel", 1)
        victim.call("cudaDeviceSynchronize", 3, 20_000)
        took_s = victim.took_s
        victim.call("cudaLaunchKernel", 1)
        readings = session.read()["cuda"]
    (sync,) = [r.value for r in readings.series if r.labels.get("api") == "cudaDeviceSynchronize"]
    assert isinstance(sync, Histogram)
    assert sync.sum_s == close_to(took_s)
    assert gaps(readings, victim).sum_s > sync.sum_s


def test_a_call_ends_with_itself_not_with_the_call_inside_of_it(victim: Victim) -> None:
    """The time after the driver has returned to the runtime belongs to the runtime's call."""
    with attached(Sched(), Cuda(ASKED)) as session:
        victim.call("cudaGraphLaunch", 7, 3_000)
        took_s = victim.took_s
        (found,) = [r.value for r in session.read()["cuda"].series if "api" in r.labels]
    assert isinstance(found, Histogram)
    assert found.count == 7
    assert found.sum_s == close_to(took_s)


@pytest.mark.parametrize(
    "waiting",
    ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"],
)
def test_a_wait_for_the_gpu_is_gpu_sync_asleep_or_spinning(
    victim: Victim, span_library: Path, waiting: str
) -> None:
    """CPU burnt and sleep inside of a sync call both become gpu_sync, and nothing after it does."""
    spans: list[SpanWaits] = []
    span_probe = SpanProbe((span_library,), spans.append)
    victim.load(span_library)
    with attached(Sched(), span_probe, Cuda(ASKED)):
        waited = victim.span(1, waiting, WAIT_US)
        worked = victim.span(2, "cudaMemcpyAsync", 0)
        span_probe.poll()
    (waiting_span, working_span) = [span for span in spans if span.pid == victim.pid]
    gpu_s = waiting_span.waits_s[Wait.GPU_SYNC]
    queued_s = sum(waiting_span.waits_s.get(w, 0.0) for w in (Wait.RUNQUEUE, Wait.THROTTLED))
    assert gpu_s + queued_s == close_to(waited.wall_s)
    assert gpu_s >= waited.cpu_s - loosely(0.001, 0.02)
    assert Wait.GPU_SYNC not in working_span.waits_s
    assert worked.wall_s < waited.wall_s


def test_a_wait_in_progress_when_the_probe_goes_does_not_last_for_ever(
    victim: Victim, span_library: Path
) -> None:
    """After detaching in mid-wait the thread's time is CPU again."""
    spans: list[SpanWaits] = []
    span_probe = SpanProbe((span_library,), spans.append)
    victim.load(span_library)
    with attached(Sched(), span_probe, Cuda(ASKED)) as session:
        victim.begin_span(1, "cuStreamSynchronize", 10 * WAIT_US)
        time.sleep(WAIT_US / 1e6)
        session.detach("cuda")
        victim.end_span()
        spent = victim.span(2, "cuCtxSynchronize", WAIT_US)
        span_probe.poll()
    (_, later) = [span for span in spans if span.pid == victim.pid]
    assert Wait.GPU_SYNC not in later.waits_s
    assert later.waits_s[Wait.CPU] == pytest.approx(
        spent.cpu_s, rel=0.25
    )  # a spin, whoever else runs


def test_what_was_counted_for_a_cgroup_that_is_gone_is_cleared(victim: Victim) -> None:
    """Its slot may be another cgroup's next."""
    cuda = Cuda(ASKED)
    with attached(Sched(), cuda) as session:
        victim.call("cudaMalloc", 3)
        assert calls(session.read()["cuda"], victim) == {"cudaMalloc": 3}
        cuda.forget(frozenset(range(1024)))
        assert calls(session.read()["cuda"], victim) == {}


def test_the_tables_fit_the_cookie() -> None:
    """An API's number has eight bits, and no two have one name."""
    for api_set in (CUDA, NCCL):
        assert len(api_set.apis) < 256
        assert len({api.name for api in api_set.apis}) == len(api_set.apis)


def test_reading_a_probe_that_is_not_attached_is_empty() -> None:
    """No series, and no false zero."""
    probe: ApiProbe = Cuda(ASKED)
    assert probe.read() == Readings()
