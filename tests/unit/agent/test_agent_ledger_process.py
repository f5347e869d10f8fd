"""Ledgers of spans that no hook has seen, and which processes may have done their work."""

import time
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2

from agent.host.hierarchies import Hierarchies, Hierarchy
from agent.host.paths import HostPaths
from agent.host.serving import ServingProcesses
from agent.ledger_process import annotate
from agent.otlp.decode import attributes
from agent.telemetry.keys import WAIT_SCOPE
from ebpf.layout import SAMPLE, WAITS, Wait
from ebpf.ring import Ring

S = 1_000_000_000


class Engine:
    """A source of samples: a thread of process 20 that has polled for 4 s and worked for 6, up to now."""

    def __init__(self) -> None:
        self.now_ns = time.monotonic_ns()

    def sample(self) -> bytes:
        """Return the thread as of its last switch."""
        waits = [0] * WAITS
        waits[Wait.POLL] = 4_000_000
        return SAMPLE.pack(
            20,
            20,
            5,
            self.now_ns - 6 * S,
            Wait.CPU,
            0,
            time.monotonic_ns(),
            4 * S,
            b"engine",
            *waits,
        )


@pytest.fixture
def ring() -> Ring:
    """Sample once."""
    made = Ring(Engine())
    made.sample()
    return made


def span_of(start_s: float, end_s: float) -> trace_pb2.Span:
    """Make a span that started and ended so many seconds ago."""
    now_ns = time.time_ns()
    return trace_pb2.Span(
        start_time_unix_nano=now_ns - int(start_s * S), end_time_unix_nano=now_ns - int(end_s * S)
    )


def test_backdated_span_gets_the_process_ledger(ring: Ring) -> None:
    """The worker is another process than the sender."""
    span = span_of(3, 1)

    assert annotate(span, 10, ring, lambda pid: {pid, 20})
    found = attributes(span.attributes)
    assert found["tailcause.wait.cpu"] == pytest.approx(2, abs=0.01)
    assert found["tailcause.wait.unexplained"] == pytest.approx(0, abs=0.01)
    assert found["tailcause.wait.scope"] == "process"
    assert found["tailcause.wait.thread"] == "engine"


def test_span_with_a_ledger_keeps_it(ring: Ring) -> None:
    """What a hook has measured is better."""
    span = span_of(3, 1)
    span.attributes.add(key=WAIT_SCOPE).value.string_value = "span"

    assert not annotate(span, 20, ring)
    assert attributes(span.attributes) == {WAIT_SCOPE: "span"}


def test_part_that_is_not_known_is_unexplained(ring: Ring) -> None:
    """The thread was first seen 6 s ago; the span began a second earlier."""
    span = span_of(7, 1)

    assert annotate(span, 20, ring)
    assert attributes(span.attributes)["tailcause.wait.unexplained"] == pytest.approx(1, abs=0.01)


def test_span_that_is_hardly_known_gets_nothing(ring: Ring) -> None:
    """Half a ledger would mislead."""
    span = span_of(30, 1)

    assert not annotate(span, 20, ring)
    assert list(span.attributes) == []


@pytest.mark.parametrize("pid", [10, 0])
def test_unwatched_process_gets_nothing(ring: Ring, pid: int) -> None:
    """Nothing is known of it."""
    assert not annotate(span_of(3, 1), pid, ring)


def test_span_of_no_length_gets_nothing(ring: Ring) -> None:
    """There is nothing to explain."""
    assert not annotate(span_of(1, 1.5), 20, ring)


class Host:
    """A procfs and a cgroup tree in a folder."""

    def __init__(self, root: Path) -> None:
        self.paths = HostPaths(procfs=root / "proc", cgroup=root / "cgroup")
        tree = Hierarchy(2, frozenset(("v2",)), root / "cgroup", "/")
        self.clock_s = 0.0
        self.hierarchies = Hierarchies((tree,))

    def add(
        self, pid: int, cgroup: str, parent: int = 1, group: int = 0, comm: str = "python"
    ) -> None:
        """Start a process."""
        folder = self.paths.procfs / str(pid)
        (folder / f"task/{pid}").mkdir(parents=True)
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        (folder / "stat").write_text(f"{pid} ({comm}) S {parent} {group or pid} 1 0\n")
        (folder / "comm").write_text(f"{comm}\n")
        (folder / f"task/{pid}/children").write_text("")
        above = self.paths.procfs / f"{parent}/task/{parent}/children"
        if above.exists():
            above.write_text(above.read_text() + f"{pid} ")
        procs = self.paths.cgroup / cgroup.lstrip("/") / "cgroup.procs"
        procs.parent.mkdir(parents=True, exist_ok=True)
        procs.write_text((procs.read_text() if procs.exists() else "") + f"{pid}\n")

    def serving(self, *names: str) -> ServingProcesses:
        """Return what is tested."""
        return ServingProcesses(
            self.paths, self.hierarchies, names, monotonic_s=lambda: self.clock_s
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Make a machine with an init process."""
    made = Host(tmp_path)
    made.add(1, "/init.scope", parent=0)
    return made


def test_processes_of_the_container_serve(host: Host) -> None:
    """API and engine share a cgroup; another container's process does not count."""
    host.add(10, "/kube/pod/one")
    host.add(11, "/kube/pod/one", parent=10)
    host.add(12, "/kube/pod/two")

    assert host.serving()(10) == {10, 11}


@pytest.mark.parametrize("cgroup", ["/", "/user.slice/session-3.scope"])
def test_family_serves_where_the_cgroup_is_everybodys(host: Host, cgroup: str) -> None:
    """Siblings that one launcher started count; the shell above, of another process group, does not."""
    host.add(5, cgroup)
    host.add(10, cgroup, parent=5)
    host.add(11, cgroup, parent=10, group=10)
    host.add(12, cgroup, parent=10, group=10)
    host.add(13, cgroup, parent=12, group=13)
    host.add(50, cgroup)

    assert host.serving()(11) == {10, 11, 12, 13}


def test_cgroup_of_a_whole_machine_is_not_believed(host: Host) -> None:
    """With more than 64 processes in one cgroup, the family counts."""
    for pid in range(100, 170):
        host.add(pid, "/everything")

    assert host.serving()(100) == {100}


def test_configured_names_serve_too(host: Host) -> None:
    """An engine in a container of its own is found by its name."""
    host.add(10, "/kube/pod/api")
    host.add(20, "/kube/pod/engine", comm="VLLM::EngineCor")

    assert host.serving("VLLM::EngineCor")(10) == {10, 20}


def test_processes_are_looked_up_again_after_a_while(host: Host) -> None:
    """A worker that starts later is found; in between the answer is kept."""
    host.add(10, "/kube/pod/one")
    serving = host.serving()
    first = serving(10)
    host.add(11, "/kube/pod/one", parent=10)
    soon = serving(10)
    host.clock_s = 6.0

    assert [set(first), set(soon), set(serving(10))] == [{10}, {10}, {10, 11}]


def test_process_that_has_ended_keeps_its_last_answer(host: Host) -> None:
    """Its spans may come after its end."""
    host.add(10, "/kube/pod/one")
    host.add(11, "/kube/pod/one")
    serving = host.serving()
    serving(10)
    (host.paths.procfs / "10/cgroup").unlink()
    host.clock_s = 6.0

    assert serving(10) == {10, 11}
    assert serving(99) == {99}
