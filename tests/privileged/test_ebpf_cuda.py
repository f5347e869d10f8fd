"""The cuda and nccl probes on a stub library and on NVIDIA's own, without a GPU."""

import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpf.apiprobe import ApiOptions, ApiProbe
from ebpf.layout import Wait
from ebpf.probes.cuda import CUDA, Cuda
from ebpf.probes.nccl import NCCL, Nccl
from ebpf.probes.sched import Sched
from ebpf.probes.span import SpanProbe, SpanWaits
from ebpf.reading import Histogram, Readings
from ebpf.session import BUILT, Session, State
from ebpf.trapcost import calibrate
from tests.support.cuda_victim import (
    CC,
    Victim,
    build_library,
    build_victim,
    victim_in_cgroup,
)
from tests.support.probe_session import attached, bpf_files, close_to, loosely, needs_probes

pytestmark = [
    pytest.mark.privileged,
    needs_probes,
    pytest.mark.skipif(not CC, reason="needs a C compiler"),
]

ASKED = ApiOptions(enabled=True, search_every_s=3600.0)
WAIT_US = 60_000
DRIVER = {
    "cuLaunchKernel": "PLAIN",
    "cuStreamSynchronize": "BLOCKING",
    "cuCtxSynchronize": "SPINNING",
}
RUNTIME = {
    "cudaLaunchKernel": "cuLaunchKernel",
    "cudaLaunchKernel_ptsz": "cuLaunchKernel",
    "cudaStreamSynchronize": "cuStreamSynchronize",
    "cudaDeviceSynchronize": "cuCtxSynchronize",
    "cudaGraphLaunch": "cuLaunchKernel+",
    "cudaMemcpyAsync": "PLAIN",
    "cudaMalloc": "PLAIN",
}
WHEELS = {
    "nvidia-cuda-runtime-cu12": "nvidia/cuda_runtime/lib/libcudart.so.12",
    "nvidia-cuda-runtime": "nvidia/cu13/lib/libcudart.so.13",
}


@pytest.fixture(scope="module")
def victim_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the program that calls what it is told to."""
    return build_victim(tmp_path_factory.mktemp("victim"))


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a stub of the runtime that calls a stub of the driver."""
    folder = tmp_path_factory.mktemp("cuda")
    driver = build_library(folder, "libcuda.so.1", DRIVER)
    return build_library(folder, "libcudart.so.12", RUNTIME, driver)


@pytest.fixture
def victim(victim_program: Path, runtime: Path) -> Iterator[Victim]:
    """Start a process in a cgroup of its own that has loaded both."""
    with victim_in_cgroup(victim_program, runtime.with_name("libcuda.so.1"), runtime) as started:
        yield started


@pytest.fixture
def span_library(tmp_path: Path) -> Path:
    """Copy the span library: nobody else's spans go through this one."""
    return Path(shutil.copy(BUILT / "libtailcause_span.so", tmp_path))


def calls(readings: Readings, victim: Victim) -> dict[str, int]:
    """Count the calls by API in the victim's cgroup."""
    found = {}
    for reading in readings.series:
        if "api" in reading.labels and reading.labels["cgroup"] == victim.cgroup:
            assert isinstance(reading.value, Histogram)
            found[reading.labels["api"]] = reading.value.count
    return found


def gaps(readings: Readings, victim: Victim) -> Histogram:
    """Return the histogram of gaps between launches."""
    (found,) = [
        reading.value
        for reading in readings.series
        if reading.metric == "gpu.launch.gap" and reading.labels["cgroup"] == victim.cgroup
    ]
    assert isinstance(found, Histogram)
    return found


def triangle(count: int) -> int:
    """Return what `count` calls of a stub's function add up to."""
    return count * (count + 1) // 2


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
    assert later.waits_s[Wait.CPU] == close_to(spent.cpu_s)


