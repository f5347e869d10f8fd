"""`up` and `deploy` on real processes, sockets and cgroups."""

import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from tests.support.live_workload import (
    eventually,
    gone,
    group_directories,
    group_file,
    load,
    needs_cgroups,
    run,
    workload,
)

pytestmark = [pytest.mark.privileged, needs_cgroups]


def port_is_free(port: int) -> bool:
    """Tell whether nobody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def members(path: str) -> set[int]:
    """Read which processes are in a group, tree by tree; all trees must agree."""
    found = {
        frozenset(map(int, (directory / "cgroup.procs").read_text().split()))
        for directory in group_directories(path)
    }
    assert len(found) == 1, found
    return set(found.pop())


def test_the_server_runs_alone_in_a_cgroup_of_its_own_and_sigterm_leaves_nothing() -> None:
    """Every tree has the group while it runs; afterwards no group, port or state is there."""
    with workload() as running:
        server = running.told()["server_pid"]
        assert members(running.cgroup) == {server}
        assert os.getsid(server) == server

        assert running.up.stop() == 0

        assert gone(server)
        assert group_directories(running.cgroup) == []
        assert port_is_free(running.up.first["port"])
        assert [path.name for path in running.state.iterdir()] == ["up.lock"]


def test_kill_9_of_up_leaves_no_process_and_no_cgroup() -> None:
    """The kernel ends the server, the reaper the rest."""
    with workload() as running:
        server = running.told()["server_pid"]

        running.up.stop(signal.SIGKILL)

        assert eventually(lambda: gone(server))
        assert eventually(lambda: group_directories(running.cgroup) == [])
        assert eventually(lambda: not (running.state / "workload.json").exists())
        assert eventually(lambda: not (running.state / "control.sock").exists())
        assert port_is_free(running.up.first["port"])


def test_a_process_that_the_server_left_in_the_cgroup_dies_with_up() -> None:
    """Whatever sits in the group goes, in a session of its own or not."""
    with workload() as running:
        stray = os.fork()
        if stray == 0:
            signal.pause()
            os._exit(0)
        for directory in group_directories(running.cgroup):
            (directory / "cgroup.procs").write_text(str(stray))

        running.up.stop(signal.SIGKILL)

        assert os.WTERMSIG(os.waitpid(stray, 0)[1]) == signal.SIGKILL
        assert eventually(lambda: group_directories(running.cgroup) == [])


def test_the_death_of_the_server_is_an_error_and_not_a_restart() -> None:
    """One line says so, the exit code is 1, and nothing is left."""
    with workload() as running:
        os.kill(running.told()["server_pid"], signal.SIGKILL)

        assert running.up.process.wait(30) == 1

        assert "server died" in running.up.log.read_text()
        assert group_directories(running.cgroup) == []


def test_two_deploys_under_load_lose_no_request() -> None:
    """Both servers share the socket and the cgroup; the old one drains."""
    with workload() as running, load(running.url, rate=8) as sending:
        old = running.told()["server_pid"]
        together: set[int] = set()
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.02):
                now = set(map(int, group_file(running.cgroup, "cgroup.procs").split()))
                together.update(now if len(now) > 1 else ())

        watcher = threading.Thread(target=watch)
        watcher.start()
        replies = [
            run("deploy", "--state", str(running.state), "--revision", sha, "--version", version)
            for sha, version in (("a" * 40, "1.1.0"), ("b" * 40, "1.2.0"))
        ]
        done.set()
        watcher.join()
        assert [reply.returncode for reply in replies] == [0, 0], replies
        told = running.told()
        sending.stop()
        end = sending.rest()[-1]

        assert (told["revision"], told["version"]) == ("b" * 40, "1.2.0")
        assert {old, told["server_pid"]} < together
        assert gone(old)
        assert (end["event"], end["rejected"], end["failed"]) == ("done", 0, 0), end
        assert end["ok"] == end["sent"] > 0


def test_a_release_that_cannot_start_leaves_the_old_one_serving() -> None:
    """The deploy is refused with the reason."""
    with workload() as running:
        before = running.told()

        deploy = ("deploy", "--state", str(running.state), "--revision", "c", "--version", "2")
        reply = run(*deploy, "--set", "no_such_setting=1")

        assert (reply.returncode, reply.stdout) == (2, "")
        assert "before it served" in reply.stderr
        assert running.told() == before
        assert not gone(before["server_pid"])


def test_a_second_up_with_the_same_state_is_refused() -> None:
    """One line, exit code 2, and the first goes on."""
    with workload() as running:
        second = run("up", "--state", str(running.state), "--port", "0")

        assert second.returncode == 2
        assert "runs with --state" in second.stderr.splitlines()[-1]
        assert not gone(running.told()["server_pid"])


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    """The exit code is 2 and no cgroup stays."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = run("up", "--state", str(tmp_path / "s"), "--port", port, "--service", "taken")

    assert result.returncode == 2
    assert f"cannot serve on 127.0.0.1:{port}" in result.stderr
    assert "Traceback" not in result.stderr
    assert group_directories("/tailcause/taken") == []


def test_without_writable_cgroups_it_says_what_is_lost_and_serves(tmp_path: Path) -> None:
    """Read-only cgroup mounts, as in an ordinary container, made in a mount namespace."""
    script = (
        "awk '$9 ~ /^cgroup/ || $10 ~ /^cgroup/ || $11 ~ /^cgroup/ {print $5}'"
        " /proc/self/mountinfo | while read -r point; do"
        ' mount -o remount,bind,ro "$point" || exit 9; done; exec "$@"'
    )
    prefix = ["unshare", "--mount", "sh", "-c", script, "sh"]

    with workload(prefix=prefix) as running:
        assert running.up.first["cgroup"] is None
        assert running.told()["cgroup"] is None
        log = running.up.log.read_text()
        fault = run("fault", "cpu-quota", "--state", str(running.state))

    assert "no cgroup" in log
    assert "cpu-quota" in log
    assert fault.returncode == 2
    assert "has no cgroup" in fault.stderr.splitlines()[-1]
