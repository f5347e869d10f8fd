"""A kubelet's pod-resources service over a Unix socket: real gRPC.

Stands in for a kubelet, which cannot be had without a cluster. Answers are raw bytes, encoded here
by the field numbers of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto, not by the agent's classes.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def part(number: int, value: bytes | str) -> bytes:
    """Return a length-delimited field (protobuf encoding, wire type 2)."""
    body = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def packed(number: int, values: Sequence[int]) -> bytes:
    """Return a packed repeated int64."""
    return part(number, b"".join(map(_varint, values))) if values else b""


def devices(resource: str, ids: Sequence[str], numa: Sequence[int] = ()) -> bytes:
    """Return a ContainerDevices."""
    nodes = b"".join(part(1, _varint(1 << 3) + _varint(node)) for node in numa)
    topology = part(3, nodes) if numa else b""
    return part(1, resource) + b"".join(part(2, one) for one in ids) + topology


def container(name: str, given: Sequence[bytes] = (), cpus: Sequence[int] = ()) -> bytes:
    """Return a ContainerResources, with memory (4) and a dynamic resource (5) that we do not read."""
    own = part(1, name) + b"".join(part(2, one) for one in given) + packed(3, cpus)
    return own + part(4, part(1, "memory")) + part(5, part(2, "claim"))


def pod_resources(name: str, containers: Sequence[bytes], namespace: str = "serving") -> bytes:
    """Return a PodResources."""
    return part(1, name) + part(2, namespace) + b"".join(part(3, one) for one in containers)


@dataclass
class Service:
    """What it answers; may be changed while it runs."""

    pods: list[bytes] = field(default_factory=list)
    allocatable: list[bytes] | None = None
    """None: this kubelet does not have the method."""
    refuse: grpc.StatusCode | None = None
    release: threading.Event | None = None
    """What `List` waits for."""
    asked: int = 0

    def list(self, _request: bytes, context: Any) -> bytes:
        """Answer `List`."""
        self.asked += 1
        if self.release is not None:
            self.release.wait(30)
        if self.refuse is not None:
            context.abort(self.refuse, "refused by this test")
        return b"".join(part(1, one) for one in self.pods)

    def get_allocatable(self, _request: bytes, context: Any) -> bytes:
        """Answer `GetAllocatableResources`."""
        if self.allocatable is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")
        return b"".join(part(1, one) for one in self.allocatable or ()) + packed(2, (0, 1))


@contextmanager
def serving(socket: Path, service: Service) -> Iterator[Service]:
    """Run one on a socket; a socket that lies there already is replaced, as the kubelet does it."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "v1.PodResourcesLister",
                {
                    "List": _raw(service.list),
                    "GetAllocatableResources": _raw(service.get_allocatable),
                },
            ),
        )
    )
    socket.unlink(missing_ok=True)
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    try:
        yield service
    finally:
        if service.release is not None:
            service.release.set()
        server.stop(0).wait(30)


def _raw(method: Callable[[bytes, Any], bytes]) -> Any:
    return grpc.unary_unary_rpc_method_handler(method)
