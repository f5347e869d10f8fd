"""Whether the agent lives and whether it serves, for whoever restarts it or sends to it: `/healthz` and `/readyz`."""

import time
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from agent.collecting import Collecting
from agent.http.message import Request, Response, Routes
from agent.telemetry.model import SignalState

EBPF = "ebpf"
_ATTACH_S = 60.0
"""After this, probes that still attach hold nobody up any more."""


class Check(msgspec.Struct, frozen=True):
    """One thing that must be so; `reason` says how it is."""

    name: str
    ok: bool
    reason: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """The body of an answer."""

    status: str
    checks: list[Check]


class Health:
    """Answers on the metrics port: 200, or 503 with the reasons. That it answers shows that the loop runs."""

    def __init__(
        self,
        collecting: Collecting,
        lag_s: Callable[[], float],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`lag_s` tells how late the event loop was lately."""
        self._collecting = collecting
        self._lag_s = lag_s
        self._monotonic_s = monotonic_s
        self._started_s = monotonic_s()
        self.listening = False
        self.draining = False

    def routes(self) -> Routes:
        """Return the two paths, for a server."""
        return {"/healthz": {"GET": self._healthz}, "/readyz": {"GET": self._readyz}}

    async def _healthz(self, _: Request) -> Response:
        return _response("alive", self.alive())

    async def _readyz(self, _: Request) -> Response:
        return _response("ready", self.ready())

    def summary(self) -> str:
        """Return one line for the service manager."""
        states = Counter(str(status.state) for status in self._collecting.status().values())
        counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return f"signals: {counted}" if counted else "every signal is disabled"

    def alive(self) -> list[Check]:
        """Return what a restart would mend: a loop or a collection that stands still."""
        return [Check("loop", True, f"{self._lag_s() * 1e3:.0f} ms late"), self._collections()]

    def ready(self) -> list[Check]:
        """Return what is missing until the agent serves in full."""
        listening = "draining" if self.draining else "" if self.listening else "not yet"
        return [
            Check("listeners", self.listening and not self.draining, listening),
            self._first_collection(),
            self._probes(),
        ]

    def _collections(self) -> Check:
        """Say whether calls end: those that hang do at their deadline, so that none means a standstill."""
        now_s, patience_s = self._monotonic_s(), self._collecting.patience_s
        signals = self._collecting.status()
        if not signals:
            return Check("collections", True, "every signal is disabled")
        ages_s = {
            name: now_s - self._collecting.collected_s.get(name, self._started_s)
            for name in signals
        }
        late = sorted(name for name, age_s in ages_s.items() if age_s > patience_s(name))
        if late:
            least_s = min(patience_s(name) for name in late)
            return Check("collections", False, f"none for {least_s:g} s of {', '.join(late)}")
        return Check("collections", True, f"the oldest is {max(ages_s.values()):.1f} s ago")

    @property
    def collected(self) -> bool:
        """Tell whether every signal has been collected once, whatever came of it."""
        return self._first_collection().ok

    def _first_collection(self) -> Check:
        collected = self._collecting.collected_s
        waiting = sorted(name for name in self._collecting.status() if name not in collected)
        reason = f"not yet of {', '.join(waiting)}" if waiting else ""
        return Check("first_collection", not waiting, reason)

    def _probes(self) -> Check:
        status = self._collecting.status().get(EBPF)
        if status is None:
            return Check("probes", True, "disabled")
        if status.state is SignalState.HUNG and self._age_s < _ATTACH_S:
            return Check("probes", False, "being attached")
        if EBPF not in self._collecting.collected_s:
            return Check("probes", False, "not tried yet")
        return Check("probes", True, status.reason)

    @property
    def _age_s(self) -> float:
        return self._monotonic_s() - self._started_s


def _response(good: str, checks: list[Check]) -> Response:
    fine = all(_ok(checks))
    verdict = Verdict(good if fine else f"not {good}", checks)
    body = msgspec.json.encode(verdict)
    return Response(200 if fine else 503, body, "application/json")


def _ok(checks: list[Check]) -> Iterator[bool]:
    return (check.ok for check in checks)
