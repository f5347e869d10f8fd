"""The telemetry sources that there are; add one by writing its file and one line here."""

from collections.abc import Callable, Mapping

from detector.sources.base import Source
from detector.sources.embedded import EmbeddedSource
from detector.store.embedded import Store

SOURCES: Mapping[str, Callable[[Store], Source]] = {
    "embedded": EmbeddedSource,
}
