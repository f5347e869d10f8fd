"""Who uses a GPU: processes in their containers and pods, MIG instances, time-slicing."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.collectors.base import CollectorContext
from agent.collectors.gpu import GpuCollector
from agent.gpu.settings import OFF, GpuSettings, GpuUsers
from agent.host.paths import HostPaths
from agent.telemetry.model import Sample
from kernels.fakenvml import build, h100, scenarios
from kernels.fakenvml.scenario import Process, Scenario
from tests.unit.agent.gpu.conftest import Stage, collect

GPU = h100.gpu_uuid(0)
GIB = 1 << 30
POD = "8f3c2d1e-1111-2222-3333-444455556666"
CONTAINER = "ab" * 32


def host(root: Path, places: dict[int, str]) -> HostPaths:
    """Return a host with a v2 tree and processes in these cgroups."""
    proc = root / "proc"
    for pid, cgroup in places.items():
        folder = proc / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stat").write_text(
            f"{pid} (python3) S 1 {' '.join(str(n) for n in range(5, 30))}\n"
        )
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
    (proc / "1").mkdir(parents=True, exist_ok=True)
    (proc / "1" / "mountinfo").write_text("25 1 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    (root / "cgroup").mkdir(exist_ok=True)
    return HostPaths(proc, root / "cgroup")


def pod_cgroup(number: int) -> str:
    """Return the path of a container in a pod, as containerd's systemd driver makes it."""
    uid = POD.replace("-", "_")[:-1] + str(number)
    return (
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice"
        f"/cri-containerd-{CONTAINER[:-1]}{number}.scope"
    )


def on_one_gpu(*processes: Process) -> Scenario:
    """Return one H100 with these processes."""
    scenario = scenarios.healthy(1)
    return scenario.with_gpu(0, replace(scenario.gpus[0], processes=processes))


def of_processes(samples: list[Sample], metric: str = "memory") -> dict[object, Sample]:
    """Return the samples of a process metric by process id."""
    name = f"tailcause.gpu.process.{metric}"
    return {s.attributes["process.pid"]: s for s in samples if s.metric == name}


def test_process_joined_to_its_pod(stage: Stage, tmp_path: Path) -> None:
    """Memory and SM time of a process carry the cgroup, container and pod that it lives in."""
    stage.play(on_one_gpu(Process(700, 8 * GIB, use=(60, 30, 0, 0))))
    found = collect(stage.collector(paths=host(tmp_path, {700: pod_cgroup(1)}))).samples
    expected = {
        "hw.id": GPU,
        "hw.name": "nvidia0",
        "process.pid": 700,
        "tailcause.cgroup.path": pod_cgroup(1),
        "container.id": CONTAINER[:-1] + "1",
        "k8s.pod.uid": POD[:-1] + "1",
    }
    memory, busy = of_processes(found)[700], of_processes(found, "utilization")[700]
    assert (memory.value, memory.attributes) == (8 * GIB, expected)
    assert (busy.value, busy.attributes) == (0.6, expected)


def test_time_slicing_is_several_pods_on_one_gpu(stage: Stage, tmp_path: Path) -> None:
    """Each pod that shares a GPU has its part of it."""
    stage.play(scenarios.time_sliced(3))
    paths = host(tmp_path, {6000 + n: pod_cgroup(n) for n in range(3)})
    found = of_processes(collect(stage.collector(paths=paths)).samples)
    assert {s.attributes["k8s.pod.uid"] for s in found.values()} == {
        POD[:-1] + str(n) for n in range(3)
    }
    assert {s.value for s in found.values()} == {8 * GIB}


def test_process_of_another_procfs_keeps_its_id(stage: Stage, tmp_path: Path) -> None:
    """A process that this host's procfs does not show is told by its id alone."""
    stage.play(on_one_gpu(Process(701, GIB)))
    (sample,) = of_processes(collect(stage.collector(paths=host(tmp_path, {}))).samples).values()
    assert set(sample.attributes) == {"hw.id", "hw.name", "process.pid"}


