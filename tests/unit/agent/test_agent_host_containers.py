"""Every runtime and driver in every layout: the container is found, and all its numbers carry it."""

from pathlib import Path

import pytest

from agent.collectors.base import CollectorContext
from agent.collectors.cgroup import CgroupCollector
from agent.host import processes
from agent.host.containers import Identity, identify
from agent.host.hierarchies import discover
from tests.support.container_layouts import HASH, ID, LAYOUTS, PID, UID, VERSIONS, Layout, machine

every_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=[one.name for one in LAYOUTS])
every_version = pytest.mark.parametrize("version", VERSIONS)


@every_layout
def test_identity_from_a_path(layout: Layout) -> None:
    """The path names the container, its runtime, its pod and the pod's class."""
    assert identify(layout.path) == layout.identity


@every_layout
@every_version
def test_layout_is_recognised(layout: Layout, version: str, tmp_path: Path) -> None:
    """The mount table of each version says what it is."""
    assert discover(machine(tmp_path, layout, version)).mode == version


@every_layout
@every_version
def test_process_and_numbers_meet_in_one_path(layout: Layout, version: str, tmp_path: Path) -> None:
    """Where a process is found is where its numbers are: that joins spans to cgroups."""
    paths = machine(tmp_path, layout, version)
    samples = CgroupCollector(CollectorContext(paths)).collect()
    place = processes.place(paths, discover(paths), PID)
    of_it = [s for s in samples if s.attributes.get("tailcause.cgroup.path") == place.cgroup]
    assert place.cgroup == layout.path
    assert {s.attributes.get("container.id", "") for s in of_it} == {layout.identity.container_id}
    found = {s.metric: s.value for s in of_it}
    pressure = found.pop("tailcause.cgroup.psi.time", None)
    assert pressure == (None if version == "v1" else 1.5)
    uptime = found.pop("container.uptime", None)
    assert (uptime is not None) == bool(layout.identity.container_id)
    assert found == {
        "container.cpu.time": 2.5,
        "tailcause.cgroup.cpu.cfs.periods": 410,
        "tailcause.cgroup.cpu.cfs.throttled_periods": 400,
        "tailcause.cgroup.cpu.cfs.throttled_time": 32.43,
        "tailcause.cgroup.cpu.limit": 0.2,
        "tailcause.cgroup.cpu.weight": 100,
        "container.memory.usage": 8192,
        "container.memory.working_set": 4096,
        "container.disk.io": 512,
        "tailcause.cgroup.threads": 6,
    }


def test_identity_of_a_process_with_a_path_per_controller() -> None:
    """Where only one controller's path tells, it is found among them, in whatever line it stands."""
    paths = ("/", f"/kubepods/burstable/pod{UID}/{ID}", "/user.slice")
    assert identify("\n".join(paths)) == Identity(ID, UID, "", "burstable")


def test_a_name_is_no_id() -> None:
    """Neither a short id nor a pod's name passes for one."""
    for path in ("/docker/4f1c0d9a8b7e", f"/kubepods/pod{HASH}x/y", "/podman/abcdef", "/"):
        assert identify(path) == Identity()