def test_a_runtime_inside_of_the_executable_is_found(tmp_path: Path) -> None:
    """Statically linked functions are timed through the executable."""
    program = build_victim(tmp_path, {"cudaLaunchKernel": "PLAIN", "cudaMalloc": "PLAIN"})
    cuda = Cuda(ASKED)
    with victim_in_cgroup(program) as victim, attached(Sched(), cuda) as session:
        assert victim.call("cudaLaunchKernel", 211) == triangle(211)
        assert [carrier.path for carrier in cuda.carriers] == [str(program)]
        assert calls(session.read()["cuda"], victim) == {"cudaLaunchKernel": 211}


def test_a_library_loaded_later_is_found_and_one_that_is_gone_let_go(
    victim_program: Path, runtime: Path
) -> None:
    """A search after dlopen attaches; one after the last process has ended detaches."""
    cuda = Cuda(ASKED)
    with attached(Sched(), cuda) as session:
        with victim_in_cgroup(victim_program) as victim:
            assert cuda.carriers == []
            victim.load(runtime.with_name("libcuda.so.1"))
            cuda.search(5.0)
            victim.call("cuLaunchKernel", 23)
            assert calls(session.read()["cuda"], victim) == {"cuLaunchKernel": 23}
        cuda.search(5.0)
        assert cuda.carriers == []


def test_a_library_that_only_its_process_can_see_is_found(
    victim_program: Path, runtime: Path, tmp_path: Path
) -> None:
    """A file in another mount namespace, under a path that is something else in ours."""
    hidden = tmp_path / "private"
    hidden.mkdir()
    (hidden / "libcuda.so.1").write_text("not this one")
    driver = runtime.with_name("libcuda.so.1")
    script = f"mount -t tmpfs none {hidden} && cp {driver} {hidden}/ && exec {victim_program}"
    cuda = Cuda(ASKED)
    under = ("unshare", "--mount", "sh", "-c", f"{script} #")
    library = hidden / "libcuda.so.1"
    with (
        victim_in_cgroup(victim_program, library, under=under) as victim,
        attached(Sched(), cuda) as session,
    ):
        victim.call("cuLaunchKernel", 41)
        assert calls(session.read()["cuda"], victim) == {"cuLaunchKernel": 41}


def test_a_function_that_would_be_single_stepped_is_refused(
    victim_program: Path, tmp_path: Path
) -> None:
    """It is named with the reason and not attached; one behind endbr64 is attached where it is cheap."""
    functions = {
        "cuLaunchKernel": "PLAIN",
        "cuGraphLaunch": "GUARDED",
        "cuCtxSynchronize": "STEPPED",
    }
    library = build_library(tmp_path, "libcuda.so.1", functions)
    cuda = Cuda(ASKED)
    with victim_in_cgroup(victim_program, library) as victim, attached(Sched(), cuda) as session:
        victim.call("cuGraphLaunch", 17)
        victim.call("cuCtxSynchronize", 19)
        readings = session.read()["cuda"]
        refused = [(refusal.function, refusal.attached) for refusal in cuda.refusals]
    assert refused == [("cuCtxSynchronize", False)]
    assert calls(readings, victim) == {"cuGraphLaunch": 17}
    assert readings.dropped["functions_refused"] == 1


def test_a_function_that_is_single_stepped_is_attached_when_allowed(
    victim_program: Path, tmp_path: Path
) -> None:
    """It is counted rightly, its results are right, and what it costs is counted as stepped."""
    functions = {"cuLaunchKernel": "PLAIN", "cuCtxSynchronize": "STEPPED"}
    library = build_library(tmp_path, "libcuda.so.1", functions)
    cuda = Cuda(ApiOptions(enabled=True, allow_slow=True, search_every_s=3600.0))
    with victim_in_cgroup(victim_program, library) as victim, attached(Sched(), cuda) as session:
        assert victim.call("cuCtxSynchronize", 19) == 19
        readings = session.read()["cuda"]
        cost = calibrate()
        assert cuda.imposed_s(cost) == pytest.approx(19 * (cost.stepped_ns + cost.return_ns) / 1e9)
        assert [refusal.attached for refusal in cuda.refusals] == [True]
    assert calls(readings, victim) == {"cuCtxSynchronize": 19}