def test_reused_id_is_looked_up_afresh(stage: Stage, tmp_path: Path) -> None:
    """A new process with an old one's id is not taken for it."""
    stage.play(on_one_gpu(Process(702, GIB)))
    gpus = stage.collector(paths=host(tmp_path, {702: pod_cgroup(1)}))
    collect(gpus)
    host(tmp_path, {702: pod_cgroup(2)})
    stat = tmp_path / "proc" / "702" / "stat"
    stat.write_text(stat.read_text().replace(" 21 ", " 99 ").replace(" 22 ", " 98 "))
    (sample,) = of_processes(collect(gpus).samples).values()
    assert sample.attributes["container.id"] == CONTAINER[:-1] + "2"


def test_memory_that_is_not_told_is_missing(stage: Stage) -> None:
    """Where the driver does not tell a process's memory there is no sample, and no 0."""
    stage.play(on_one_gpu(Process(703, None, use=(20, 10, 0, 0))))
    found = collect(stage.collector()).samples
    assert of_processes(found) == {}
    assert of_processes(found, "utilization")[703].value == 0.2


def test_users_are_handed_on(stage: Stage) -> None:
    """Who uses a GPU is known to the rest of the agent after a collection."""
    users = GpuUsers()
    stage.play(on_one_gpu(Process(704, GIB), Process(705, GIB, kind="graphics")))
    settings = GpuSettings(str(build.library()), OFF, 30.0)
    gpus = GpuCollector(CollectorContext(gpu=settings, gpu_users=users))
    stage.collectors.append(gpus)
    collect(gpus)
    assert sorted(users()) == [704, 705]


def test_mig_instances(stage: Stage) -> None:
    """Each instance has a series of its own with its GPU as parent; processes belong to instances."""
    stage.play(scenarios.mig(gpus=1))
    found = collect(stage.collector())
    infos = [s.attributes for s in found.samples if s.metric == "tailcause.gpu.info"]
    instances = [a for a in infos if "hw.parent" in a]
    assert [
        (a["hw.id"], a["tailcause.gpu.mig.profile"], a["tailcause.gpu.mig.instance"])
        for a in instances
    ] == [
        (h100.mig_uuid(0, n), profile, str(n + 1))
        for n, profile in enumerate(("3g.40gb", "2g.20gb", "1g.10gb"))
    ]
    assert {a["hw.parent"] for a in instances} == {GPU}
    memory = {
        s.attributes["hw.id"]: s.value for s in found.samples if s.metric == "hw.gpu.memory.usage"
    }
    assert memory[h100.mig_uuid(0, 2)] == 2 * GIB
    users = {s.attributes["hw.id"] for s in of_processes(found.samples).values()}
    assert users == {h100.mig_uuid(0, n) for n in range(3)}
    assert ("hw.gpu.utilization", "general") not in found.of(GPU)


def test_mig_instances_come_and_go(stage: Stage) -> None:
    """A new layout is taken up at the next slow round; what is gone has no series any more."""
    stage.play(scenarios.mig(("3g.40gb", "2g.20gb"), gpus=1))
    gpus = stage.collector()
    collect(gpus)
    stage.play(scenarios.mig(("1g.10gb",), gpus=1))
    rounds = [collect(gpus) for _ in range(10)]
    seen = {s.attributes["hw.id"] for s in rounds[-1].samples if "hw.parent" in s.attributes}
    assert seen == {h100.mig_uuid(0, 0)}


@pytest.mark.parametrize("profile", ["1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"])
def test_profile_names(stage: Stage, profile: str) -> None:
    """The profile's name follows from the instance's slices and memory where the driver does not name it."""
    scenario = scenarios.mig((profile,), gpus=1)
    gpu = scenario.gpus[0]
    (mig,) = gpu.migs
    unnamed = replace(
        mig, values={k: v for k, v in mig.values.items() if k != "name"} | {"name": "NVIDIA H100"}
    )
    stage.play(scenario.with_gpu(0, replace(gpu, migs=(unnamed,))))
    found = collect(stage.collector()).samples
    profiles = {s.attributes.get("tailcause.gpu.mig.profile") for s in found}
    assert profiles == {None, profile}
