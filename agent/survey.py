"""Collecting every signal a few times, for commands that answer and end."""

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from agent.collectors.base import CollectorContext
from agent.collectors.watch import SignalStatus
from agent.config import Config
from agent.pipeline import Watched, close, watches
from agent.probes import Probes
from agent.telemetry.model import Sample, SignalState


@dataclass(frozen=True)
class Surveyed:
    """One signal after its collections; `cost_s` is the median of all but the first."""

    name: str
    help: str
    source: str
    status: SignalStatus
    samples: Sequence[Sample]
    cost_s: float


async def survey(config: Config, rounds: int, probes: Probes) -> list[Surveyed]:
    """Collect every signal some times, one after the other; disabled ones come last."""
    context = CollectorContext(
        config.paths,
        config.walk_limits,
        probes=probes,
        selection=config.selection,
        kube=config.kube,
        gpu=config.gpu,
        servers=config.scraping,
    )
    every = watches(context, config.deadline)
    on = [await _one(w, rounds) for w in every if w.entry.name not in config.disable]
    await close(every)
    return on + [_disabled(w) for w in every if w.entry.name in config.disable]


async def _one(watched: Watched, rounds: int) -> Surveyed:
    durations_s = []
    samples: list[Sample] = []
    for _ in range(rounds):
        samples = await watched.watch.collect()
        durations_s.append(watched.watch.status.duration_s)
        if watched.watch.status.state is SignalState.HUNG:
            break
    cost_s = statistics.median(durations_s[1:] or durations_s)
    entry = watched.entry
    return Surveyed(entry.name, entry.help, entry.source, watched.watch.status, samples, cost_s)


def _disabled(watched: Watched) -> Surveyed:
    status = SignalStatus(SignalState.DISABLED, "switched off by --disable")
    entry = watched.entry
    return Surveyed(entry.name, entry.help, entry.source, status, (), 0.0)


def run_survey(config: Config, rounds: int = 1) -> list[Surveyed]:
    """Collect every signal, from outside a loop; no probe stays."""
    probes = Probes(config.probes, paths=config.paths)
    try:
        return asyncio.run(survey(config, rounds, probes))
    finally:
        probes.off("stopped")
