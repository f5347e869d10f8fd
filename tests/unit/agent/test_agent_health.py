"""`/healthz` and `/readyz` say when a restart would help and when the agent serves, with the reasons."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import aiohttp
import pytest

from agent.collecting import Collecting
from agent.collectors.watch import SignalStatus
from agent.health import Check, Health
from agent.telemetry.model import SignalState
from tests.support.running_agent import agent


@dataclass
class Signals:
    """Stands for the collectors at work."""

    states: dict[str, SignalState]
    collected_s: dict[str, float] = field(default_factory=dict)

    def patience_s(self, _: str) -> float:
        """Return how long one may take."""
        return 18.0

    def status(self) -> Mapping[str, SignalStatus]:
        """Return their states."""
        return {name: SignalStatus(state) for name, state in self.states.items()}


@dataclass
class Clock:
    """Stands still until it is set."""

    now_s: float = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def health(signals: Signals, clock: Clock) -> Health:
    """Return the health of an agent that listens."""
    made = Health(cast("Collecting", signals), lambda: 0.012, clock)
    made.listening = True
    return made


def wrong(checks: list[Check]) -> dict[str, str]:
    """Return the checks that are not so, with their reasons."""
    return {check.name: check.reason for check in checks if not check.ok}


def test_ready_once_everything_was_collected() -> None:
    """It waits for the listeners, for each signal's first collection and for the probes, and says for which."""
    signals, clock = Signals({"cpu": SignalState.OK, "ebpf": SignalState.DISABLED}), Clock()
    found = health(signals, clock)
    found.listening = False
    assert wrong(found.ready()) == {
        "listeners": "not yet",
        "first_collection": "not yet of cpu, ebpf",
        "probes": "not tried yet",
    }
    found.listening = True
    signals.collected_s = {"cpu": 101.0, "ebpf": 101.0}
    assert wrong(found.ready()) == {}
    found.draining = True
    assert wrong(found.ready()) == {"listeners": "draining"}


def test_a_signal_that_fails_keeps_nobody_from_serving() -> None:
    """Readiness asks whether a signal was collected, not what came of it."""
    signals = Signals({"gpu": SignalState.HUNG}, {"gpu": 105.0})
    assert wrong(health(signals, Clock()).ready()) == {}


def test_probes_that_attach_for_long() -> None:
    """While the probes attach the agent is not ready; after a minute that holds it up no more."""
    signals, clock = Signals({"ebpf": SignalState.HUNG}, {"ebpf": 105.0}), Clock()
    found = health(signals, clock)
    assert wrong(found.ready()) == {"probes": "being attached"}
    clock.now_s = 161.0
    assert wrong(found.ready()) == {}


def test_alive_while_collections_end() -> None:
    """No end of a call within the patience is a standstill, of a signal that never came back too."""
    signals = Signals({"cpu": SignalState.OK, "gpu": SignalState.OK}, {"cpu": 100.0})
    clock = Clock()
    found = health(signals, clock)
    clock.now_s = 118.0
    assert wrong(found.alive()) == {}
    signals.collected_s["cpu"] = 118.0
    clock.now_s = 119.0
    assert wrong(found.alive()) == {"collections": "none for 18 s of gpu"}
    assert found.alive()[0] == Check("loop", True, "12 ms late")


def test_alive_with_nothing_to_collect() -> None:
    """An agent without signals is no dead agent."""
    assert wrong(health(Signals({}), Clock()).alive()) == {}
    assert health(Signals({}), Clock()).summary() == "every signal is disabled"


def test_summary_counts_states() -> None:
    """The line for the service manager counts the signals by state."""
    states = {"cpu": SignalState.OK, "psi": SignalState.OK, "gpu": SignalState.NOT_SUPPORTED}
    assert health(Signals(states), Clock()).summary() == "signals: 1 not_supported, 2 ok"


@pytest.mark.parametrize(("path", "status"), [("healthz", "alive"), ("readyz", "ready")])
async def test_answers_of_a_running_agent(path: str, status: str) -> None:
    """Both are on the metrics port, in JSON, and turn good by themselves."""
    async with agent() as running, aiohttp.ClientSession() as session:
        url = running.metrics.replace("/metrics", f"/{path}")
        async with asyncio.timeout(30):
            while True:
                async with session.get(url) as response:
                    assert response.content_type == "application/json"
                    verdict = json.loads(await response.read())
                    if response.status == 200:
                        break
                    assert (response.status, verdict["status"]) == (503, f"not {status}")
                await asyncio.sleep(0.05)
    assert verdict["status"] == status
    assert all(check["ok"] for check in verdict["checks"])
    assert {check["name"] for check in verdict["checks"]} in (
        {"loop", "collections"},
        {"listeners", "first_collection", "probes"},
    )
