"""All series' judges: made on first sight, dropped when their group is retired."""

from collections.abc import Callable, Collection, Iterator
from copy import deepcopy

from msgspec.structs import replace

from detector.config import Config
from detector.decide import Observed, SeriesJudge
from detector.errors import ConfigError
from detector.forecast.base import Forecaster
from detector.forecast.registry import FORECASTERS
from detector.model import SeriesKey, Signal, WindowVerdict
from detector.series import Group, Window

Target = tuple[str, str]
"""Service and model."""


class Watch:
    """Judges every series of every closed window."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._make = _factory(config)
        self.judges: dict[SeriesKey, SeriesJudge] = {}
        self.windows = 0
        self.unknown_windows = 0

    def judge(self, window: Window, open_targets: Collection[Target]) -> list[WindowVerdict]:
        """Return the verdicts on all series of a window; targets with an open incident are not learned."""
        self.windows += 1
        verdicts = list(self._judge_all(window, open_targets))
        self.unknown_windows += sum(not verdict.judged for verdict in verdicts)
        self._retire(window)
        return verdicts

    def of(self, target: Target) -> list[SeriesJudge]:
        """Return the judges of a service and model."""
        return [j for key, j in self.judges.items() if (key.service, key.model) == target]

    def progress(self) -> float:
        """How complete the baseline of the most advanced service is, 0..1."""
        targets = {(key.service, key.model) for key in self.judges}
        return max((self._target_progress(target) for target in targets), default=0.0)

    def _target_progress(self, target: Target) -> float:
        return min(j.forecaster.progress() for j in self.of(target) if not j.key.replica)

    def _judge_all(
        self, window: Window, open_targets: Collection[Target]
    ) -> Iterator[WindowVerdict]:
        for group, bucket in window.buckets.items():
            is_open = (group.service, group.model) in open_targets
            for judge in self._judges_of(group, bucket.values_s):
                observed = Observed(
                    start_unix_s=window.start_unix_s,
                    end_unix_s=window.end_unix_s,
                    values_s=bucket.values_s.get(judge.key.signal, ()),
                    failures=bucket.failures,
                )
                yield judge.judge(observed, incident_open=is_open)

    def _judges_of(self, group: Group, seen: Collection[Signal]) -> Iterator[SeriesJudge]:
        """Return the judges of the latencies that this group has now or had before."""
        for signal in Signal:
            key = group.key(signal)
            if key not in self.judges and signal in seen:
                self.judges[key] = self._new_judge(key)
            if key in self.judges:
                yield self.judges[key]

    def _new_judge(self, key: SeriesKey) -> SeriesJudge:
        judge = SeriesJudge(
            key, self._config.decision, self._make, self._config.series.history_windows
        )
        sibling = self.judges.get(replace(key, replica="")) if key.replica else None
        if sibling is not None and sibling.ready:
            judge.inherit(deepcopy(sibling.forecaster))
        return judge

    def _retire(self, window: Window) -> None:
        gone = set(window.retired)
        for key in list(self.judges):
            if Group(key.service, key.model, key.replica) in gone:
                del self.judges[key]


def _factory(config: Config) -> Callable[[], Forecaster]:
    try:
        make = FORECASTERS[config.forecast.name]
    except KeyError as exc:
        known = ", ".join(FORECASTERS)
        raise ConfigError(
            f"no forecaster {config.forecast.name!r}: forecast.name is one of {known}"
        ) from exc
    return lambda: make(config.forecast)
