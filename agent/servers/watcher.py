"""Reads all targets, each at its pace and on a thread of its own: one that hangs holds up no other."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from agent.gpu.worker import Answer, DeviceWorker
from agent.servers.errors import ScrapeError
from agent.servers.roster import Roster
from agent.servers.scrape import OK, Outcome, Scrape
from agent.servers.settings import ServerSettings, Target
from agent.telemetry.model import SignalState

_CPU_SHARE = 0.01
"""Of a core, for one target: a page that takes longer to read is read less often."""
_CANDIDATE_S = 60.0
"""Between two looks at a page that was found and is no known server's."""
_GRACE = 1.25
"""Of the deadline of a page, for what comes after its last byte."""


@dataclass
class Watched:
    """A target and how it fares; `last` is None before its first answer."""

    target: Target
    configured: bool
    scrape: Scrape
    worker: DeviceWorker[Outcome]
    due_s: float = float("-inf")
    begun_s: float = float("-inf")
    pending: Answer[Outcome] | None = None
    last: Outcome | None = None
    confirmed: bool = False
    """It was a known server once."""
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def reported(self) -> bool:
        """Tell whether it is a server, as far as is known: somebody says so, or its page did."""
        return self.last is not None and (self.configured or self.confirmed)


class Watcher:
    """Owns the threads; used by one thread."""

    def __init__(
        self,
        settings: ServerSettings,
        roster: Roster,
        now_unix_ns: Callable[[], int],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._roster = roster
        self._now_unix_ns = now_unix_ns
        self._monotonic_s = monotonic_s
        self._watched: dict[Target, Watched] = {}
        self._lost_before: Counter[str] = Counter()

    def look(self) -> list[Watched]:
        """Read what is due and return all servers.

        It waits for those that answered the last time, or are new, and takes up what the others said meanwhile.
        """
        self._enrol(self._roster.targets())
        for one in self._watched.values():
            self._take(one)
            if self._monotonic_s() >= one.due_s and one.pending is None:
                one.pending, one.begun_s = one.worker.start(one.scrape), self._monotonic_s()
        until_s = time.monotonic() + self._settings.deadline_s * _GRACE
        for one in self._watched.values():
            if one.pending is not None and (one.last is None or one.last.name == OK):
                one.pending.wait(until_s)
            self._take(one)
        return [one for one in self._watched.values() if one.reported]

    @property
    def lost(self) -> Counter[str]:
        """Return what was not taken in so far, by reason."""
        total = self._roster.lost + self._lost_before
        for one in self._watched.values():
            total.update(dict(one.scrape.lost))
        return total

    def close(self) -> None:
        """Let all targets go."""
        for one in self._watched.values():
            one.worker.stop(_nothing)
        self._watched.clear()

    def _enrol(self, targets: tuple[Target, ...]) -> None:
        for target in [one for one in self._watched if one not in targets]:
            gone = self._watched.pop(target)
            gone.worker.stop(_nothing)
            self._lost_before.update(dict(gone.scrape.lost))
        for target in targets:
            if target not in self._watched:
                scrape = Scrape(target, self._settings, self._now_unix_ns)
                worker = DeviceWorker[Outcome](f"server-{target.port}")
                configured = self._roster.is_configured(target)
                self._watched[target] = Watched(target, configured, scrape, worker)

    def _take(self, one: Watched) -> None:
        """Take up an answer that has come, or note that it is late."""
        if one.pending is None:
            return
        if one.pending.wait(0.0):
            one.last, one.pending = one.pending.result(), None
            one.confirmed |= one.last.name == OK
            one.counts[one.last.name] += 1
            pause_s = max(self._settings.poll_s, one.last.cpu_s / _CPU_SHARE)
            if not one.configured and not one.confirmed:
                pause_s = max(pause_s, _CANDIDATE_S)
            one.due_s = one.begun_s + pause_s
        elif self._monotonic_s() - one.begun_s > self._settings.deadline_s * _GRACE:
            one.last = self._late(one)

    def _late(self, one: Watched) -> Outcome:
        why = f"{one.target.host}:{one.target.port} has not come back (its name's look-up?)"
        problem = ScrapeError("timeout", why, SignalState.HUNG, "give an address, not a name")
        return Outcome((), one.scrape.identity, problem)


def _nothing() -> None:
    """Do nothing: a worker has nothing to let go of."""


def problems(watched: list[Watched]) -> Iterator[ScrapeError]:
    """Yield what is wrong with each server that was not read."""
    for one in watched:
        if one.last is not None and one.last.problem is not None:
            yield one.last.problem
