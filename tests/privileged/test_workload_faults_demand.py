"""More and other work for a real server, and what follows from it: by its own counters and the kernel's lists."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_workload import (
    Workload,
    eventually,
    fault,
    gone,
    live,
    load,
    needs_cgroups,
    stop_well,
    workload,
)
from tests.support.workload_calls import SMALL, metric

pytestmark = [pytest.mark.privileged, needs_cgroups]


@pytest.fixture(scope="module")
def running() -> Iterator[Workload]:
    """Share one workload under a light load."""
    with workload(*SMALL) as up, load(up.url, rate=10):
        yield up


class Mix:
    """Mean tokens of the requests since it was made."""

    def __init__(self, url: str, counter: str) -> None:
        self._url = url
        self._counter = counter
        self._before = self._read()

    def mean(self) -> float:
        """Tokens per request; 0 before any."""
        tokens, requests = (
            now - then for now, then in zip(self._read(), self._before, strict=True)
        )
        return tokens / requests if requests > 20 else 0.0

    def _read(self) -> tuple[float, float]:
        names = (f"{self._counter}_total", "vllm:e2e_request_latency_seconds_count")
        tokens, requests = (metric(self._url, name) for name in names)
        return tokens, requests


def senders(injector: int) -> list[bytes]:
    """Read the command lines of the load generators that an injector has started."""
    children = Path(f"/proc/{injector}/task/{injector}/children").read_text().split()
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children]
    return [line for line in lines if b"\0load\0" in line]


def test_prompts_become_longer(running: Workload) -> None:
    """By the server's own count of prompt tokens; the usual median is 72."""
    with live(fault(running, "long-prompts", "--intensity", "6")) as injected:
        mix = Mix(running.url, "vllm:prompt_tokens")
        assert eventually(lambda: mix.mean() > 120)
        stop_well(injected)


def test_one_tenant_asks_for_long_answers(running: Workload) -> None:
    """By the server's own count of tokens generated; the usual median is 14."""
    with live(fault(running, "tenant-mix", "--intensity", "6")) as injected:
        mix = Mix(running.url, "vllm:generation_tokens")
        (sender,) = senders(injected.process.pid)
        assert injected.first["parameters"]["tenant"].encode() in sender
        assert eventually(lambda: mix.mean() > 25)
        stop_well(injected)


def test_impatient_clients_hang_up_and_ask_again(running: Workload) -> None:
    """The server sees clients go; kill -9 of the injector ends them all."""
    with live(fault(running, "retry-storm", "--intensity", "6")) as injected:
        (sender,) = senders(injected.process.pid)
        assert b"--retries" in sender
        log = running.up.log
        assert eventually(lambda: '"status": 499' in log.read_text()), injected.first
        child = int(
            Path(f"/proc/{injected.process.pid}/task/{injected.process.pid}/children")
            .read_text()
            .split()[-1]
        )

        injected.stop(signal.SIGKILL)

        assert eventually(lambda: gone(child))


def test_a_small_kv_cache_makes_requests_preempt_each_other(running: Workload) -> None:
    """By vLLM's counter of preemptions; afterwards the cache is as large as before."""
    before = running.told()["settings"]

    with live(fault(running, "kv-exhaustion", "--intensity", "6")) as injected:
        assert running.told()["settings"]["kv_tokens"] == "512"
        assert eventually(lambda: metric(running.url, "vllm:num_preemptions_total") > 0)
        stop_well(injected)

    assert running.told()["settings"] == before


def test_a_cold_start_is_the_same_release_in_another_process(running: Workload) -> None:
    """Nothing but the process changes, and at the end a warm one serves."""
    before = running.told()

    with live(fault(running, "cold-start")) as injected:
        during = running.told()
        assert during["settings"] == {**before["settings"], "warm_up": "off"}
        assert (during["revision"], during["version"]) == (before["revision"], before["version"])
        assert gone(before["server_pid"])
        stop_well(injected)

    assert running.told()["settings"] == before["settings"]


def test_one_replica_alone_can_be_hit() -> None:
    """Its quota is set, that of the other is not."""
    with workload("--replicas", "2", *SMALL) as two, load(two.url, rate=10):
        first, second = two.told()["replicas"]
        words = ("--replica", second["instance"])
        with live(fault(two, "hang", *words)) as injected:
            assert injected.first["target"] == second["instance"]
            states = [
                Path(f"/proc/{one['pid']}/stat").read_text().rpartition(")")[2].split()[0]
                for one in (first, second)
            ]
            assert (states[0] == "T", states[1] == "T") == (False, True)
            stop_well(injected)
