"""SIGHUP: the configuration is read again, and what can be changed while the agent runs is changed."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from agent.config import Config
from agent.config_show import masked
from agent.errors import AgentError
from agent.notify import Notifier
from agent.telemetry.keys import OUTCOME
from agent.telemetry.model import Sample

_log = logging.getLogger(__name__)

LIVE = frozenset((
    "interval", "export_interval", "deadline", "disable", "log_level",
    "redact", "sample_rest", "sample_wait",
    "forward", "export", "compression", "headers", "forward_ca", "forward_cert", "forward_key",
    "forward_token_file",
    "ebpf_enabled", "ebpf_probes", "ebpf_cuda", "ebpf_watch",
    "ebpf_own_budget", "ebpf_imposed_budget", "ebpf_memory_budget",
))  # fmt: skip
"""Settings that are changed at once. A setting that is not listed here needs a restart."""


@dataclass(frozen=True)
class Plan:
    """What comes of a new configuration: the one in force afterwards, and which settings changed."""

    config: Config
    live: tuple[str, ...]
    needs_restart: tuple[str, ...]


def plan(old: Config, new: Config) -> Plan:
    """Compare two configurations; what needs a restart stays as it is."""
    changed = [key for key in Config.__struct_fields__ if getattr(old, key) != getattr(new, key)]
    live = tuple(key for key in changed if key in LIVE)
    after = msgspec.structs.replace(old, **{key: getattr(new, key) for key in live})
    return Plan(after, live, tuple(key for key in changed if key not in LIVE))


class Reloader:
    """Reloads when asked, one at a time; a configuration that cannot be used changes nothing.

    `load` reads it again, `apply` makes the running agent follow; both raise `AgentError`, `apply` before it
    has changed anything.
    """

    def __init__(
        self,
        config: Config,
        load: Callable[[], Config],
        apply: Callable[[Config], Awaitable[None]],
        notifier: Notifier,
    ) -> None:
        self.config = config
        """The one in force."""
        self.outcomes: Counter[str] = Counter()
        """Reloads by what became of them: `applied`, `unchanged`, `refused`."""
        self._load = load
        self._apply = apply
        self._notifier = notifier
        self._asked = asyncio.Event()
        self._start_unix_ns = time.time_ns()

    def ask(self) -> None:
        """Have it reloaded soon; while a reload is under way, another one follows."""
        self._asked.set()

    async def run(self) -> None:
        """Reload for ever, whenever asked."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            self._notifier.reloading()
            outcome = await self._reload()
            self.outcomes[outcome] += 1
            self._notifier.ready(f"configuration {outcome}")

    async def _reload(self) -> str:
        try:
            found = plan(self.config, await asyncio.to_thread(self._load))
            if found.live:
                await self._apply(found.config)
        except AgentError as exc:
            _log.error("event=reload_refused why=%r kept='the old configuration'", str(exc))
            return "refused"
        if found.needs_restart:
            _log.warning("event=reload_needs_restart keys=%s", ",".join(found.needs_restart))
        if not found.live:
            _log.info("event=reload_unchanged")
            return "unchanged"
        self.config = found.config
        shown = masked(found.config)
        _log.info(
            "event=reload_applied settings=%r",
            "; ".join(f"{key}={shown[key]}" for key in found.live),
        )
        return "applied"

    def own_samples(self) -> list[Sample]:
        """Return the outcomes as samples."""
        now = time.time_ns()
        return [
            Sample("tailcause.config.reloads", count, now, {OUTCOME: outcome}, self._start_unix_ns)
            for outcome, count in self.outcomes.items()
        ]
