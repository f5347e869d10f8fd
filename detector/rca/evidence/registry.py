"""The sources of evidence, in the order in which the report lists what was missing."""

from detector.rca.evidence.changes import Changes
from detector.rca.evidence.demand import Demand
from detector.rca.evidence.neighbour import Neighbour
from detector.rca.evidence.pressure import Pressure
from detector.rca.evidence.throttling import Throttling
from detector.rca.hypothesis import EvidenceSource

SOURCES: tuple[EvidenceSource, ...] = (
    Throttling(),
    Neighbour(),
    Pressure(),
    Demand(),
    Changes(),
)
