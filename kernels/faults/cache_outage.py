"""Fault `cache-outage`: Redis stands still, so that no completion is found or kept."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kernels.faults.base import FaultContext, FaultError, FaultKind, Injection
from kernels.supervisor.actions import ContinueProcess
from kernels.supervisor.processes import start_ticks, stop_exact

_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class CacheOutageFault:
    """Stops the process of a Redis on this machine (SIGSTOP); its connections stay open and answer nothing.

    There is nothing to scale: what it costs follows from the share of requests that the cache answered.
    """

    name: str = "cache-outage"
    kind: FaultKind = FaultKind.FAULT
    description: str = "Redis stands still: nothing is found in the prompt cache"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ("--set", "prompt_cache=redis://…")

    def inject(self, context: FaultContext) -> Injection:
        """Find the process by asking Redis itself, then stop it."""
        url = context.workload.settings.get("prompt_cache", "")
        if "://" not in url:
            raise FaultError(
                "the prompt cache is in the server: start `up --set prompt_cache=redis://…`"
            )
        pid = _process_of(url)
        ticks = start_ticks(pid)
        if ticks is None:
            raise FaultError("the Redis of the workload does not run on this machine")
        context.reaper.add(ContinueProcess(pid, ticks))
        if not stop_exact(pid, ticks):
            raise FaultError("Redis has just ended")
        return Injection(target="redis", parameters={"url": url, "pid": pid})


def _process_of(url: str) -> int:
    """Ask for the process id, and believe it only where a process of that name runs here."""
    from redis import Redis  # noqa: PLC0415 - wanted by this fault alone
    from redis.exceptions import RedisError  # noqa: PLC0415

    try:
        password = os.environ.get("REDISCLI_AUTH") or None
        with Redis.from_url(url, password=password, socket_timeout=_TIMEOUT_S) as client:
            told = cast("dict[str, Any]", client.info("server"))
    except (RedisError, OSError) as exc:
        raise FaultError(f"no Redis answers at {url}: {exc}") from exc
    pid = int(told["process_id"])
    try:
        name = Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        name = ""
    if not name.startswith(("redis", "valkey")):
        raise FaultError("the Redis of the workload does not run on this machine")
    return pid
