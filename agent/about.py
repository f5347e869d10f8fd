"""What the agent says of itself once: its build, its configuration, how long its start took."""

import os
import time
from collections.abc import Callable

from agent.build import revision, version
from agent.config import Config
from agent.config_show import config_hash
from agent.host import processes
from agent.host.paths import HostPaths
from agent.telemetry.keys import CONFIG_HASH, REVISION, SERVICE_VERSION
from agent.telemetry.model import Attributes, Sample


class About:
    """A source of samples; the first time that it is asked is the first export."""

    def __init__(
        self, config: Callable[[], Config], age_s: Callable[[], float | None] | None = None
    ) -> None:
        self._config = config
        self._age_s = age_s or process_age_s
        self._ready_s: float | None = None
        self._first_export_s: float | None = None
        commit = revision()
        self._build: Attributes = {
            SERVICE_VERSION: version(),
            **({REVISION: commit} if commit else {}),
        }

    def ready(self) -> None:
        """Note that the agent serves."""
        self._ready_s = self._age_s()

    def __call__(self) -> list[Sample]:
        """Return the build and the configuration, and how long it took to be ready and to export."""
        if self._first_export_s is None:
            self._first_export_s = self._age_s()
        now = time.time_ns()
        keys = {**self._build, CONFIG_HASH: config_hash(self._config())}
        samples = [Sample("tailcause.agent.info", 1.0, now, keys)]
        for metric, seconds in (
            ("tailcause.agent.start.duration", self._ready_s),
            ("tailcause.agent.first_export.duration", self._first_export_s),
        ):
            if seconds is not None:
                samples.append(Sample(metric, seconds, now))
        return samples


def process_age_s() -> float | None:
    """Return how long ago this process was started, in seconds; None where that cannot be told."""
    try:
        started_s = processes.start_ticks(HostPaths(), os.getpid()) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
