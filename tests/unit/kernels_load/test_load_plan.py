"""The plan of a load run."""

from collections import Counter

import pytest

from kernels.load.azure import CONVERSATION
from kernels.load.plan import PlanConfig, Planned, plan
from kernels.load.source import TableSource


def planned(seed: int = 1, rate: float = 20.0, duration_s: float = 120.0) -> list[Planned]:
    """Make a whole plan."""
    return list(plan(PlanConfig(rate, duration_s, seed), TableSource(CONVERSATION)))


def test_the_same_seed_gives_the_same_plan() -> None:
    """Runs can be repeated."""
    assert planned(seed=7) == planned(seed=7)
    assert planned(seed=7) != planned(seed=8)


def test_the_rate_is_kept_on_average() -> None:
    """120 s at 20 a second are about 2400 requests; the gaps scatter."""
    assert len(planned()) == pytest.approx(2400, rel=0.1)


def test_departures_rise_and_end_in_time() -> None:
    """An open loop knows its departures beforehand."""
    times = [request.at_s for request in planned()]

    assert times == sorted(times)
    assert times[-1] < 120.0


def test_about_a_tenth_repeats_prompt_and_limit() -> None:
    """So the server's prompt cache has something to find."""
    requests = planned()
    pairs = Counter((request.prompt, request.max_tokens) for request in requests)

    repeats = sum(count - 1 for count in pairs.values())
    assert repeats / len(requests) == pytest.approx(0.1, abs=0.03)


def test_tenants_are_few_and_unequal() -> None:
    """The first tenant sends most, and all of them exist on the server."""
    tenants = Counter(request.tenant for request in planned())

    assert tenants.most_common(1)[0][0] == "tenant-0000"
    assert max(tenants) <= "tenant-0199"
    assert tenants["tenant-0000"] > 3 * tenants["tenant-0009"]


def test_prompts_are_ascii_of_the_drawn_length() -> None:
    """A byte is a token."""
    assert all(40 <= len(request.prompt.encode()) <= 128 for request in planned())
