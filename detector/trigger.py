"""From verdicts to incidents: opened by a run out of band, closed by a run in band."""

import hashlib
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

from msgspec.structs import replace

from detector.config import Config
from detector.decide import SeriesJudge
from detector.model import Incident, SeriesKey
from detector.watch import Target, Watch

_PICTURED_WINDOWS = 60
_MOST_SERIES = 12


@dataclass
class _Live:
    """The latest incident of a target: open, or closed and remembered for the refractory time."""

    incident: Incident
    series: set[SeriesKey]
    relearned_unix_s: float


@dataclass(frozen=True)
class Transitions:
    """Which incidents one window opened, opened again, or closed."""

    opened: list[Incident] = field(default_factory=list)
    reopened: list[Incident] = field(default_factory=list)
    closed: list[Incident] = field(default_factory=list)


class Trigger:
    """One open incident per service x model, grouping all its series that left their band."""

    def __init__(self, config: Config, watch: Watch) -> None:
        self._config = config
        self._watch = watch
        self._live: dict[Target, _Live] = {}

    def open_targets(self) -> set[Target]:
        """Services and models with an open incident."""
        return {t for t, live in self._live.items() if live.incident.ended_unix_s is None}

    def update(self, now_unix_s: float) -> Transitions:
        """Look at all judges after a window that ended at `now_unix_s`."""
        changes = Transitions()
        for target, firing in self._firing().items():
            live = self._live.get(target)
            if live is None or self._is_over(live, now_unix_s):
                changes.opened.append(self._open(target, firing, now_unix_s))
                continue
            live.series.update(judge.key for judge in firing)
            if live.incident.ended_unix_s is not None:
                live.incident = replace(live.incident, ended_unix_s=None)
                changes.reopened.append(live.incident)
        for target in self.open_targets():
            self._settle(target, now_unix_s, changes)
        return changes

    def picture(self, incident: Incident) -> Incident:
        """Return the incident with all series it has by now and their verdicts from well before onset."""
        live = self._live.get((incident.service, incident.model))
        is_live = live is not None and live.incident.id == incident.id
        keys = sorted(live.series if live and is_live else incident.series)[:_MOST_SERIES]
        earliest = incident.onset_unix_s - _PICTURED_WINDOWS * incident.window_s
        windows = tuple(
            verdict
            for key in keys
            if key in self._watch.judges
            for verdict in self._watch.judges[key].verdicts
            if verdict.start_unix_s >= earliest
        )
        return replace(incident, series=tuple(keys), windows=windows)

    def _firing(self) -> dict[Target, list[SeriesJudge]]:
        """Targets with series whose last `consecutive_windows` judged windows are out of band."""
        firing: dict[Target, list[SeriesJudge]] = {}
        for key, judge in self._watch.judges.items():
            if len(judge.out_of_band_run) >= self._config.decision.consecutive_windows:
                firing.setdefault((key.service, key.model), []).append(judge)
        return firing

    def _is_over(self, live: _Live, now_unix_s: float) -> bool:
        ended = live.incident.ended_unix_s
        return ended is not None and now_unix_s - ended > self._config.decision.refractory_s

    def _open(self, target: Target, firing: list[SeriesJudge], now_unix_s: float) -> Incident:
        service, model = target
        onset = min(judge.out_of_band_run[0].start_unix_s for judge in firing)
        incident = Incident(
            id=incident_id(service, model, onset),
            service=service,
            model=model,
            onset_unix_s=onset,
            detected_unix_s=now_unix_s,
            window_s=self._config.series.window_s,
            series=tuple(sorted(judge.key for judge in firing)),
            windows=(),
            parameters=self._parameters(),
            baseline_start_unix_s=self._baseline_start(target, firing, onset),
        )
        self._live[target] = _Live(incident, set(incident.series), now_unix_s)
        incident = self.picture(incident)
        self._live[target].incident = incident
        return incident

    def _baseline_start(self, target: Target, firing: list[SeriesJudge], onset: float) -> float:
        """After the warm-up and after the previous incident, at most `baseline_s` before onset."""
        starts = [onset - self._config.analysis.baseline_s]
        learned = [j.baseline_start_unix_s for j in firing if j.baseline_start_unix_s is not None]
        if learned:
            starts.append(min(learned))
        previous = self._live.get(target)
        if previous is not None and previous.incident.ended_unix_s is not None:
            starts.append(previous.incident.ended_unix_s)
        return max(starts)

    def _parameters(self) -> dict[str, float | str]:
        decision, forecast = self._config.decision, self._config.forecast
        return {
            "forecaster": forecast.name,
            "half_life_windows": forecast.half_life_windows,
            "min_baseline_requests": float(forecast.min_baseline_requests),
            "sigma": decision.sigma,
            "consecutive_windows": float(decision.consecutive_windows),
            "min_ratio": decision.min_ratio,
            "min_requests": float(decision.min_requests),
        }

    def _settle(self, target: Target, now_unix_s: float, changes: Transitions) -> None:
        """Close an incident whose series are in band again, or relearn a state that stays."""
        live, decision = self._live[target], self._config.decision
        judges = [self._watch.judges[key] for key in live.series if key in self._watch.judges]
        if all(judge.in_band_run >= decision.closing_windows for judge in judges):
            live.incident = replace(live.incident, ended_unix_s=now_unix_s)
            changes.closed.append(live.incident)
        elif now_unix_s - live.relearned_unix_s >= decision.relearn_after_s:
            live.relearned_unix_s = now_unix_s
            for judge in self._watch.of(target):
                judge.relearn()


def incident_id(service: str, model: str, onset_unix_s: float) -> str:
    """Return a stable id that is safe in a path: service, onset in UTC, and a digest."""
    slug = re.sub(r"[^a-z0-9]+", "-", service.lower()).strip("-")[:32] or "service"
    moment = datetime.fromtimestamp(onset_unix_s, tz=UTC).strftime("%Y%m%dt%H%M%S")
    digest = hashlib.sha256(f"{service}\0{model}\0{onset_unix_s}".encode()).hexdigest()[:6]
    return f"{slug}-{moment}-{digest}"