def test_kernels_without_many_uprobes_a_link_count_the_same(
    victim_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 6.6 each place has a link of its own."""
    monkeypatch.setattr("ebpf.session.kernel_release", lambda: (5, 19))
    library = build_library(
        tmp_path, "libcuda.so.1", {"cuLaunchKernel": "PLAIN", "cuMemAlloc_v2": "PLAIN"}
    )
    before = bpf_files()
    with victim_in_cgroup(victim_program, library) as victim:
        with attached(Sched(), Cuda(ASKED)) as session:
            victim.call("cuLaunchKernel", 103)
            victim.call("cuMemAlloc_v2", 107)
            found = calls(session.read()["cuda"], victim)
        assert victim.call("cuMemAlloc_v2", 1) == 108
    assert found == {"cuLaunchKernel": 103, "cuMemAlloc_v2": 107}
    assert bpf_files() == before


def test_detaching_a_hundred_uprobes_takes_less_than_a_second(
    victim_program: Path, tmp_path: Path
) -> None:
    """The victim calls all the while; afterwards its results are right and it ends well."""
    functions = {a.name: "PLAIN" for a in CUDA.apis} | {
        a.name + "_ptsz": "PLAIN" for a in CUDA.apis
    }
    library = build_library(tmp_path, "libcudart.so.12", functions)
    cuda = Cuda(ASKED)
    with Victim(victim_program) as victim:
        victim.load(library)
        with attached(Sched(), cuda) as session:
            assert 2 * sum(len(c.functions) for c in cuda.carriers) >= 100
            victim.start("cudaLaunchKernel")
            time.sleep(0.1)
            started = time.monotonic()
            session.detach("cuda")
            took_s = time.monotonic() - started
        count, total = victim.stop()
        assert total == triangle(count)
        assert victim.call("cudaMalloc", 101) == triangle(101)
        assert victim.finish() == 0
    assert took_s < loosely(1.0, 40.0)


def test_a_killed_agent_leaves_the_victim_unharmed(victim: Victim) -> None:
    """When the process that attached is killed outright, calls go on and are right."""
    script = (
        "import time; from ebpf.apiprobe import ApiOptions; from ebpf.probes.cuda import Cuda;"
        "from ebpf.probes.sched import Sched; from ebpf.session import Session;"
        "s = Session([Sched(), Cuda(ApiOptions(enabled=True))]); s.start();"
        "print(s.slots['cuda'].state, flush=True); time.sleep(60)"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        (sys.executable, "-c", script), stdout=subprocess.PIPE, text=True, cwd=root
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "on\n"
        victim.start("cudaLaunchKernel")
        time.sleep(0.05)
        agent.kill()
    count, total = victim.stop()
    assert total == triangle(count)


def test_attaching_and_detaching_again_leaves_nothing_behind(victim: Victim) -> None:
    """Twice over, the descriptors of this process are what they were."""
    before = bpf_files()
    for _ in range(2):
        with attached(Sched(), Cuda(ASKED)) as session:
            victim.call("cudaMalloc", 3)
            assert calls(session.read()["cuda"], victim) == {"cudaMalloc": 3}
    assert bpf_files() == before


def test_without_being_asked_the_probe_stays_off() -> None:
    """Uprobes in other people's processes are opt-in, and the state says so."""
    session = Session([Sched(), Cuda(), Nccl()])
    session.start()
    try:
        slots = [session.slots[name] for name in ("cuda", "nccl")]
        assert [slot.state for slot in slots] == [State.OFF, State.OFF]
        assert all("must be asked for" in slot.reason for slot in slots)
    finally:
        session.stop()


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


def test_what_was_counted_for_a_cgroup_that_is_gone_is_cleared(victim: Victim) -> None:
    """Its slot may be another cgroup's next."""
    cuda = Cuda(ASKED)
    with attached(Sched(), cuda) as session:
        victim.call("cudaMalloc", 3)
        assert calls(session.read()["cuda"], victim) == {"cudaMalloc": 3}
        cuda.forget(frozenset(range(1024)))
        assert calls(session.read()["cuda"], victim) == {}


def test_what_a_trap_costs_is_measured_and_nothing_left() -> None:
    """A single-stepped instruction costs several times what an emulated one does."""
    before = bpf_files()
    cost = calibrate()
    assert 0 < cost.nop_ns < cost.stepped_ns
    assert 0 < cost.push_ns < cost.stepped_ns / 2
    assert cost.return_ns > 0
    assert bpf_files() == before


def real_runtime(folder: Path) -> Path:
    """Return NVIDIA's runtime from its wheel, from the cache where it is there."""
    cache = Path(os.environ.get("TAILCAUSE_CACHE") or Path.home() / ".cache/tailcause") / "wheels"
    for package, inside in WHEELS.items():
        pattern = package.replace("-", "_") + "-[0-9]*.whl"
        if not list(cache.glob(pattern)):
            cache.mkdir(parents=True, exist_ok=True)
            command = (
                sys.executable,
                "-m",
                "pip",
                "download",
                "-q",
                "--no-deps",
                "-d",
                cache,
                package,
            )
            subprocess.run(command, capture_output=True, timeout=120, check=False)
        for wheel in cache.glob(pattern):
            with zipfile.ZipFile(wheel) as archive:
                return Path(archive.extract(inside, folder))
    pytest.skip("needs the wheel nvidia-cuda-runtime-cu12 (a package index, or $TAILCAUSE_CACHE)")


def test_nvidias_own_runtime(victim_program: Path, tmp_path: Path) -> None:
    """Without a GPU its functions return errors, and each call is counted; none needs to be single-stepped."""
    library = real_runtime(tmp_path)
    cuda = Cuda(ASKED)
    expected = {
        "cudaLaunchKernel": 1009,
        "cudaMalloc": 997,
        "cudaDeviceSynchronize": 13,
        "cudaMemcpyAsync": 101,
    }
    with victim_in_cgroup(victim_program, library) as victim, attached(Sched(), cuda) as session:
        results = [victim.call(name, count) for name, count in expected.items()]
        readings = session.read()["cuda"]
        assert cuda.refusals == []
        again = [victim.call(name, count) for name, count in expected.items()]
    assert calls(readings, victim) == expected
    assert again == results


def test_a_file_in_two_overlays_is_not_counted_twice(
    victim_program: Path, runtime: Path, tmp_path: Path
) -> None:
    """Two containers of one image map the same file under two devices."""
    lower = tmp_path / "lower"
    lower.mkdir()
    shutil.copy(runtime.with_name("libcuda.so.1"), lower)
    merged = [_overlay(tmp_path, lower, number) for number in range(2)]
    try:
        one_file, other_file = (root / "libcuda.so.1" for root in merged)
        cuda = Cuda(ASKED)
        with victim_in_cgroup(victim_program, one_file) as one, Victim(victim_program) as other:
            other.load(other_file)
            with attached(Sched(), cuda) as session:
                assert len(cuda.carriers) in {1, 2}  # old kernels map the file below the overlay
                one.call("cuLaunchKernel", 1013)
                assert calls(session.read()["cuda"], one) == {"cuLaunchKernel": 1013}
    finally:
        for root in merged:
            subprocess.run(("umount", root), check=True)


def _overlay(folder: Path, lower: Path, number: int) -> Path:
    parts = {name: folder / f"{name}{number}" for name in ("upper", "work", "merged")}
    for part in parts.values():
        part.mkdir()
    options = f"lowerdir={lower},upperdir={parts['upper']},workdir={parts['work']}"
    command = ("mount", "-t", "overlay", "overlay", "-o", options, parts["merged"])
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs overlayfs")
    return parts["merged"]


def test_the_tables_fit_the_cookie() -> None:
    """An API's number has eight bits, and no two have one name."""
    for api_set in (CUDA, NCCL):
        assert len(api_set.apis) < 256
        assert len({api.name for api in api_set.apis}) == len(api_set.apis)


def test_reading_a_probe_that_is_not_attached_is_empty() -> None:
    """No series, and no false zero."""
    probe: ApiProbe = Cuda(ASKED)
    assert probe.read() == Readings()
