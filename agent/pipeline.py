"""From collectors to exporters: the latest samples of every signal, and nothing older."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from agent.cardinality import MAX_SERIES, Cardinality
from agent.collectors.base import CollectorContext
from agent.collectors.registry import COLLECTORS, Entry
from agent.collectors.watch import Watch
from agent.telemetry.keys import SIGNAL, SIGNAL_STATE
from agent.telemetry.model import Sample, SignalState

Source = Callable[[], list[Sample]]


@dataclass(frozen=True)
class Watched:
    """A registered collector under its watch."""

    entry: Entry
    watch: Watch


class Board:
    """The latest samples of every signal; bounded, because a new collection replaces the old.

    A signal that comes back with nothing shows nothing: an old value must not pass for a new one.
    """

    def __init__(
        self,
        finish: Callable[[list[Sample]], list[Sample]] = list,
        max_series: int = MAX_SERIES,
    ) -> None:
        """`finish` is what is done to all samples of a snapshot, such as naming their pods."""
        self._finish = finish
        self._cardinality = Cardinality(max_series)
        self._latest: dict[str, Sequence[Sample]] = {}
        self._sources: list[Source] = []

    def put(self, signal: str, samples: Sequence[Sample]) -> None:
        """Replace a signal's samples."""
        self._latest[signal] = samples

    def add_source(self, source: Source) -> None:
        """Ask a source afresh for its samples at each snapshot."""
        self._sources.append(source)

    def snapshot(self) -> list[Sample]:
        """Return the current samples of all signals and sources."""
        samples = [sample for latest in self._latest.values() for sample in latest]
        for source in self._sources:
            samples.extend(source())
        return self._finish(self._cardinality.bound(samples))


def watches(
    context: CollectorContext, deadline_s: float, disabled: Iterable[str] = ()
) -> list[Watched]:
    """Build every collector of the registry that is not disabled, each under a watch."""
    off = frozenset(disabled)
    return [
        Watched(entry, Watch(entry.name, entry.build(context), deadline_s))
        for entry in COLLECTORS
        if entry.name not in off
    ]


def disabled_samples(disabled: Iterable[str], now_unix_ns: int) -> list[Sample]:
    """Return the state of the signals that are switched off."""
    return [
        Sample(
            "tailcause.signal.state",
            1.0,
            now_unix_ns,
            {SIGNAL: name, SIGNAL_STATE: str(SignalState.DISABLED)},
        )
        for name in disabled
    ]


async def close(watched: Iterable[Watched]) -> None:
    """Let the collectors go that hold something, such as the driver of the GPUs."""
    await asyncio.gather(*(one.watch.close() for one in watched))
