"""The life of an incident."""

import math
import random

from detector.config import Config, load
from detector.model import Incident, Signal
from detector.series import Bucket, Group, Window
from detector.trigger import Transitions, Trigger, incident_id
from detector.watch import Watch


class Feed:
    """Feeds windows of several groups to watch and trigger."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.watch = Watch(self.config)
        self.trigger = Trigger(self.config, self.watch)
        self.index = 0
        self.opened: list[Incident] = []
        self.closed: list[Incident] = []

    def __call__(
        self, windows: int, slow: dict[str, float] | None = None, n: int = 40
    ) -> Transitions:
        """Several windows; `slow` gives a factor per replica."""
        slow = slow if slow is not None else {"a": 1.0}
        changes = Transitions()
        for _ in range(windows):
            changes = self._one(slow, n)
            self.opened += changes.opened
            self.closed += changes.closed
        return changes

    def _one(self, slow: dict[str, float], n: int) -> Transitions:
        draw = random.Random(self.index)
        whole = Bucket()
        buckets = {Group("svc", "m", ""): whole}
        for replica, factor in slow.items():
            values = [factor * draw.lognormvariate(math.log(0.05), 0.4) for _ in range(n)]
            buckets[Group("svc", "m", replica)] = Bucket({Signal.E2E: values})
            whole.values_s[Signal.E2E] += values
        start = 2.0 * self.index
        self.index += 1
        window = Window(start, start + 2.0, buckets)
        self.watch.judge(window, self.trigger.open_targets())
        return self.trigger.update(window.end_unix_s)


def test_three_windows_out_of_band_open_one_incident() -> None:
    """Two are not enough; the onset is the start of the first."""
    feed = Feed()
    feed(30)
    assert feed(2, {"a": 4.0}).opened == []
    feed(1, {"a": 4.0})
    assert [(i.onset_unix_s, i.detected_unix_s) for i in feed.opened] == [(60.0, 66.0)]
    feed(10, {"a": 4.0})
    assert len(feed.opened) == 1


def test_one_bad_replica_is_named() -> None:
    """The replica's series is in the incident even when the others hide it."""
    feed = Feed()
    replicas = {"a": 1.0, "b": 1.0, "c": 1.0}
    feed(30, replicas)
    feed(4, replicas | {"b": 5.0})
    incident = feed.trigger.picture(feed.opened[0])
    assert "b" in {key.replica for key in incident.series}
    assert not {"a", "c"} & {key.replica for key in incident.series}


def test_it_closes_after_five_windows_in_band() -> None:
    """Four are not enough."""
    feed = Feed()
    feed(30)
    feed(4, {"a": 4.0})
    assert feed(4).closed == []
    closed = feed(1).closed
    assert [incident.ended_unix_s for incident in closed] == [2.0 * feed.index]


def test_silence_does_not_close_it() -> None:
    """No request at all is unknown, not healthy."""
    feed = Feed()
    feed(30)
    feed(4, {"a": 4.0})
    feed(20, n=0)
    assert feed.closed == []
    assert feed.watch.unknown_windows > 20


def test_a_new_flare_within_the_refractory_time_is_the_same_incident() -> None:
    """No second alert within a minute of the end."""
    feed = Feed()
    feed(30)
    feed(4, {"a": 4.0})
    feed(5)
    changes = feed(3, {"a": 4.0})
    assert [incident.id for incident in changes.reopened] == [feed.opened[0].id]
    assert len(feed.opened) == 1


def test_a_flare_long_after_is_a_new_incident_with_its_own_baseline() -> None:
    """Its baseline begins after the end of the first."""
    feed = Feed()
    feed(60)
    feed(4, {"a": 4.0})
    feed(40)
    feed(3, {"a": 4.0})
    first, second = feed.opened
    assert second.id != first.id
    assert second.baseline_start_unix_s >= feed.closed[0].ended_unix_s  # type: ignore[operator]


def test_the_baseline_starts_after_the_warm_up() -> None:
    """The first two windows of a service are left out."""
    feed = Feed()
    feed(30)
    feed(3, {"a": 4.0})
    assert feed.opened[0].baseline_start_unix_s == 4.0


def test_the_baseline_is_no_longer_than_configured() -> None:
    """120 s before the onset."""
    feed = Feed()
    feed(120)
    feed(3, {"a": 4.0})
    assert feed.opened[0].baseline_start_unix_s == 240.0 - 120.0


def test_a_lasting_state_is_relearned_and_the_incident_closes() -> None:
    """After the configured time the new latency is the normal one."""
    feed = Feed(load(None, {}, [("decision.relearn_after_s", 60)]))
    feed(30)
    feed(70, {"a": 4.0})
    assert len(feed.closed) == 1
    feed(20, {"a": 4.0})
    assert len(feed.opened) == 1


def test_a_new_replica_starts_from_its_siblings() -> None:
    """It is judged after its warm-up, without a baseline of its own."""
    feed = Feed()
    feed(30, {"a": 1.0})
    feed(3, {"a": 1.0, "b": 1.0})
    fresh = [j for key, j in feed.watch.judges.items() if key.replica == "b"]
    assert [(v.judged, v.out_of_band) for v in fresh[0].verdicts] == [
        (False, False),
        (False, False),
        (True, False),
    ]


def test_the_picture_reaches_from_before_the_onset_to_now() -> None:
    """The windows of the incident's series, in and out of band."""
    feed = Feed()
    feed(100)
    feed(7, {"a": 4.0})
    windows = feed.trigger.picture(feed.opened[0]).windows
    whole = [w for w in windows if w.key.replica == ""]
    assert (whole[0].start_unix_s, whole[-1].end_unix_s) == (200.0 - 120.0, 2.0 * feed.index)
    assert sum(window.out_of_band for window in whole) == 7


def test_an_id_is_safe_in_a_path() -> None:
    """Whatever the service is called."""
    name = incident_id("../../Etc Passwd<script>", "m", 1_700_000_000.0)
    assert name.startswith("etc-passwd-script-20231114t221320-")
