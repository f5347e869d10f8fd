"""Inference servers: requests, caches and latencies, as their own metrics pages tell them."""

from collections.abc import Iterator
from typing import ClassVar

from agent.collectors.base import CollectorContext, NoData
from agent.servers.errors import ScrapeError
from agent.servers.listening import PORTS
from agent.servers.roster import Roster
from agent.servers.scrape import OK
from agent.servers.table import DURATION, TPOT, TTFT
from agent.servers.watcher import Watched, Watcher, problems
from agent.telemetry.catalogue import servers as catalogue
from agent.telemetry.keys import OUTCOME, PIPE, REASON
from agent.telemetry.model import Sample, SignalState

_DROPPED = "tailcause.pipe.dropped"
_PIPE_NAME = "servers"
_SEVERITY = (
    SignalState.NO_PERMISSION,
    SignalState.HUNG,
    SignalState.FAILED,
    SignalState.NOT_SUPPORTED,
)
_NONE_NAMED = "give --servers vllm@http://127.0.0.1:8000/metrics, or --servers-discover"


class ServersCollector:
    """Reads every server at its pace, and returns the last page of each in between."""

    METRICS: ClassVar[tuple[str, ...]] = (
        *(DURATION, TTFT, TPOT),
        *(metric.name for metric in catalogue.METRICS),
        _DROPPED,
    )

    def __init__(self, context: CollectorContext) -> None:
        self._settings, self._now = context.servers, context.now_unix_ns
        roster = Roster(self._settings, context.pods, context.paths)
        self._watcher = Watcher(self._settings, roster, self._now)
        self._start_unix_ns = self._now()

    def collect(self) -> list[Sample]:
        """Return what all servers say; raises `NoData` with that of the others if one does not answer."""
        if not self._settings.targets and not self._settings.discover:
            raise NoData(
                "no inference server is configured", SignalState.DISABLED, remedy=_NONE_NAMED
            )
        watched = self._watcher.look()
        samples = [*(sample for one in watched for sample in self._of(one)), *self._losses()]
        if not watched:
            ports = ", ".join(map(str, PORTS))
            why = f"no inference server was found on loopback (ports {ports}) or by annotation"
            raise NoData(why, remedy=_NONE_NAMED, samples=samples)
        if bad := list(problems(watched)):
            raise _told(bad, samples)
        return samples

    def close(self) -> None:
        """Let the servers go."""
        self._watcher.close()

    def _of(self, one: Watched) -> Iterator[Sample]:
        if one.last is None:
            return
        now, identity = self._now(), one.last.identity
        yield from one.last.samples
        yield Sample("tailcause.server.up", float(one.last.name == OK), now, identity)
        for outcome, count in one.counts.items():
            keys = {**identity, OUTCOME: outcome}
            yield Sample("tailcause.server.scrapes", count, now, keys, self._start_unix_ns)

    def _losses(self) -> Iterator[Sample]:
        now = self._now()
        for reason, count in self._watcher.lost.items():
            keys = {PIPE: _PIPE_NAME, REASON: reason}
            yield Sample(_DROPPED, count, now, keys, self._start_unix_ns)


def _told(bad: list[ScrapeError], samples: list[Sample]) -> NoData:
    """Return the problems as one: the state of the gravest, the reasons of all."""
    states = {problem.state for problem in bad}
    state = next(one for one in _SEVERITY if one in states)
    reason = "; ".join(problem.reason for problem in bad)
    remedy = "; ".join(dict.fromkeys(problem.remedy for problem in bad))
    return NoData(reason, state, remedy=remedy, samples=samples)
