"""The replicas that requests go to: how loaded each is, whether it is healthy, and who takes the next."""

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

FAILURES_TO_FALL = 2
SUCCESSES_TO_RISE = 2


@dataclass(eq=False)
class Backend:
    """One replica; `name` is its `service.instance.id`, `down` is set while it is not healthy."""

    name: str
    url: str
    in_flight: int = 0
    down: asyncio.Event = field(default_factory=asyncio.Event)
    _streak: int = 0

    @property
    def healthy(self) -> bool:
        """Whether it takes requests."""
        return not self.down.is_set()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Count a request for as long as the block runs."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    def note(self, *, well: bool, reason: str = "") -> None:
        """Take in the outcome of a check: several in a row change the verdict."""
        if well is self.healthy:
            self._streak = 0
            return
        self._streak += 1
        if self._streak >= (SUCCESSES_TO_RISE if well else FAILURES_TO_FALL):
            self._turn(well, reason)

    def fall(self, reason: str) -> None:
        """Stop sending requests there at once: a connection was refused."""
        if self.healthy:
            self._turn(False, reason)

    def _turn(self, well: bool, reason: str) -> None:
        self._streak = 0
        if well:
            self.down.clear()
            log.info("replica is up", extra={"fields": {"instance": self.name}})
        else:
            self.down.set()
            log.warning(
                "replica is down", extra={"fields": {"instance": self.name, "reason": reason}}
            )


class Backends:
    """Picks the least loaded healthy replica; equals take turns.

    When none is healthy all of them are tried: a check that fails everywhere says more about the machine than
    about the replicas, and refusing every request would make certain what is only feared.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        self.all = tuple(backends)
        self._turns = 0

    @property
    def any_healthy(self) -> bool:
        """Whether somebody can take a request."""
        return any(one.healthy for one in self.all)

    def pick(self, tried: Collection[Backend] = ()) -> Backend | None:
        """Choose who takes the next request, or None when all have been tried."""
        left = [one for one in self.all if one not in tried]
        usable = [one for one in left if one.healthy] or left
        if not usable:
            return None
        self._turns += 1
        least = min(one.in_flight for one in usable)
        equals = [one for one in usable if one.in_flight == least]
        return equals[self._turns % len(equals)]
