"""Resident memory over time: the level, the slope at many times the pace, and with processes that come and go."""

import time
from collections.abc import Mapping, Sequence
from statistics import median

from tests.bench.agent_node import CHURNER, Crowd, Node
from tests.bench.agent_process import Running
from tests.bench.paired import Estimate

MB = 1e6
FASTER = 20
"""How many times the normal pace an agent is run at, so that minutes show what hours would."""
TURNOVER = 20_000
_ALIVE = 10_000
_REPLACED_PER_S = 500
_EVERY_S = 1.0

Samples = Sequence[tuple[float, float]]
"""Seconds since the first, resident bytes."""


def watch(agents: Mapping[str, Running], length_s: float) -> dict[str, list[tuple[float, float]]]:
    """Read the resident memory of some processes every second."""
    began_s = time.monotonic()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in agents}
    while (now_s := time.monotonic() - began_s) < length_s:
        for name, running in agents.items():
            found[name].append((now_s, running.rss_bytes()))
        time.sleep(_EVERY_S)
    return found


def slope_mb_per_h(samples: Samples, faster: float = FASTER) -> Estimate:
    """Return the growth in MB per hour of normal pace: from the second quarter of the time to the last one.

    The bounds are those that the quarters' own least and largest values allow. The first quarter is warming up.
    """
    early, late = _quarter(samples, 1), _quarter(samples, 3)
    hours = (samples[-1][0] - samples[0][0]) / 2 * faster / 3600
    return Estimate(
        (median(late) - median(early)) / MB / hours,
        (min(late) - max(early)) / MB / hours,
        (max(late) - min(early)) / MB / hours,
    )


def _quarter(samples: Samples, number: int) -> list[float]:
    size = len(samples) // 4
    return [value for _, value in samples[number * size : (number + 1) * size]]


def alive_at_once() -> int:
    """Return how many of the processes that churn may live together: half of the free process ids at most."""
    with open("/proc/sys/kernel/pid_max") as limit, open("/proc/loadavg") as load:  # noqa: PTH123
        free = int(limit.read()) - int(load.read().split()[3].split("/")[1])
    return min(_ALIVE, free // 2)


def churned(running: Running, node: Node, turnover: int = TURNOVER) -> tuple[list[float], int]:
    """Let processes come and go; return the agent's resident bytes meanwhile, and how many processes there were."""
    crowd = Crowd(node.programs / CHURNER, alive_at_once(), _REPLACED_PER_S)
    try:
        started, resident = crowd.started(), []
        while started < turnover + alive_at_once():
            resident.append(float(running.rss_bytes()))
            time.sleep(_EVERY_S)
            started = crowd.ask()
    finally:
        crowd.close()
    return resident, started
