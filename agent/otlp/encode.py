"""From our samples to an OTLP metrics request."""

from collections.abc import Iterable
from typing import Any

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2

from agent.telemetry.metric import Kind
from agent.telemetry.model import Attributes, AttributeValue, Buckets, Sample
from agent.telemetry.names import BY_NAME

SCOPE_NAME = "tailcause.agent"

_CUMULATIVE = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE


def encode_samples(samples: Iterable[Sample], resource: Attributes) -> bytes:
    """Return an ExportMetricsServiceRequest with one metric per name, all under one resource.

    Unit and kind come from the catalogue: a name that it lacks raises `KeyError`.
    """
    request = metrics_service_pb2.ExportMetricsServiceRequest()
    resource_metrics = request.resource_metrics.add()
    set_attributes(resource_metrics.resource.attributes, resource)
    scope_metrics = resource_metrics.scope_metrics.add()
    scope_metrics.scope.name = SCOPE_NAME
    for name, group in _by_metric(samples).items():
        _fill(scope_metrics.metrics.add(), name, group)
    body: bytes = request.SerializeToString()
    return body


def _by_metric(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.metric, []).append(sample)
    return groups


def _fill(metric: metrics_pb2.Metric, name: str, samples: list[Sample]) -> None:
    entry = BY_NAME[name]
    metric.name, metric.unit, metric.description = entry.name, entry.unit, entry.description
    if entry.kind is Kind.HISTOGRAM:
        _fill_histogram(metric, samples)
        return
    if entry.kind is Kind.GAUGE:
        data_points = metric.gauge.data_points
    else:
        metric.sum.aggregation_temporality = _CUMULATIVE
        metric.sum.is_monotonic = entry.kind is Kind.COUNTER
        data_points = metric.sum.data_points
    for sample in samples:
        point = data_points.add()
        point.time_unix_nano = sample.time_unix_ns
        if entry.kind is not Kind.GAUGE:
            point.start_time_unix_nano = sample.start_unix_ns
        point.as_double = sample.value
        set_attributes(point.attributes, sample.attributes)


def _fill_histogram(metric: metrics_pb2.Metric, samples: list[Sample]) -> None:
    """Write histograms with the bounds that they have; all samples of a metric have the same kind."""
    if any(sample.explicit is not None for sample in samples):
        _fill_explicit(metric.histogram, samples)
    else:
        _fill_exponential(metric, samples)


def _fill_explicit(histogram: metrics_pb2.Histogram, samples: list[Sample]) -> None:
    histogram.aggregation_temporality = _CUMULATIVE
    for sample in samples:
        if (buckets := sample.explicit) is None:
            continue
        point = histogram.data_points.add()
        point.start_time_unix_nano = sample.start_unix_ns
        point.time_unix_nano = sample.time_unix_ns
        point.count, point.sum = int(sample.value), buckets.sum
        point.explicit_bounds.extend(buckets.bounds)
        point.bucket_counts.extend(buckets.counts)
        for exemplar in buckets.exemplars:
            written = point.exemplars.add()
            written.as_double, written.time_unix_nano = exemplar.value, exemplar.time_unix_ns
            written.trace_id = bytes.fromhex(exemplar.trace_id)
            written.span_id = bytes.fromhex(exemplar.span_id)
        set_attributes(point.attributes, sample.attributes)


def _fill_exponential(metric: metrics_pb2.Metric, samples: list[Sample]) -> None:
    """Write exponential histograms of scale 0: their bucket i holds values from 2^i up to 2^(i+1)."""
    histogram = metric.exponential_histogram
    histogram.aggregation_temporality = _CUMULATIVE
    for sample in samples:
        if sample.buckets is None:
            continue
        counts, first = _without_empty_ends(sample.buckets)
        point = histogram.data_points.add()
        point.start_time_unix_nano = sample.start_unix_ns
        point.time_unix_nano = sample.time_unix_ns
        point.count, point.sum, point.scale = int(sample.value), sample.buckets.sum, 0
        point.zero_count = sample.buckets.below
        point.zero_threshold = 2.0**sample.buckets.first
        point.positive.offset = first
        point.positive.bucket_counts.extend(counts)
        set_attributes(point.attributes, sample.attributes)


def _without_empty_ends(buckets: Buckets) -> tuple[tuple[int, ...], int]:
    """Return the buckets from the first to the last that has a value, and the first one's index."""
    used = [index for index, count in enumerate(buckets.counts) if count]
    if not used:
        return (), 0
    return buckets.counts[used[0] : used[-1] + 1], buckets.first + used[0]


def set_attributes(target: Any, source: Attributes) -> None:
    """Write attributes into a repeated field of key and value."""
    for key, value in source.items():
        pair = target.add()
        pair.key = key
        set_value(pair.value, value)


def set_value(target: common_pb2.AnyValue, value: AttributeValue) -> None:
    """Write an attribute value into an OTLP value."""
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, str):
        target.string_value = value
    elif isinstance(value, int):
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    else:
        for item in value:
            target.array_value.values.add().string_value = item
