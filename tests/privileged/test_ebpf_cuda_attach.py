"""Attaching the cuda probe and letting go: what it costs the victim, what is refused, and that nothing is left."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from ebpf.apiprobe import ApiOptions
from ebpf.probes.cuda import CUDA, Cuda
from ebpf.probes.nccl import Nccl
from ebpf.probes.sched import Sched
from ebpf.session import Session, State
from ebpf.trapcost import calibrate
from tests.support.cuda_calls import ASKED, calls, triangle
from tests.support.cuda_victim import CC, Victim, build_library, victim_in_cgroup
from tests.support.probe_session import attached, bpf_files, loosely, needs_probes

pytestmark = [
    pytest.mark.privileged,
    needs_probes,
    pytest.mark.skipif(not CC, reason="needs a C compiler"),
]


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


def test_what_a_trap_costs_is_measured_and_nothing_left() -> None:
    """A single-stepped instruction costs several times what an emulated one does."""
    before = bpf_files()
    cost = calibrate()
    assert 0 < cost.nop_ns < cost.stepped_ns
    assert 0 < cost.push_ns < cost.stepped_ns / 2
    assert cost.return_ns > 0
    assert bpf_files() == before
