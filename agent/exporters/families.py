"""Samples as Prometheus families: names, labels, buckets.

Histograms have classic bounds: every power of two seconds from 1 µs to 16 s.

Names follow OpenTelemetry's "Prometheus and OpenMetrics Compatibility": `_` for what is no letter
or digit, the unit as suffix, `_ratio` for gauges of unit 1, `_total` for counters. Where users have
dashboards for another name (cAdvisor), it is exposed beside it with that exporter's labels.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from agent.exporters.alias_attributes import AliasAttributes
from agent.exporters.label_texts import Labels, LabelTexts
from agent.exporters.label_texts import text as label_text
from agent.telemetry.keys import CGROUP, CONTAINER_NAME, NAMESPACE, POD_NAME
from agent.telemetry.metric import Alias, Kind, Metric
from agent.telemetry.model import (
    Attributes,
    AttributeValue,
    Buckets,
    Exemplar,
    ExplicitBuckets,
    Sample,
)
from agent.telemetry.names import BY_NAME

TOTAL = "_total"
TARGET_INFO = "target_info"

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


class FamilyType(StrEnum):
    """What both text formats know."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"
    UNKNOWN = "unknown"


class Row(NamedTuple):
    """One line: what stands between its braces, its value, what follows the family's name."""

    labels: str
    value: float
    suffix: str = ""
    exemplar: Exemplar | None = None


@dataclass
class Family:
    """One name with its series; a counter's name ends in `_total`, as its lines do."""

    name: str
    type: FamilyType
    help: str
    unit: str = ""
    rows: list[Row] = field(default_factory=list)


def prometheus_name(metric: Metric) -> str:
    """Return the Prometheus name of a catalogue entry."""
    name = _sanitize(metric.name)
    suffix = _unit(metric)
    if suffix and not name.endswith(f"_{suffix}"):
        name = f"{name}_{suffix}"
    return f"{name}{TOTAL}" if metric.kind is Kind.COUNTER else name


def _unit(metric: Metric) -> str:
    if metric.unit == "1" and metric.kind is Kind.GAUGE:
        return "ratio"
    return _UNIT_SUFFIX.get(metric.unit, "")


@lru_cache(maxsize=4096)
def _sanitize(name: str) -> str:
    return re.sub(r"_{2,}", "_", re.sub(r"[^a-zA-Z0-9_]", "_", name)).strip("_")


def families(
    samples: Iterable[Sample], resource: Attributes, texts: LabelTexts | None = None
) -> Iterator[Family]:
    """Yield the resource, then one family per metric and alias, in the order of the metrics' names."""
    about = Row(label_text(_labels(resource)), 1.0)
    yield Family(TARGET_INFO, FamilyType.INFO, "The resource.", rows=[about])
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.metric, []).append(sample)
    told = (sample for name in AliasAttributes.METRICS for sample in groups.get(name, ()))
    page = _Page(AliasAttributes(told, resource), texts or LabelTexts())
    for name in sorted(groups):
        yield from page.families(BY_NAME[name], groups[name])


class _Page:
    """Makes the families of one page."""

    def __init__(self, known: AliasAttributes, texts: LabelTexts) -> None:
        self._known = known
        self._texts = texts
        self._own = texts.writer("own", _labels)
        self._alias = texts.writer("alias", _alias_labels)
        self._both = texts.writer("both", lambda one: {**_labels(one), **_alias_labels(one)})

    def families(self, entry: Metric, samples: list[Sample]) -> Iterator[Family]:
        """Yield the families of one metric."""
        name = prometheus_name(entry)
        yield from self._aliased(entry, samples)
        if entry.alias == name:  # one family, which carries the labels of both
            yield _family(name, entry, samples, self._both)
            return
        yield _family(name, entry, samples, self._own)
        if entry.alias:
            yield _family(entry.alias, entry, samples, self._alias)

    def _aliased(self, entry: Metric, samples: list[Sample]) -> Iterator[Family]:
        """Yield a family for each of the metric's further names that some series bear.

        Series that differ only in what the name's labels leave out are one: the first.
        """
        for alias in entry.aliases:
            if self._known.hides(alias):
                continue
            write = self._writer(alias)
            values: dict[str, float] = {}
            for sample in samples:
                if _stands_for(alias, sample.attributes):
                    values.setdefault(write(sample.attributes), sample.value * alias.factor)
            if values:
                family = _empty(alias.name, entry)
                family.rows = [Row(labels, value) for labels, value in values.items()]
                yield family

    def _writer(self, alias: Alias) -> Callable[[Attributes], str]:
        def labels(attributes: Attributes) -> Labels:
            found = self._known.of(attributes)
            return {label: _text(found[key]) for key, label in alias.labels if key in found}

        write = self._texts.writer(alias.name, labels)
        return lambda one: label_text(labels(one)) if self._known.may_change(one) else write(one)


