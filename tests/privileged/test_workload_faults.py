"""Faults on a real workload: the effect is read from the kernel, not from the injector."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_workload import (
    Workload,
    command,
    eventually,
    fault,
    gone,
    group_directories,
    group_file,
    live,
    load,
    needs_cgroups,
    quota_text,
    stop_well,
    throttled_s,
    workload,
)

pytestmark = [pytest.mark.privileged, needs_cgroups]

UNLIMITED = ("-1", "max")


@pytest.fixture(scope="module")
def running() -> Iterator[Workload]:
    """Share one workload under a light load."""
    with workload() as up, load(up.url, rate=8):
        yield up


def test_cpu_quota_throttles_the_server_and_is_lifted(running: Workload, tmp_path: Path) -> None:
    """The kernel's own throttled seconds rise under the quota that the truth names."""
    truth_file = tmp_path / "truth.json"
    before = throttled_s(running.cgroup)
    words = ("--intensity", "6", "--truth", str(truth_file))

    with live(fault(running, "cpu-quota", *words)) as injected:
        truth = json.loads(truth_file.read_bytes())
        assert injected.first == {"event": "active", **truth}
        assert quota_text(running.cgroup) == str(truth["parameters"]["quota_us"])
        assert eventually(lambda: throttled_s(running.cgroup) > before + 0.2)
        stop_well(injected)

    after = json.loads(truth_file.read_bytes())
    assert quota_text(running.cgroup) in UNLIMITED
    assert (after["fault"], after["kind"], after["target"]) == (
        "cpu-quota",
        "fault",
        running.cgroup,
    )
    assert truth["ended_unix_s"] is None
    assert truth["started_unix_s"] < after["ended_unix_s"] <= time.time()
    assert truth_file.stat().st_mode & 0o777 == 0o600


def test_kill_9_of_the_injector_lifts_the_quota(running: Workload, tmp_path: Path) -> None:
    """The reaper writes the old value back and the end into the truth."""
    truth_file = tmp_path / "truth.json"

    with live(fault(running, "cpu-quota", "--truth", str(truth_file))) as injected:
        assert quota_text(running.cgroup) not in UNLIMITED

        injected.stop(signal.SIGKILL)

        assert eventually(lambda: quota_text(running.cgroup) in UNLIMITED)
        assert eventually(lambda: json.loads(truth_file.read_bytes())["ended_unix_s"] is not None)


def test_the_time_given_ends_the_fault(running: Workload) -> None:
    """`--for` is enough; nobody has to stop it."""
    words = ("fault", "decoy-throttled", "--state", str(running.state), "--for", "500ms")

    with live(command(*words)) as injected:
        assert injected.process.wait(30) == 0

    assert group_directories(injected.first["target"]) == []


def test_the_throttled_decoy_is_throttled_hard_and_uses_little(running: Workload) -> None:
    """At most five per cent of a core, throttled in nearly every period, and then it is gone."""
    with live(fault(running, "decoy-throttled", "--seed", "3")) as injected:
        group = injected.first["target"]
        pid = injected.first["parameters"]["pids"][0]
        assert Path(group).parent == Path(running.cgroup).parent
        assert eventually(lambda: throttled_s(group) > 1.0)

        used_s, waited_s = cpu_seconds(group), throttled_s(group)
        assert used_s / (used_s + waited_s) < 0.06
        stop_well(injected)

    assert group_directories(group) == []
    assert gone(pid)


def cpu_seconds(path: str) -> float:
    """Read a group's CPU time from the kernel."""
    if any((directory / "cpuacct.usage").exists() for directory in group_directories(path)):
        return int(group_file(path, "cpuacct.usage")) / 1e9
    first, *_ = group_file(path, "cpu.stat").splitlines()
    return int(first.split()[1]) / 1e6


def test_kill_9_of_the_injector_removes_the_decoy(running: Workload) -> None:
    """Process and cgroup go with it."""
    with live(fault(running, "decoy-throttled", "--seed", "4")) as injected:
        pid = injected.first["parameters"]["pids"][0]

        injected.stop(signal.SIGKILL)

        assert eventually(lambda: gone(pid))
        assert eventually(lambda: group_directories(injected.first["target"]) == [])


def test_a_bad_deploy_changes_the_revision_and_is_deployed_back(running: Workload) -> None:
    """The slow settings are in force while it lasts, the old ones afterwards."""
    before = running.told()

    with live(fault(running, "bad-deploy", "--variant", "static-batching")) as injected:
        during = running.told()
        assert during["settings"]["batching"] == "static"
        assert during["revision"] == injected.first["parameters"]["revision"]
        assert len(during["revision"]) == 40
        assert during["version"] != before["version"]
        assert gone(before["server_pid"])
        stop_well(injected)

    after = running.told()
    assert after["settings"] == before["settings"]
    assert (after["revision"], after["version"]) == (before["revision"], before["version"])


def test_kill_9_of_the_injector_deploys_back(running: Workload) -> None:
    """The reaper asks the supervisor."""
    before = running.told()

    with live(fault(running, "bad-deploy", "--variant", "deeper-model")) as injected:
        injected.stop(signal.SIGKILL)

        assert eventually(lambda: running.told()["revision"] == before["revision"], 60)


def test_the_harmless_deploy_changes_the_revision_alone(running: Workload) -> None:
    """Settings stay, and so does the new revision when the decoy ends."""
    before = running.told()

    with live(fault(running, "decoy-deploy", "--seed", "5")) as injected:
        during = running.told()
        stop_well(injected)

    assert during["revision"] != before["revision"]
    assert during["settings"] == before["settings"]
    assert running.told() == during


def test_a_surge_sends_more_and_dies_with_its_injector(running: Workload) -> None:
    """The second generator's process is real, and kill -9 ends it."""
    with live(fault(running, "surge", "--intensity", "1.5")) as injected:
        figures = injected.first["parameters"]
        children = children_of(injected.process.pid)
        senders = [pid for pid in children if b"load" in cmdline(pid)]
        assert len(senders) == 1
        assert figures["extra_rate"] > 0.3 * figures["rate_before"] > 0

        injected.stop(signal.SIGKILL)

        assert eventually(lambda: gone(senders[0]))


def children_of(pid: int) -> list[int]:
    """Read a process's children from the kernel."""
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def cmdline(pid: int) -> list[bytes]:
    """Read a process's command line."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def test_the_end_of_the_workload_ends_the_fault() -> None:
    """Nothing is put back into a workload that is gone, and nothing stays."""
    with workload() as up, load(up.url, rate=8), live(fault(up, "bad-deploy")) as injected:
        up.up.stop()

        assert injected.process.wait(60) == 0
        assert group_directories(up.cgroup) == []


def test_told_to_end_while_it_measures_it_changes_nothing(running: Workload) -> None:
    """SIGTERM in the first seconds: no quota was ever set."""
    with live(["sh", "-c", 'echo "{}"; exec "$@"', "sh", *fault(running, "cpu-quota")]) as injected:
        timer = threading.Timer(2.0, os.kill, (injected.process.pid, signal.SIGTERM))
        timer.start()

        assert injected.process.wait(60) == 0

    assert quota_text(running.cgroup) in UNLIMITED
