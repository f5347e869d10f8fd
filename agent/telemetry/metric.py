"""What an entry of the catalogue is."""

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """The instrument kinds we use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    UP_DOWN = "updowncounter"
    HISTOGRAM = "histogram"


class Alias(msgspec.Struct, frozen=True):
    """A Prometheus name that users have dashboards for, of those series of a metric that it stands for.

    `where` is the attributes (key, value) of those series, `labels` the label by attribute key, and
    `factor` what our unit is multiplied by to get theirs. Other attributes are left out.
    """

    name: str
    where: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    factor: float = 1.0


class Metric(msgspec.Struct, frozen=True):
    """One catalogue entry.

    `alias` is the Prometheus name that users already have dashboards for (cAdvisor, node_exporter,
    DCGM), exposed beside the name that follows from `name` and `unit`; `aliases` are further ones,
    of some of its series or with labels and units of their own.
    """

    name: str
    unit: str
    kind: Kind
    description: str
    attributes: tuple[str, ...] = ()
    alias: str = ""
    aliases: tuple[Alias, ...] = ()
