"""What the directory of pods says of itself."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.kube.directory import Pods
from agent.telemetry.keys import KUBE_SOURCE, OUTCOME, PIPE, REASON
from agent.telemetry.model import Sample

_PIPE_NAME = "kube"


@dataclass(frozen=True)
class OwnSamples:
    """A source of samples: age and answers of each source of pods, and what was not taken in."""

    pods: Pods
    now_unix_ns: Callable[[], int] = time.time_ns
    start_unix_ns: int = field(default_factory=time.time_ns)

    def __call__(self) -> list[Sample]:
        """Return the samples; none where nothing was asked yet."""
        now, pods = self.now_unix_ns(), self.pods
        samples = [
            Sample("tailcause.kube.age", age_s, now, {KUBE_SOURCE: source})
            for source, age_s in pods.ages_s().items()
        ]
        for (source, outcome), count in list(pods.answers.items()):
            keys = {KUBE_SOURCE: source, OUTCOME: str(outcome)}
            samples.append(self._counter("tailcause.kube.answers", count, now, keys))
        for reason, count in list(pods.dropped.items()):
            keys = {PIPE: _PIPE_NAME, REASON: reason}
            samples.append(self._counter("tailcause.pipe.dropped", count, now, keys))
        return samples

    def _counter(self, metric: str, value: int, now: int, keys: dict[str, str]) -> Sample:
        return Sample(metric, value, now, keys, self.start_unix_ns)
