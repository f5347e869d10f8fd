"""The kubelet's pod-resources service: which container was given which devices and CPUs.

Source: k8s.io/kubelet/pkg/apis/podresources/v1/api.proto; fields that we do not read are left out,
as protobuf allows. The classes are built from a description here, so that nothing is generated.
"""

import importlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.kube.errors import KubeletError
from agent.telemetry.model import SignalState

SERVICE = "v1.PodResourcesLister"
_PACKAGE = "v1"
_STRING, _INT64, _MESSAGE = 9, 3, 11  # descriptor.proto, FieldDescriptorProto.Type
_OPTIONAL, _REPEATED = 1, 3

MESSAGES: dict[str, tuple[tuple[str, int, int, str], ...]] = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": (("pod_resources", 1, _REPEATED, "PodResources"),),
    "AllocatableResourcesRequest": (),
    "AllocatableResourcesResponse": (
        ("devices", 1, _REPEATED, "ContainerDevices"),
        ("cpu_ids", 2, _REPEATED, "int64"),
    ),
    "PodResources": (
        ("name", 1, _OPTIONAL, "string"),
        ("namespace", 2, _OPTIONAL, "string"),
        ("containers", 3, _REPEATED, "ContainerResources"),
    ),
    "ContainerResources": (
        ("name", 1, _OPTIONAL, "string"),
        ("devices", 2, _REPEATED, "ContainerDevices"),
        ("cpu_ids", 3, _REPEATED, "int64"),
    ),
    "ContainerDevices": (
        ("resource_name", 1, _OPTIONAL, "string"),
        ("device_ids", 2, _REPEATED, "string"),
        ("topology", 3, _OPTIONAL, "TopologyInfo"),
    ),
    "TopologyInfo": (("nodes", 1, _REPEATED, "NUMANode"),),
    "NUMANode": (("ID", 1, _OPTIONAL, "int64"),),
}
"""Fields by message: name, number, label, type."""

_REMEDY = "mount the folder of the kubelet's pod-resources socket, or give --kube-pod-resources"


def message_classes() -> dict[str, Any]:
    """Return the message classes by name, in a pool of their own."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415  large

    file = descriptor_pb2.FileDescriptorProto(name="api.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, label, kind in fields:
            field = message.field.add(name=field_name, number=number, label=label)
            field.type = {"string": _STRING, "int64": _INT64}.get(kind, _MESSAGE)
            if field.type == _MESSAGE:
                field.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindFileByName(file.name).message_types_by_name
    return {name: message_factory.GetMessageClass(found[name]) for name in MESSAGES}


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices of one resource, such as `nvidia.com/gpu`, and the NUMA nodes that they hang on."""

    resource: str
    ids: tuple[str, ...]
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """What one container was given; `cpus` are those that it has for itself."""

    namespace: str
    pod: str
    container: str
    devices: tuple[Devices, ...] = ()
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Allocation:
    """What is given to whom, and how many devices of each resource there are to give."""

    grants: tuple[Grant, ...] = ()
    allocatable: tuple[Devices, ...] | None = None
    """None where this kubelet does not say (before Kubernetes 1.23, or switched off)."""

    def given(self) -> dict[str, int]:
        """Return the number of devices given, by resource."""
        return _count([one for grant in self.grants for one in grant.devices])

    def to_give(self) -> dict[str, int]:
        """Return the number of devices there are, by resource."""
        return _count(self.allocatable or ())


def _count(devices: "list[Devices] | tuple[Devices, ...]") -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for one in devices:
        counts[one.resource] += len(one.ids)
    return counts


def physical(device_id: str) -> str:
    """Return the id of the GPU or MIG instance behind a device: time slices are numbered after `::`.

    Source: NVIDIA k8s-device-plugin, "Shared Access to GPUs".
    """
    return device_id.partition("::")[0]


class PodResources:
    """Asks the service over its Unix socket; the connection stays open and is made anew after errors."""

    def __init__(self, socket: Path, deadline_s: float, max_body_bytes: int) -> None:
        self._socket = socket
        self._deadline_s = deadline_s
        self._options = (
            ("grpc.max_receive_message_length", max_body_bytes),
            ("grpc.enable_http_proxy", 0),
            (
                "grpc.use_local_subchannel_pool",
                1,
            ),  # or a new channel waits out the old one's back-off
        )
        self._classes: dict[str, Any] = {}
        self._channel: Any = None

    def read(self) -> Allocation:
        """Return the present allocation; raises `KubeletError`."""
        grpc = self._grpc()
        if self._channel is None:
            self._channel = grpc.insecure_channel(
                f"unix://{self._socket.absolute()}", self._options
            )
        try:
            grants = self._call("List", "ListPodResourcesRequest", "ListPodResourcesResponse")
            allocatable = self._allocatable(grpc)
        except grpc.RpcError as exc:
            self.close()
            raise _told(exc.code().name, exc.details() or "", self._socket) from exc
        return Allocation(_grants(grants), allocatable)

    def close(self) -> None:
        """Close the connection."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _grpc(self) -> Any:
        if not self._socket.is_socket():
            why = f"there is no socket {self._socket}"
            raise KubeletError(why, SignalState.NOT_SUPPORTED, _REMEDY)
        try:
            grpc = importlib.import_module("grpc")
        except ImportError as exc:
            raise KubeletError(
                "the package grpcio is missing",
                SignalState.NOT_SUPPORTED,
                "pip install 'tailcause[agent]'",
            ) from exc
        self._classes = self._classes or message_classes()
        return grpc

    def _call(self, method: str, request: str, response: str) -> Any:
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=self._classes[request].SerializeToString,
            response_deserializer=self._classes[response].FromString,
        )
        return call(self._classes[request](), timeout=self._deadline_s)

    def _allocatable(self, grpc: Any) -> tuple[Devices, ...] | None:
        names = ("AllocatableResourcesRequest", "AllocatableResourcesResponse")
        try:
            answer = self._call("GetAllocatableResources", *names)
        except grpc.RpcError as exc:
            if exc.code() in {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN}:
                return None
            raise
        return _devices(answer.devices)


def _told(code: str, details: str, socket: Path) -> KubeletError:
    if code == "DEADLINE_EXCEEDED":
        why = f"{socket} did not answer in time"
        return KubeletError(why, SignalState.HUNG, "it is asked again by itself")
    if code in {"PERMISSION_DENIED", "UNAUTHENTICATED"} or "Permission denied" in details:
        why = f"{socket} may not be used ({details})"
        return KubeletError(why, SignalState.NO_PERMISSION, "run the agent as root")
    why = f"{socket} gives no answer ({code}: {details})"
    return KubeletError(why, SignalState.FAILED, _REMEDY)


def _grants(answer: Any) -> tuple[Grant, ...]:
    return tuple(
        Grant(pod.namespace, pod.name, one.name, _devices(one.devices), tuple(one.cpu_ids))
        for pod in answer.pod_resources
        for one in pod.containers
    )


def _devices(given: Any) -> tuple[Devices, ...]:
    return tuple(
        Devices(one.resource_name, tuple(one.device_ids), _numa(one.topology)) for one in given
    )


def _numa(topology: Any) -> tuple[int, ...]:
    return tuple(sorted({node.ID for node in topology.nodes}))
