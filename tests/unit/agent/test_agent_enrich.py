"""Spans are joined to the cgroup of their process, and never to another's."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent.enrich import Enricher
from agent.host.hierarchies import discover
from agent.host.paths import HostPaths
from agent.otlp.decode import attributes

Host = Callable[[str], HostPaths]
Request = trace_service_pb2.ExportTraceServiceRequest

CONTAINER = "4f1c0d9a8b7e6f5d4c3b2a1908f7e6d5c4b3a29180f7e6d5c4b3a2918070f6e5"


def request(resource: dict[str, str | int], n_spans: int = 2) -> Request:
    """Return a request with one resource and some spans."""
    message = Request()
    part = message.resource_spans.add()
    for key, value in resource.items():
        pair = part.resource.attributes.add()
        pair.key = key
        if isinstance(value, int):
            pair.value.int_value = value
        else:
            pair.value.string_value = value
    scope = part.scope_spans.add()
    for index in range(n_spans):
        scope.spans.add().name = f"span {index}"
    return message


def resource_of(message: Request) -> dict[str, object]:
    """Return the attributes of the first resource."""
    return dict(attributes(message.resource_spans[0].resource.attributes))


def enricher(paths: HostPaths, **options: Callable[[], float]) -> Enricher:
    """Return an enricher for node-1."""
    return Enricher(paths, discover(paths), "node-1", **options)  # type: ignore[arg-type]


def test_container_process_gets_all_three(host: Host) -> None:
    """A pod's process gets its cgroup, container and pod; the spans stay as they are."""
    message = request({"process.pid": 4242, "host.name": "node-1"})
    spans_before = [scope.SerializeToString() for scope in message.resource_spans[0].scope_spans]
    joiner = enricher(host("v1"))
    joiner.enrich(message)
    assert resource_of(message) == {
        "process.pid": 4242,
        "host.name": "node-1",
        "tailcause.cgroup.path": "/kubepods/burstable/"
        f"pod8a5f3c1e-2b4d-4c6e-9f80-1a2b3c4d5e6f/{CONTAINER}",
        "container.id": CONTAINER,
        "k8s.pod.uid": "8a5f3c1e-2b4d-4c6e-9f80-1a2b3c4d5e6f",
    }
    assert [s.SerializeToString() for s in message.resource_spans[0].scope_spans] == spans_before
    assert (joiner.joined, dict(joiner.misses)) == (2, {})


def test_plain_process_gets_its_cgroup(host: Host) -> None:
    """A process outside containers gets its cgroup alone."""
    message = request({"process.pid": 4300, "host.name": "node-1"})
    enricher(host("hybrid")).enrich(message)
    assert resource_of(message)["tailcause.cgroup.path"] == "/user.slice/user-0.slice"
    assert "container.id" not in resource_of(message)


@pytest.mark.parametrize(
    ("resource", "reason"),
    [
        ({"host.name": "node-1"}, "no_pid"),
        ({"host.name": "node-1", "process.pid": -3}, "no_pid"),
        ({"host.name": "node-1", "process.pid": "x"}, "no_pid"),
        ({"process.pid": 4242}, "no_host_name"),
        ({"process.pid": 4242, "host.name": "node-2"}, "other_host"),
        ({"process.pid": 99999999, "host.name": "node-1"}, "no_process"),
        ({"process.pid": 4400, "host.name": "node-1"}, "other_pid_namespace"),
    ],
)
def test_misses_are_counted_by_reason(
    host: Host, resource: dict[str, str | int], reason: str
) -> None:
    """What cannot be joined for sure is left alone and counted, in spans."""
    message = request(resource, n_spans=3)
    joiner = enricher(host("hybrid"))
    joiner.enrich(message)
    assert resource_of(message) == resource
    assert dict(joiner.misses) == {reason: 3}
    assert [(s.value, s.attributes["reason"]) for s in joiner.own_samples()] == [(3, reason)]


def test_present_attributes_are_kept(host: Host) -> None:
    """What the sender says of itself is not overwritten."""
    message = request({"process.pid": 4242, "host.name": "node-1", "container.id": "mine"})
    enricher(host("v1")).enrich(message)
    assert resource_of(message)["container.id"] == "mine"


def test_process_that_just_ended_is_still_known(host: Host, tmp_path: Path) -> None:
    """Spans that arrive after their process's end are joined to where it was."""
    procfs = tmp_path / "proc"
    shutil.copytree(host("hybrid").procfs, procfs)
    joiner = enricher(HostPaths(procfs, host("hybrid").cgroup))
    joiner.enrich(request({"process.pid": 4242, "host.name": "node-1"}))
    shutil.rmtree(procfs / "4242")
    late = request({"process.pid": 4242, "host.name": "node-1"})
    joiner.enrich(late)
    assert resource_of(late)["container.id"] == CONTAINER


def test_reused_pid_is_read_again(host: Host, tmp_path: Path) -> None:
    """Another process of the same pid is told apart by its start time, however quickly it came."""
    procfs = tmp_path / "proc"
    shutil.copytree(host("hybrid").procfs, procfs)
    joiner = enricher(HostPaths(procfs, host("hybrid").cgroup), monotonic_s=lambda: 0.0)
    joiner.enrich(request({"process.pid": 4242, "host.name": "node-1"}))
    shutil.copytree(procfs / "4300", procfs / "4242", dirs_exist_ok=True)
    later = request({"process.pid": 4242, "host.name": "node-1"})
    joiner.enrich(later)
    assert resource_of(later)["tailcause.cgroup.path"] == "/user.slice/user-0.slice"


def test_moved_process_is_read_again_after_a_while(host: Host, tmp_path: Path) -> None:
    """A process that is moved to another cgroup is followed within seconds."""
    procfs = tmp_path / "proc"
    shutil.copytree(host("hybrid").procfs, procfs)
    now = [0.0]
    joiner = enricher(HostPaths(procfs, host("hybrid").cgroup), monotonic_s=lambda: now[0])
    joiner.enrich(request({"process.pid": 4242, "host.name": "node-1"}))
    shutil.copy(procfs / "4300" / "cgroup", procfs / "4242" / "cgroup")
    soon, later = (request({"process.pid": 4242, "host.name": "node-1"}) for _ in range(2))
    now[0] = 1.0
    joiner.enrich(soon)
    now[0] = 6.0
    joiner.enrich(later)
    assert resource_of(soon)["container.id"] == CONTAINER
    assert resource_of(later)["tailcause.cgroup.path"] == "/user.slice/user-0.slice"
