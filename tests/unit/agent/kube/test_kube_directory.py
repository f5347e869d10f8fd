"""The directory finds pods by container, uid, name and device, and forgets in time."""

from agent.kube.directory import Pods, Use
from agent.kube.model import Container, Member, Pod

GPU = "GPU-1"


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def pod(name: str, *containers: str, phase: str = "Running", **more: str) -> Pod:
    """Return a pod whose containers have ids like their names."""
    found = tuple(Container(one, f"id-{name}-{one}") for one in containers)
    return Pod(f"uid-{name}", name, "ns", phase=phase, containers=found, **more)  # type: ignore[arg-type]


def use(name: str, container: str = "server", how: str = "allocated") -> Use:
    """Return a use of a device."""
    return Use("ns", name, container, f"uid-{name}", how)


def test_lookups() -> None:
    """A container is found by its id, a pod by its uid, its manifest's hash, or its name."""
    pods = Pods()
    assert pods.empty
    one = pod("a", "server", "sidecar", config_hash="f00")
    pods.update([one, pod("b", "server")])
    assert pods.member("id-a-sidecar") == Member(one, one.containers[1])
    assert pods.member(pod_uid="uid-a") == pods.member(pod_uid="f00") == Member(one)
    assert pods.member("unknown", "uid-a") == Member(one)
    assert pods.member() is pods.member("unknown") is pods.member(pod_uid="") is None
    assert pods.named("ns", "a") is one
    assert pods.named("other", "a") is None
    assert [found.name for found in pods.pods] == ["a", "b"]


def test_deleted_pod_lingers() -> None:
    """A pod that is gone is known for two minutes more, and is no longer listed."""
    clock = Clock()
    pods = Pods(monotonic_s=clock)
    one = pod("a", "server")
    pods.update([one])
    pods.update([])
    assert pods.member("id-a-server") == Member(one, one.containers[0])
    assert pods.member(pod_uid="uid-a") == Member(one)
    assert (list(pods.pods), pods.named("ns", "a")) == ([], None)
    clock.now_s += 121
    assert pods.member("id-a-server") is pods.member(pod_uid="uid-a") is None


def test_restarted_container_lingers() -> None:
    """The spans of a container's last run find it after its restart."""
    pods = Pods()
    before = Pod("uid", "a", "ns", containers=(Container("server", "old"),))
    after = Pod("uid", "a", "ns", containers=(Container("server", "new"),))
    pods.update([before])
    pods.update([after])
    assert pods.member("old") == Member(before, before.containers[0])
    assert pods.member("new") == Member(after, after.containers[0])


def test_what_departed_is_bounded() -> None:
    """Pods that come and go by the thousand leave no more than a bound behind."""
    pods = Pods()
    for batch in range(20):
        pods.update([pod(f"{batch}-{i}", "server") for i in range(500)])
    assert len(pods._departed) <= 4096
    assert pods.member("id-18-499-server")


def test_departed_entries_are_swept() -> None:
    """What has lingered for long enough is dropped at the next update."""
    clock = Clock()
    pods = Pods(monotonic_s=clock)
    pods.update([pod("a", "server")])
    pods.update([])
    clock.now_s += 500
    pods.update([])
    assert pods._departed == {}


def test_users_of_a_shared_gpu() -> None:
    """Under time-slicing every container that uses the GPU is told, the kubelet's word first."""
    pods = Pods()
    pods.update([pod("a", "server"), pod("b", "server")])
    pods.assign("open", {GPU: (use("b", how="open"), use("a", how="open"))})
    pods.assign("allocated", {GPU: (use("a"),)})
    assert [(one.pod, one.how) for one in pods.users(GPU)] == [("a", "allocated"), ("b", "open")]
    assert pods.devices() == (GPU,)
    assert pods.users("GPU-2") == ()


def test_processes_of_containers_use_devices() -> None:
    """What is seen of processes counts for their containers, once each; others' processes for nobody."""
    pods = Pods()
    pods.update([pod("a", "server")])
    seen = [("MIG-1", "id-a-server", ""), ("MIG-1", "id-a-server", ""), ("MIG-2", "", "uid-a")]
    pods.observe("nvml", [*seen, ("MIG-1", "unknown", ""), ("MIG-3", "", "")])
    assert pods.users("MIG-1") == (use("a", how="nvml"),)
    assert pods.users("MIG-2") == (use("a", container="", how="nvml"),)
    assert pods.devices() == ("MIG-1", "MIG-2")


def test_finished_pod_uses_nothing() -> None:
    """Some kubelets list the devices of pods that have finished."""
    pods = Pods()
    pods.update([pod("a", "server", phase="Succeeded"), pod("b", "server")])
    pods.assign("allocated", {GPU: (use("a"), use("b")), "GPU-2": (use("a"),)})
    assert [one.pod for one in pods.users(GPU)] == ["b"]
    assert pods.devices() == (GPU,)


def test_old_assignment_is_forgotten() -> None:
    """Without news for a minute a GPU has no known user: it may be another's by now."""
    clock = Clock()
    pods = Pods(monotonic_s=clock)
    pods.assign("allocated", {GPU: (use("a"),)})
    clock.now_s += 59
    assert pods.users(GPU)
    clock.now_s += 2
    assert (pods.users(GPU), pods.devices()) == ((), ())


def test_devices_of_a_container() -> None:
    """A container has its own devices, a pod those of all its containers."""
    pods = Pods()
    one = pod("a", "server", "draft")
    pods.update([one])
    pods.assign("allocated", {GPU: (use("a"),), "GPU-2": (use("a", "draft"),)})
    assert pods.devices_of(Member(one, one.containers[0])) == (GPU,)
    assert pods.devices_of(Member(one, one.containers[1])) == ("GPU-2",)
    assert pods.devices_of(Member(one)) == (GPU, "GPU-2")


def test_answers_and_ages() -> None:
    """Only a good answer makes a source young again; every answer is counted."""
    clock = Clock()
    pods = Pods(monotonic_s=clock)
    pods.note("kubelet", "ok")
    clock.now_s += 30
    pods.note("kubelet", "hung")
    assert pods.ages_s() == {"kubelet": 30.0}
    assert dict(pods.answers) == {("kubelet", "ok"): 1, ("kubelet", "hung"): 1}
