"""Reading one server's page again and again."""

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.servers.errors import ScrapeError
from agent.servers.fetch import fetch
from agent.servers.normalise import Normaliser
from agent.servers.registry import BY_KIND, SERVERS
from agent.servers.settings import ServerSettings, Target
from agent.servers.table import Server
from agent.telemetry.keys import (
    GEN_AI_PROVIDER,
    NAMESPACE,
    POD_NAME,
    SERVER_ADDRESS,
    SERVER_PORT,
)
from agent.telemetry.model import Attributes, AttributeValue, Sample, SignalState

OK = "ok"
UNKNOWN_SERVER = "unknown_server"
_MARKERS = tuple(
    (server, re.compile(rf"^(?:# (?:HELP|TYPE) )?{re.escape(server.marker)}", re.MULTILINE))
    for server in SERVERS
)
_KINDS = ", ".join(sorted(BY_KIND))


@dataclass(frozen=True)
class Outcome:
    """What an attempt came to; `problem` is None for a page that was read."""

    samples: Sequence[Sample]
    identity: Attributes
    problem: ScrapeError | None = None
    cpu_s: float = 0.0

    @property
    def name(self) -> str:
        """Return how it is counted."""
        return OK if self.problem is None else self.problem.outcome


class Scrape:
    """One target; called by one thread at a time."""

    def __init__(
        self, target: Target, settings: ServerSettings, now_unix_ns: Callable[[], int]
    ) -> None:
        self._target = target
        self._settings = settings
        self._now_unix_ns = now_unix_ns
        self._server = BY_KIND.get(target.kind)
        self._reader: Normaliser | None = None
        self.lost: Counter[str] = Counter()
        """Series that were not taken in so far, by reason."""

    def __call__(self) -> Outcome:
        """Read the page once; nothing is raised."""
        begun_s = time.thread_time()
        try:
            samples: Sequence[Sample] = self._read()
        except ScrapeError as exc:
            return Outcome((), self.identity, exc, time.thread_time() - begun_s)
        return Outcome(samples, self.identity, None, time.thread_time() - begun_s)

    @property
    def identity(self) -> dict[str, AttributeValue]:
        """Return the attributes of the target, with its kind as soon as that is known."""
        target = self._target
        named: dict[str, AttributeValue] = {SERVER_ADDRESS: target.host, SERVER_PORT: target.port}
        if self._server is not None:
            named[GEN_AI_PROVIDER] = self._server.name
        if target.pod is not None:
            named[NAMESPACE], named[POD_NAME] = target.pod
        return named

    def _read(self) -> list[Sample]:
        settings = self._settings
        text = fetch(self._target.url, settings.deadline_s, settings.max_body_bytes)
        server = self._recognise(text)
        if self._reader is None or server is not self._server:
            self._server = server
            self._reader = Normaliser(server, self.identity, self.lost, settings.thresholds_s)
        return self._reader.samples(text, self._now_unix_ns())

    def _recognise(self, text: str) -> Server:
        """Return whose page it is; another server may have taken the address of one that was known."""
        candidates = [
            (server, marker)
            for server, marker in _MARKERS
            if not self._target.kind or server is self._server
        ]
        known = [pair for pair in candidates if pair[0] is self._server]
        for server, marker in (*known, *candidates):
            if marker.search(text):
                return server
        wanted = self._target.kind or f"a server that is known ({_KINDS})"
        why = f"the page of {self._target.host}:{self._target.port} has no series of {wanted}"
        remedy = "check the address; SGLang needs --enable-metrics, Triton its port for metrics"
        raise ScrapeError(UNKNOWN_SERVER, why, SignalState.NOT_SUPPORTED, remedy)
