"""Several real servers behind the balancer: `up --replicas`, with real processes, sockets and cgroups."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from kernels.workload.model import ModelSpec, weights
from kernels.workload.weights_file import save_weights
from tests.support.live_workload import (
    Workload,
    eventually,
    gone,
    group_directories,
    load,
    needs_cgroups,
    run,
    workload,
)
from tests.support.otlp_collector import collecting
from tests.support.workload_process import SMALL

pytestmark = [pytest.mark.privileged, needs_cgroups]

SETTINGS = tuple(word for pair in (*SMALL, "prompt_cache=0") for word in ("--set", pair))


@pytest.fixture(scope="module")
def running() -> Iterator[Workload]:
    """Three replicas for the tests that leave them as they were."""
    with workload("--replicas", "3", *SETTINGS) as started:
        yield started


async def served_by(url: str, count: int) -> Counter[str]:
    """Ask several times, one after the other, and count who answered; every answer must be a good one."""
    answered: Counter[str] = Counter()
    async with aiohttp.ClientSession() as session:
        for number in range(count):
            body = {"prompt": f"{number}", "max_tokens": 2}
            async with session.post(f"{url}/v1/completions", json=body) as response:
                assert response.status == 200, await response.text()
                answered[response.headers["X-Served-By"]] += 1
    return answered


async def test_every_replica_has_a_name_a_cgroup_and_its_share(running: Workload) -> None:
    """The state file says who they are, and requests go to all of them."""
    replicas = running.told()["replicas"]
    names = [f"{running.told()['service']}-{number}" for number in range(3)]
    assert [one["instance"] for one in replicas] == names
    for one in replicas:
        assert one["cgroup"] == f"{running.cgroup}/{one['instance']}"
        for directory in group_directories(one["cgroup"]):
            assert (directory / "cgroup.procs").read_text().split() == [str(one["pid"])]
    assert dict(await served_by(running.url, 12)) == dict.fromkeys(names, 4)


async def test_a_frozen_replica_is_left_out_until_it_moves_again(running: Workload) -> None:
    """Its requests go to the others before their first byte; nobody gets an error."""
    frozen = running.told()["replicas"][1]
    os.kill(frozen["pid"], signal.SIGSTOP)
    try:
        answered = await served_by(running.url, 12)
        assert answered[frozen["instance"]] == 0
        assert sum(answered.values()) == 12
    finally:
        os.kill(frozen["pid"], signal.SIGCONT)
    deadline = time.monotonic() + 30
    while not (await served_by(running.url, 3))[frozen["instance"]]:
        assert time.monotonic() < deadline


def test_a_deploy_goes_replica_by_replica_and_loses_no_request() -> None:
    """Every process is another one afterwards, under the same name, port and cgroup."""
    with workload("--replicas", "2", *SETTINGS) as running, load(running.url, rate=10) as sending:
        before = running.told()["replicas"]
        deploy = ("deploy", "--state", str(running.state), "--revision", "a" * 40)
        assert run(*deploy, "--version", "1.1.0").returncode == 0
        after = running.told()["replicas"]
        refused = run(*deploy, "--version", "2", "--set", "no_such_setting=1")
        assert (refused.returncode, running.told()["replicas"]) == (2, after)
        sending.stop()
        end = sending.rest()[-1]
    assert all(gone(one["pid"]) for one in before)
    assert {one["pid"] for one in before}.isdisjoint(one["pid"] for one in after)
    same = [{k: v for k, v in one.items() if k != "pid"} for one in (*before, *after)]
    assert same[:2] == same[2:]
    assert (end["rejected"], end["failed"]) == (0, 0), end
    assert end["ok"] == end["sent"] > 0


def test_a_deploy_that_fails_half_way_goes_back(tmp_path: Path) -> None:
    """The weights vanish after the first replica has read them: both serve the old release in the end."""
    file, spec = tmp_path / "weights.npz", ModelSpec(layers=1, hidden=32, heads=2, context=512)
    save_weights(file, spec, weights(replace(spec, seed=5)))
    with workload("--replicas", "2", *SETTINGS) as running:
        before = running.told()
        first = before["replicas"][0]["pid"]
        deploy = ("deploy", "--state", str(running.state), "--revision", "b" * 40)
        with ThreadPoolExecutor(1) as pool:
            reply = pool.submit(run, *deploy, "--version", "2", "--set", f"weights={file}")
            assert eventually(lambda: bool(running.told()["replicas"][0]["pid"] != first))
            file.unlink()
            assert reply.result().returncode == 2
        after = running.told()
        assert (after["revision"], after["settings"]) == (before["revision"], before["settings"])
        assert after["replicas"][0]["pid"] != first
        assert after["replicas"][1] == before["replicas"][1]
        assert sum(asyncio.run(served_by(running.url, 4)).values()) == 4


async def test_spans_name_the_replica() -> None:
    """By `service.instance.id`, so that a bad one can be told from the others."""
    async with collecting() as collector:
        with workload("--replicas", "2", "--otlp", collector.url, *SETTINGS) as running:
            names = {one["instance"] for one in running.told()["replicas"]}
            seen: set[object] = set()
            async with asyncio.timeout(60):
                while seen != names:
                    await served_by(running.url, 2)
                    seen |= {collector.resource.get("service.instance.id")} - {None}


def test_kill_9_of_up_leaves_no_replica_and_no_cgroup() -> None:
    """Balancer, servers and their groups all go."""
    with workload("--replicas", "2", *SETTINGS) as running:
        pids = [one["pid"] for one in running.told()["replicas"]] + [running.up.first["pid"]]
        running.up.stop(signal.SIGKILL)
        assert eventually(lambda: all(gone(pid) for pid in pids))
        assert eventually(lambda: group_directories(running.cgroup) == [])