def _stands_for(alias: Alias, attributes: Attributes) -> bool:
    for key, value in alias.where:  # noqa: SIM110  a generator takes three times as long, for every series
        if attributes.get(key) != value:
            return False
    return True


def _family(
    name: str, entry: Metric, samples: list[Sample], write: Callable[[Attributes], str]
) -> Family:
    family = _empty(name, entry)
    if entry.kind is Kind.HISTOGRAM:
        for sample in samples:
            family.rows += _histogram(write(sample.attributes), sample)
    else:
        family.rows = [Row(write(sample.attributes), sample.value) for sample in samples]
    return family


def _empty(name: str, entry: Metric) -> Family:
    kind = {Kind.COUNTER: FamilyType.COUNTER, Kind.HISTOGRAM: FamilyType.HISTOGRAM}.get(
        entry.kind, FamilyType.GAUGE
    )
    if kind is FamilyType.COUNTER and not name.endswith(TOTAL):
        kind = FamilyType.UNKNOWN  # as a counter it would have another name in OpenMetrics
    return Family(name, kind, entry.description, _unit(entry))


def _histogram(labels: str, sample: Sample) -> Iterator[Row]:
    known = sample.explicit or sample.buckets
    if known is None:
        return
    bounds = [*_below(known), (math.inf, sample.value)]
    exemplars = _by_bound(known, [bound for bound, _ in bounds])
    before = f"{labels}," if labels else ""
    for bound, count in bounds:
        yield Row(f'{before}le="{_le(bound)}"', count, "_bucket", exemplars.get(bound))
    yield Row(labels, sample.value, "_count")
    yield Row(labels, known.sum, "_sum")


@lru_cache(maxsize=1024)
def _le(bound: float) -> str:
    return "+Inf" if bound == math.inf else repr(bound)


def _below(buckets: Buckets | ExplicitBuckets) -> Iterator[tuple[float, float]]:
    """Yield each bound and how many values lie below it."""
    if isinstance(buckets, ExplicitBuckets):
        yield from zip(buckets.bounds, accumulate(buckets.counts), strict=False)
        return
    below = list(accumulate(buckets.counts, initial=buckets.below))
    for exponent in _BOUND_EXPONENTS:
        whole = min(max(exponent - buckets.first, 0), len(buckets.counts))
        yield 2.0**exponent, below[whole]


def _by_bound(buckets: Buckets | ExplicitBuckets, bounds: list[float]) -> dict[float, Exemplar]:
    """Return the latest exemplar of each bucket, by the bucket's upper bound."""
    if not isinstance(buckets, ExplicitBuckets):
        return {}
    found: dict[float, Exemplar] = {}
    for exemplar in sorted(buckets.exemplars, key=lambda one: one.time_unix_ns):
        found[next((bound for bound in bounds if exemplar.value <= bound), math.inf)] = exemplar
    return found


def _alias_labels(attributes: Attributes) -> Labels:
    return {
        label: _text(attributes[key]) for key, label in _ALIAS_LABEL.items() if key in attributes
    }


def _labels(attributes: Attributes) -> Labels:
    return {_sanitize(key): _text(value) for key, value in attributes.items()}


def _text(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)
