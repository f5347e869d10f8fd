"""Keeps requests away from a store that does not answer, and finds out by itself when it does again."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from kernels.errors import WorkloadError

log = logging.getLogger(__name__)

FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 8.0

OPEN = "circuit_open"
"""The `error.type` of what was not even tried."""


class UnavailableError(WorkloadError):
    """A store gave no answer; `reason` is an `error.type`: one of a few words, or the store's own code."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class Breaker:
    """Opens at the first failure; then a probe, not a request, pays for finding out.

    The probe waits 0.25 s, then twice as long each time, up to 8 s.
    """

    def __init__(
        self,
        store: str,
        probe: Callable[[], Awaitable[None]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._probe = probe
        self._sleep = sleep
        self._recovery: asyncio.Task[None] | None = None

    @property
    def closed(self) -> bool:
        """Whether the store may be asked."""
        return self._recovery is None

    def check(self) -> None:
        """Raise UnavailableError while the store may not be asked."""
        if not self.closed:
            raise UnavailableError(OPEN)

    def trip(self, error: UnavailableError) -> None:
        """Ask no more until a probe succeeds; call it in the event loop."""
        if self.closed:
            fields = {"store": self._store, "reason": error.reason, "error": str(error)}
            log.warning("store is away, serving goes on without it", extra={"fields": fields})
            self._recovery = asyncio.create_task(self._recover())

    def stop(self) -> None:
        """Give up probing; the store stays as it is."""
        if self._recovery is not None:
            self._recovery.cancel()

    async def _recover(self) -> None:
        began_s, wait_s = time.monotonic(), FIRST_WAIT_S
        while True:
            await self._sleep(wait_s)
            try:
                await self._probe()
            except UnavailableError as error:
                log.debug("store is away still", extra={"fields": {"reason": error.reason}})
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
            else:
                break
        self._recovery = None
        fields = {"store": self._store, "away_s": round(time.monotonic() - began_s, 3)}
        log.info("store is back", extra={"fields": fields})
