"""Prometheus text of a set of samples.

Histograms have classic bounds: every power of two seconds from 1 µs to 16 s.

Names follow OpenTelemetry's "Prometheus and OpenMetrics Compatibility": `_` for what is no letter
or digit, the unit as suffix, `_ratio` for gauges of unit 1, `_total` for counters. Where users have
dashboards for another name (cAdvisor), it is exposed beside it with that exporter's labels.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from agent.exporters.alias_attributes import AliasAttributes
from agent.telemetry.keys import CGROUP, CONTAINER_NAME, NAMESPACE, POD_NAME
from agent.telemetry.metric import Kind
from agent.telemetry.metric import Metric as CatalogueMetric
from agent.telemetry.model import Attributes, AttributeValue, Buckets, ExplicitBuckets, Sample
from agent.telemetry.names import BY_NAME

_UNIT_SUFFIX = {
    "s": "seconds",
    "By": "bytes",
    "Cel": "celsius",
    "W": "watts",
    "J": "joules",
    "Hz": "hertz",
}
_ALIAS_LABEL = {CGROUP: "id", POD_NAME: "pod", NAMESPACE: "namespace", CONTAINER_NAME: "container"}
"""cAdvisor's label names for our attributes; others are left out of the alias."""
_BOUND_EXPONENTS = range(-20, 5)
"""The bounds of a classic histogram, the same for every series: 2^-20 s is about 1 µs."""


def prometheus_name(metric: CatalogueMetric) -> str:
    """Return the Prometheus name of a catalogue entry."""
    name = _sanitize(metric.name)
    suffix = _UNIT_SUFFIX.get(metric.unit, "")
    if metric.unit == "1" and metric.kind is Kind.GAUGE:
        suffix = "ratio"
    if suffix and not name.endswith(f"_{suffix}"):
        name = f"{name}_{suffix}"
    return f"{name}_total" if metric.kind is Kind.COUNTER else name


def _sanitize(name: str) -> str:
    return re.sub(r"_{2,}", "_", re.sub(r"[^a-zA-Z0-9_]", "_", name)).strip("_")


def render(samples: Iterable[Sample], resource: Attributes) -> bytes:
    """Return the text exposition (version 0.0.4) of samples, with the resource as target_info."""
    registry = CollectorRegistry()
    registry.register(_Families(list(samples), resource))
    return generate_latest(registry)


class _Families:
    """A prometheus_client collector over given samples."""

    def __init__(self, samples: list[Sample], resource: Attributes) -> None:
        self._samples = samples
        self._resource = resource

    def describe(self) -> list[Metric]:
        """Return nothing: names are not checked against a registry of one."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield one family per metric and alias."""
        labels = _labels(self._resource)
        info = GaugeMetricFamily("target_info", "The resource.", labels=list(labels))
        info.add_metric(list(labels.values()), 1)
        yield info
        groups: dict[str, list[Sample]] = {}
        for sample in self._samples:
            groups.setdefault(sample.metric, []).append(sample)
        known = AliasAttributes(self._samples, self._resource)
        for name in sorted(groups):
            yield from _families(BY_NAME[name], groups[name], known)


def _families(
    entry: CatalogueMetric, samples: list[Sample], known: AliasAttributes
) -> Iterator[Metric]:
    name = prometheus_name(entry)
    yield from _aliased(entry, samples, known)
    if entry.alias == name:  # one family, which carries the labels of both
        yield _family(name, entry, [(_labels(s.attributes) | _alias_labels(s), s) for s in samples])
        return
    yield _family(name, entry, [(_labels(s.attributes), s) for s in samples])
    if entry.alias:
        yield _family(entry.alias, entry, [(_alias_labels(s), s) for s in samples])


def _aliased(
    entry: CatalogueMetric, samples: list[Sample], known: AliasAttributes
) -> Iterator[Metric]:
    """Yield a family for each of the metric's further names that some series bear.

    Series that differ only in what the name's labels leave out are one: the first.
    """
    for alias in entry.aliases:
        rows: dict[tuple[tuple[str, str], ...], float] = {}
        for sample in samples if not known.hides(alias) else ():
            if all(sample.attributes.get(key) == value for key, value in alias.where):
                attributes = known.of(sample)
                labels = {
                    label: _text(attributes[key])
                    for key, label in alias.labels
                    if key in attributes
                }
                rows.setdefault(tuple(labels.items()), sample.value * alias.factor)
        family = _empty(alias.name, entry)
        for pairs, value in rows.items():
            family.add_sample(alias.name, dict(pairs), value)
        if family.samples:
            yield family


def _family(name: str, entry: CatalogueMetric, rows: list[tuple[dict[str, str], Sample]]) -> Metric:
    if entry.kind is Kind.HISTOGRAM:
        return _histogram(name, entry, rows)
    family = _empty(name, entry)
    for labels, sample in rows:
        family.add_sample(name, labels, sample.value)
    return family


def _histogram(
    name: str, entry: CatalogueMetric, rows: list[tuple[dict[str, str], Sample]]
) -> Metric:
    family = HistogramMetricFamily(name, entry.description)
    for labels, sample in rows:
        known = sample.explicit or sample.buckets
        if known is None:
            continue
        for bound, count in [*_below(known), ("+Inf", sample.value)]:
            family.add_sample(f"{name}_bucket", {**labels, "le": bound}, count)
        family.add_sample(f"{name}_count", labels, sample.value)
        family.add_sample(f"{name}_sum", labels, known.sum)
    return family


def _below(buckets: Buckets | ExplicitBuckets) -> Iterator[tuple[str, float]]:
    """Yield each bound and how many values lie below it."""
    if isinstance(buckets, ExplicitBuckets):
        yield from zip(map(repr, buckets.bounds), accumulate(buckets.counts), strict=False)
        return
    for exponent in _BOUND_EXPONENTS:
        whole = max(exponent - buckets.first, 0)
        yield repr(2.0**exponent), buckets.below + sum(buckets.counts[:whole])


def _alias_labels(sample: Sample) -> dict[str, str]:
    return {
        label: _text(sample.attributes[key])
        for key, label in _ALIAS_LABEL.items()
        if key in sample.attributes
    }


def _empty(name: str, entry: CatalogueMetric) -> Metric:
    if entry.kind is Kind.COUNTER and not name.endswith("_total"):
        # prometheus_client would declare a counter under another name than its samples have
        return UnknownMetricFamily(name, entry.description)
    if entry.kind is Kind.COUNTER:
        return CounterMetricFamily(name, entry.description)
    return GaugeMetricFamily(name, entry.description)


def _labels(attributes: Attributes) -> dict[str, str]:
    return {_sanitize(key): _text(value) for key, value in attributes.items()}


def _text(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)
