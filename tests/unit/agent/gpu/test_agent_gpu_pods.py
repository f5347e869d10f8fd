"""Processes that the driver lists tell which pods use a GPU, without a word of the kubelet's on devices."""

from pathlib import Path

from agent.collectors.base import CollectorContext
from agent.collectors.gpu import GpuCollector
from agent.gpu.settings import OFF, GpuSettings
from agent.kube.directory import Pods, Use
from agent.kube.label import label
from agent.kube.model import Container, Pod
from kernels.fakenvml import build, scenarios
from tests.unit.agent.gpu.conftest import Stage, collect
from tests.unit.agent.gpu.test_agent_gpu_sharing import CONTAINER, POD, host, pod_cgroup

GPU = scenarios.gpu_uuid(0)


def pod(number: int) -> Pod:
    """Return the pod that lives in a `pod_cgroup`."""
    container = Container("server", f"{CONTAINER[:-1]}{number}")
    return Pod(f"{POD[:-1]}{number}", f"vllm-{number}", "serving", containers=(container,))


def test_pods_that_share_a_gpu(stage: Stage, tmp_path: Path) -> None:
    """Time-slicing and containers without a limit: each pod with a process is a user; its processes bear its name."""
    stage.play(scenarios.time_sliced(2))
    paths = host(tmp_path, {6000 + n: pod_cgroup(n) for n in range(2)})
    pods = Pods()
    pods.update([pod(0), pod(1)])
    gpu = GpuSettings(str(build.library()), OFF, 30.0)
    collector = GpuCollector(CollectorContext(paths, gpu=gpu, pods=pods))
    stage.collectors.append(collector)
    found = label(collect(collector).samples, pods)
    assert pods.users(GPU) == tuple(
        Use("serving", f"vllm-{n}", "server", f"{POD[:-1]}{n}", "nvml") for n in range(2)
    )
    names = {
        sample.attributes["process.pid"]: sample.attributes["k8s.pod.name"]
        for sample in found
        if sample.metric == "tailcause.gpu.process.memory"
    }
    assert names == {6000: "vllm-0", 6001: "vllm-1"}
    [power] = [sample for sample in found if sample.metric == "hw.power"]
    assert "k8s.pod.name" not in power.attributes


def test_pods_on_mig_instances(stage: Stage, tmp_path: Path) -> None:
    """With MIG each instance has its own pod, and bears its name."""
    stage.play(scenarios.mig(gpus=1))
    paths = host(tmp_path, {5000 + n: pod_cgroup(n) for n in range(3)})
    pods = Pods()
    pods.update([pod(0), pod(1), pod(2)])
    gpu = GpuSettings(str(build.library()), OFF, 30.0)
    collector = GpuCollector(CollectorContext(paths, gpu=gpu, pods=pods))
    stage.collectors.append(collector)
    found = label(collect(collector).samples, pods)
    names = {
        sample.attributes["hw.id"]: sample.attributes.get("k8s.pod.name")
        for sample in found
        if sample.metric == "hw.gpu.memory.usage"
    }
    assert {n: names[scenarios.mig_uuid(0, n)] for n in range(3)} == {
        n: f"vllm-{n}" for n in range(3)
    }
