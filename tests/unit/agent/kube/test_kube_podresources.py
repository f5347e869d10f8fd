"""The pod-resources service is asked over real gRPC, and its answers are read as the API writes them."""

import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from agent.kube.errors import KubeletError
from agent.kube.podresources import Devices, Grant, PodResources, message_classes, physical
from agent.telemetry.model import SignalState
from tests.support import kubelet_devices as double
from tests.support.kubelet_devices import Service, container, devices, pod_resources

GPU = "GPU-11111111-2222-3333-4444-555555555555"
MIG = "MIG-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    """Return where the service's socket lies."""
    return tmp_path / "kubelet.sock"


@pytest.fixture
def asking(socket: Path) -> Iterator[PodResources]:
    """Return who asks at the socket."""
    resources = PodResources(socket, 20.0, 1 << 20)
    yield resources
    resources.close()


def refusal(asking: PodResources) -> KubeletError:
    """Return what is told when there is no answer."""
    with pytest.raises(KubeletError) as caught:
        asking.read()
    return caught.value


def test_grants_of_containers(socket: Path, asking: PodResources) -> None:
    """Devices, NUMA nodes and exclusive CPUs are read from the API's own bytes."""
    server = container("server", [devices("nvidia.com/gpu", [GPU], [1])], [4, 5, 300])
    slices = container("slices", [devices("nvidia.com/gpu.shared", [f"{GPU}::7"])])
    mig = container("mig", [devices("nvidia.com/mig-1g.10gb", [MIG, "MIG-2"], [0, 1])])
    service = Service(
        [pod_resources("a", [server, container("plain")]), pod_resources("b", [slices, mig], "x")],
        [devices("nvidia.com/gpu", [GPU, "GPU-2"], [0])],
    )
    with double.serving(socket, service):
        found = asking.read()
    shared = Devices("nvidia.com/gpu.shared", (f"{GPU}::7",))
    assert found.grants == (
        Grant("serving", "a", "server", (Devices("nvidia.com/gpu", (GPU,), (1,)),), (4, 5, 300)),
        Grant("serving", "a", "plain"),
        Grant("x", "b", "slices", (shared,)),
        Grant("x", "b", "mig", (Devices("nvidia.com/mig-1g.10gb", (MIG, "MIG-2"), (0, 1)),)),
    )
    assert found.allocatable == (Devices("nvidia.com/gpu", (GPU, "GPU-2"), (0,)),)
    assert found.to_give() == {"nvidia.com/gpu": 2}
    assert found.given() == {
        "nvidia.com/gpu": 1,
        "nvidia.com/gpu.shared": 1,
        "nvidia.com/mig-1g.10gb": 2,
    }


@pytest.mark.parametrize("device", [GPU, f"{GPU}::0", f"{GPU}::12"])
def test_time_slices_are_one_gpu(device: str) -> None:
    """The number of a slice is not part of the GPU's id."""
    assert physical(device) == GPU


def test_kubelet_without_allocatable(socket: Path, asking: PodResources) -> None:
    """An old kubelet's grants are read all the same; what there is to give is unknown."""
    with double.serving(socket, Service([pod_resources("a", [container("server")])])):
        found = asking.read()
    assert (len(found.grants), found.allocatable, found.to_give()) == (1, None, {})


def test_missing_socket(socket: Path, asking: PodResources) -> None:
    """A socket that is not there is not supported here, and is named."""
    told = refusal(asking)
    assert told.outcome is SignalState.NOT_SUPPORTED
    assert str(socket) in told.reason
    socket.write_text("no socket")
    assert refusal(asking).outcome is SignalState.NOT_SUPPORTED


def test_slow_service(socket: Path) -> None:
    """An answer that does not come in time is hung."""
    asking = PodResources(socket, 0.5, 1 << 20)
    with double.serving(socket, Service(release=threading.Event())):
        told = refusal(asking)
    assert told.outcome is SignalState.HUNG
    asking.close()


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, SignalState.NO_PERMISSION),
        (grpc.StatusCode.UNAUTHENTICATED, SignalState.NO_PERMISSION),
        (grpc.StatusCode.INTERNAL, SignalState.FAILED),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, SignalState.FAILED),
    ],
)
def test_refusals(
    socket: Path, asking: PodResources, code: grpc.StatusCode, state: SignalState
) -> None:
    """A refusal is told by what the caller can do about it."""
    with double.serving(socket, Service(refuse=code)):
        assert refusal(asking).outcome is state


def test_large_answer_is_refused(socket: Path, asking: PodResources) -> None:
    """An answer over the bound fails."""
    many = [pod_resources("x" * 1000, [container("y" * 1000)]) for _ in range(1000)]
    with double.serving(socket, Service(many)):
        told = refusal(asking)
    assert "RESOURCE_EXHAUSTED" in told.reason


def test_garbage_answer(socket: Path, asking: PodResources) -> None:
    """Bytes that are no message fail."""
    with double.serving(socket, Service([b"\xff\xff\xff\xff"])):
        assert refusal(asking).outcome is SignalState.FAILED


def test_socket_that_is_made_anew(socket: Path, asking: PodResources) -> None:
    """A restarted kubelet is answered by its new socket, at once or at the next asking."""
    with double.serving(socket, Service([pod_resources("a", [container("server")])])):
        assert asking.read().grants[0].pod == "a"
    assert refusal(asking).outcome in {SignalState.FAILED, SignalState.NOT_SUPPORTED}
    with double.serving(socket, Service([pod_resources("b", [container("server")])])):
        assert asking.read().grants[0].pod == "b"


def test_restart_between_two_askings(socket: Path, asking: PodResources) -> None:
    """A kubelet that restarted while nobody asked is noticed by the next asking or the one after."""
    with double.serving(socket, Service([pod_resources("a", [container("server")])])):
        asking.read()
    with double.serving(socket, Service([pod_resources("b", [container("server")])])):
        try:
            found = asking.read()
        except KubeletError:
            found = asking.read()
    assert found.grants[0].pod == "b"


def test_messages_are_a_pool_of_their_own() -> None:
    """Building the classes twice, or beside another api.proto, does not clash."""
    first, second = message_classes(), message_classes()
    assert first["PodResources"](name="a").SerializeToString() == b"\x0a\x01a"
    assert second["PodResources"].FromString(b"\x0a\x01a").name == "a"
