"""The collector `kube` tells pods, or what is missing, from a kubelet that speaks HTTPS and gRPC."""

import gc
import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.collectors.base import CollectorContext, NoData
from agent.collectors.kube import KubeCollector
from agent.collectors.watch import Watch
from agent.host.paths import HostPaths
from agent.kube.directory import Pods
from agent.kube.own import OwnSamples
from agent.kube.podlist import read_pods
from agent.kube.settings import KubeletAccess, KubeSettings
from agent.telemetry.model import Sample, SignalState
from agent.telemetry.names import BY_NAME
from tests.support import kubelet as http_double
from tests.support import kubelet_devices as grpc_double
from tests.support.kubelet import TOKEN, Behaviour
from tests.support.kubelet_devices import Service, container, devices, pod_resources
from tests.support.kubelet_pods import container_id, pod, uid
from tests.support.nvidia_procfs import machine, process

GPU = "GPU-00000000-0000-0000-0000-000000000000"
SHARED = "GPU-11111111-1111-1111-1111-111111111111"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a certificate and a token."""
    path = tmp_path_factory.mktemp("kubelet")
    (path / "token").write_text(TOKEN)
    return path


@pytest.fixture
def kubelet(folder: Path) -> Iterator[http_double.Kubelet]:
    """Return a kubelet with two pods."""
    with http_double.serving(folder, Behaviour([pod("vllm-a"), pod("vllm-b")])) as running:
        yield running


def context(running: http_double.Kubelet, root: Path, **changes: object) -> CollectorContext:
    """Return the context of a collector that asks this kubelet each time, with a socket in root."""
    access = KubeletAccess(running.url, str(running.ca_file.parent / "token"), str(running.ca_file))
    settings = KubeSettings(access, str(root / "kubelet.sock"), poll_s=0.0, deadline_s=40.0)
    (root / "proc").mkdir(exist_ok=True)
    paths = HostPaths(root / "proc", root / "cgroup")
    return CollectorContext(paths, kube=replace(settings, **changes))  # type: ignore[arg-type]


def half(collector: KubeCollector) -> NoData:
    """Return what is told when not every source answers."""
    with pytest.raises(NoData) as caught:
        collector.collect()
    return caught.value


def values(
    samples: list[Sample] | tuple[Sample, ...], metric: str, *keys: str
) -> dict[object, float]:
    """Return the values of a metric by these attributes; they must fit the catalogue."""
    found: dict[object, float] = {}
    for sample in samples:
        assert set(sample.attributes) <= set(BY_NAME[sample.metric].attributes)
        if sample.metric == metric:
            found[tuple(sample.attributes.get(key) for key in keys)] = sample.value
    return found


def test_not_configured_is_disabled() -> None:
    """Without a kubelet the signal is off, and says how to switch it on."""
    told = half(KubeCollector(CollectorContext()))
    assert (told.state, told.samples) == (SignalState.DISABLED, ())
    assert "--kubelet" in told.remedy


def test_pods_and_devices(kubelet: http_double.Kubelet, tmp_path: Path) -> None:
    """Both sources together give phase, readiness, restarts, bounds and who has which GPU."""
    collector = KubeCollector(context(kubelet, tmp_path))
    gpu = container("server", [devices("nvidia.com/gpu", [GPU])])
    slices = [
        pod_resources(name, [container("server", [devices("nvidia.com/gpu", [f"{SHARED}::{n}"])])])
        for n, name in enumerate(("vllm-a", "vllm-b"))
    ]
    service = Service(
        [pod_resources("vllm-a", [gpu]), *slices], [devices("nvidia.com/gpu", [GPU, SHARED])]
    )
    with grpc_double.serving(tmp_path / "kubelet.sock", service):
        samples = collector.collect()
    name, box = "k8s.pod.name", "k8s.container.name"
    assert values(samples, "k8s.pod.status.phase", name, "k8s.pod.status.phase") == {
        ("vllm-a", "Running"): 1,
        ("vllm-b", "Running"): 1,
    }
    assert values(samples, "tailcause.k8s.pod.ready", name)["vllm-a",] == 1
    restarts = values(samples, "k8s.container.restart.count", name, box)
    assert (restarts["vllm-a", "server"], restarts["vllm-a", "sidecar"]) == (2, 0)
    limits = values(samples, "k8s.container.cpu.limit.desired", name, box)
    assert limits == {("vllm-a", "server"): 4.0, ("vllm-b", "server"): 4.0}
    assert values(samples, "k8s.container.cpu.limit.current", name)["vllm-a",] == 2.0
    assert values(samples, "k8s.container.memory.request.desired", name)["vllm-a",] == 2.0**34
    info = ("tailcause.k8s.pod.info", name, "k8s.deployment.name", "k8s.node.name")
    assert ("vllm-a", "vllm", "node-1") in values(samples, *info)
    assert values(samples, "tailcause.gpu.assignment", "hw.id", name, box, "k8s.pod.uid") == {
        (GPU, "vllm-a", "server", uid("vllm-a")): 1,
        (SHARED, "vllm-a", "server", uid("vllm-a")): 1,
        (SHARED, "vllm-b", "server", uid("vllm-b")): 1,
    }
    counts = values(samples, "tailcause.k8s.device.count", "tailcause.k8s.device.state")
    assert counts == {("allocatable",): 2, ("allocated",): 3}


def test_one_source_is_enough(kubelet: http_double.Kubelet, tmp_path: Path) -> None:
    """Switched off, the socket is not missed."""
    samples = KubeCollector(context(kubelet, tmp_path, pod_resources="off")).collect()
    assert len(values(samples, "k8s.pod.status.phase", "k8s.pod.name")) == 2
    assert values(samples, "tailcause.gpu.assignment") == {}


def test_half_an_answer(kubelet: http_double.Kubelet, tmp_path: Path) -> None:
    """What one source gives is kept while the other fails, and the state says so."""
    whole = context(kubelet, tmp_path)
    collector = KubeCollector(whole)
    gpu = container("server", [devices("nvidia.com/gpu", [GPU])])
    with grpc_double.serving(tmp_path / "kubelet.sock", Service([pod_resources("vllm-a", [gpu])])):
        assert collector.collect()
        kubelet.behaviour.forbidden = True
        told = half(collector)
    assert told.state is SignalState.NO_PERMISSION
    assert "nodes/proxy" in told.remedy
    assert values(told.samples, "k8s.pod.status.phase") == {}
    assert values(told.samples, "tailcause.gpu.assignment", "k8s.pod.name") == {("vllm-a",): 1}
    assert whole.pods.member(container_id("vllm-a")) is not None  # identities do not change


def test_pods_come_and_go(kubelet: http_double.Kubelet, tmp_path: Path) -> None:
    """A deleted pod has no series any more; a finished one has its phase alone."""
    collector = KubeCollector(context(kubelet, tmp_path, pod_resources="off"))
    assert len(values(collector.collect(), "k8s.pod.uptime", "k8s.pod.name")) == 2
    kubelet.behaviour.pods = [pod("vllm-b"), pod("job", phase="Failed")]
    samples = collector.collect()
    assert values(samples, "k8s.pod.uptime", "k8s.pod.name").keys() == {("vllm-b",)}
    phases = values(samples, "k8s.pod.status.phase", "k8s.pod.name", "k8s.pod.status.phase")
    assert phases == {("vllm-b", "Running"): 1, ("job", "Failed"): 1}
    kubelet.behaviour.pods = []
    assert half(collector).state is SignalState.NOT_SUPPORTED


def test_answer_is_kept_until_the_next_is_due(kubelet: http_double.Kubelet, tmp_path: Path) -> None:
    """Between two askings the kubelet is left in peace, and the samples keep their time."""
    collector = KubeCollector(context(kubelet, tmp_path, pod_resources="off", poll_s=3600.0))
    first = collector.collect()
    assert collector.collect() is first
    assert len(kubelet.behaviour.asked) == 1


def test_failure_is_told_until_the_next_is_due(
    kubelet: http_double.Kubelet, tmp_path: Path
) -> None:
    """A refusal is not asked for again every second, and is not forgotten either."""
    kubelet.behaviour.forbidden = True
    whole = context(kubelet, tmp_path, pod_resources="off", poll_s=3600.0)
    collector = KubeCollector(whole)
    assert half(collector).state is half(collector).state is SignalState.NO_PERMISSION
    assert len(kubelet.behaviour.asked) == 1
    assert dict(whole.pods.answers) == {("kubelet", "no_permission"): 1}


async def test_slow_kubelet_is_hung_under_the_watch(
    kubelet: http_double.Kubelet, tmp_path: Path
) -> None:
    """A kubelet that does not answer turns the signal hung, and it recovers by itself."""
    whole = context(kubelet, tmp_path, pod_resources="off", deadline_s=1.0)
    watch = Watch("kube", KubeCollector(whole), deadline_s=60.0)
    kubelet.behaviour.pause_s = 30.0
    assert await watch.collect() == []
    first = watch.status.state
    kubelet.behaviour.pause_s = 0.0
    for _ in range(60):  # each takes half a second at most
        if await watch.collect():
            break
    assert (first, watch.status.state) == (SignalState.HUNG, SignalState.OK)


def test_ages_and_answers_are_exported(kubelet: http_double.Kubelet, tmp_path: Path) -> None:
    """How old each source is and how it answered is there while it fails, too."""
    whole = context(kubelet, tmp_path)
    collector = KubeCollector(whole)
    half(collector)  # there is no socket
    kubelet.behaviour.body = b"garbage"
    told = half(collector)
    assert told.state is SignalState.FAILED
    own = OwnSamples(whole.pods)()
    assert values(own, "tailcause.kube.age", "tailcause.kube.source").keys() == {("kubelet",)}
    assert values(own, "tailcause.kube.answers", "tailcause.kube.source", "outcome") == {
        ("kubelet", "ok"): 1,
        ("kubelet", "failed"): 1,
        ("pod_resources", "not_supported"): 2,
    }


def test_too_many_pods_are_counted(kubelet: http_double.Kubelet, tmp_path: Path) -> None:
    """Of a node with 10 000 pods the bound is taken in, and the rest is counted as dropped."""
    small = {"spec": {}, "status": {"phase": "Running"}}
    kubelet.behaviour.pods = [
        {"metadata": {"name": f"p{i}", "namespace": "x", "uid": f"u{i}"}, **small}
        for i in range(10_000)
    ]
    whole = context(kubelet, tmp_path, pod_resources="off")
    samples = KubeCollector(whole).collect()
    assert len(values(samples, "k8s.pod.status.phase", "k8s.pod.uid")) == 1024
    own = OwnSamples(whole.pods)()
    assert values(own, "tailcause.pipe.dropped", "reason") == {("too_many",): 10_000 - 1024}


def test_gpu_without_a_limit(kubelet: http_double.Kubelet, tmp_path: Path) -> None:
    """A privileged container that just opens a GPU is found by its process."""
    paths = machine(tmp_path, {GPU: 0})
    for pid, name in ((77, "vllm-a"), (78, "vllm-b")):
        process(paths, pid, "/dev/nvidiactl", "/dev/nvidia0" if pid == 77 else "/dev/null")
        path = f"/kubepods/besteffort/pod{uid(name)}/{container_id(name)}"
        (paths.procfs / str(pid) / "cgroup").write_text(f"0::{path}\n")
    process(paths, 79, "/dev/nvidia0")  # of the host, such as a monitor
    (paths.procfs / "79/cgroup").write_text("0::/system.slice/monitor.service\n")
    samples = KubeCollector(context(kubelet, tmp_path, pod_resources="off")).collect()
    keys = ("hw.id", "k8s.pod.name", "k8s.container.name", "tailcause.gpu.known_by")
    assert values(samples, "tailcause.gpu.assignment", *keys) == {
        (GPU, "vllm-a", "server", "open"): 1
    }


def test_cgroups_of_containers_are_found(kubelet: http_double.Kubelet, tmp_path: Path) -> None:
    """A new container's cgroup is known with its first answer; one that was not there yet, within a minute."""
    for name in ("1", "self"):
        (tmp_path / "proc" / name).mkdir(parents=True)
        text = "29 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        (tmp_path / "proc" / name / "mountinfo").write_text(text)
    whole = context(kubelet, tmp_path, pod_resources="off")
    paths = {
        name: f"/kubepods/pod{uid(name)}/{container_id(name)}" for name in ("vllm-a", "vllm-b")
    }
    (tmp_path / f"cgroup{paths['vllm-a']}").mkdir(parents=True)
    collector = KubeCollector(whole)
    collector.collect()
    assert whole.pods.cgroup(container_id("vllm-a")) == paths["vllm-a"]
    assert whole.pods.cgroup(container_id("vllm-b")) == ""
    (tmp_path / f"cgroup{paths['vllm-b']}").mkdir(parents=True)
    for _ in range(6):
        collector.collect()
    assert whole.pods.cgroup(container_id("vllm-b")) == paths["vllm-b"]


def test_memory_of_110_pods() -> None:
    """A full node's pods take less than 2 MB, also while they are read."""
    body = json.dumps({"kind": "PodList", "items": [pod(f"vllm-{i}") for i in range(110)]}).encode()
    pods = Pods()
    gc.collect()
    tracemalloc.start()
    try:
        pods.update(read_pods(body, ("app",)).pods)
        gc.collect()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1 << 20
    assert peak < 2 << 20
