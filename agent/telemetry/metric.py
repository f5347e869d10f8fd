"""What an entry of the catalogue is."""

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """The instrument kinds we use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    UP_DOWN = "updowncounter"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True):
    """One catalogue entry.

    `alias` is the Prometheus name that users already have dashboards for (cAdvisor, node_exporter,
    DCGM), exposed beside the name that follows from `name` and `unit`.
    """

    name: str
    unit: str
    kind: Kind
    description: str
    attributes: tuple[str, ...] = ()
    alias: str = ""
