"""Histograms leave the agent as exponential histograms of scale 0 and as classic buckets."""

from prometheus_client.parser import text_string_to_metric_families

from agent.exporters.exposition import render
from agent.otlp.codec import PROTOBUF, Signal, encode_samples, parse, points, skipped_points
from agent.telemetry.model import Buckets, Sample

BUCKETS = Buckets(-29, (0, *[0] * 18, 3, 2, *[0] * 18), 7, 0.0125)
"""7 below 2^-29 s, 3 from 2^-10 s, 2 from 2^-9 s."""
SAMPLE = Sample("tailcause.runqueue.delay", 12, 9, {"tailcause.cgroup.path": "/a"}, 5, BUCKETS)


def test_otlp_is_an_exponential_histogram() -> None:
    """Its buckets are ours: no bound is moved, empty ends are cut off."""
    message = parse(Signal.METRICS, encode_samples([SAMPLE], {}), PROTOBUF)
    [metric] = message.resource_metrics[0].scope_metrics[0].metrics
    [point] = metric.exponential_histogram.data_points
    assert (metric.name, metric.unit) == ("tailcause.runqueue.delay", "s")
    assert metric.exponential_histogram.aggregation_temporality == 2
    assert (point.count, point.sum, point.scale) == (12, 0.0125, 0)
    assert (point.zero_count, point.zero_threshold) == (7, 2.0**-29)
    assert (point.positive.offset, list(point.positive.bucket_counts)) == (-10, [3, 2])
    assert (point.start_time_unix_nano, point.time_unix_nano) == (5, 9)


def test_empty_histogram_has_no_buckets() -> None:
    """Nothing but short values: the positive range is empty."""
    empty = Sample(SAMPLE.metric, 7, 9, {}, 5, Buckets(-29, (0,) * 39, 7, 0.0))
    message = parse(Signal.METRICS, encode_samples([empty], {}), PROTOBUF)
    [metric] = message.resource_metrics[0].scope_metrics[0].metrics
    [point] = metric.exponential_histogram.data_points
    assert list(point.positive.bucket_counts) == []


def test_exposition_has_cumulative_bounds() -> None:
    """Every power of two from 1 µs to 16 s is a bound, each counts what lies below it."""
    [family] = [
        family
        for family in text_string_to_metric_families(render([SAMPLE], {}).decode())
        if family.name == "tailcause_runqueue_delay_seconds"
    ]
    bounds = {float(s.labels["le"]): s.value for s in family.samples if s.name.endswith("_bucket")}
    assert family.type == "histogram"
    assert len(bounds) == 26
    assert (bounds[2.0**-20], bounds[2.0**-10], bounds[2.0**-9]) == (7, 7, 10)
    assert (bounds[2.0**-8], bounds[16.0], bounds[float("inf")]) == (12, 12, 12)
    values = {s.name.rsplit("_", 1)[-1]: s.value for s in family.samples}
    assert (values["count"], values["sum"]) == (12, 0.0125)


def test_detector_skips_histograms_and_counts_them() -> None:
    """A histogram is no point; it is counted, and the counters beside it arrive."""
    counter = Sample("tailcause.runqueue.wait_on.time", 2.5, 9, {}, 5)
    message = parse(Signal.METRICS, encode_samples([SAMPLE, counter], {}), PROTOBUF)
    assert [(p.metric, p.value, p.cumulative) for p in points(message)] == [
        ("tailcause.runqueue.wait_on.time", 2.5, True)
    ]
    assert skipped_points(message) == 1
