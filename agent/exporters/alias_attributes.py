"""What the labels of a further name are taken from: the sample, and what is told once of its GPU and host."""

from collections.abc import Iterable
from typing import ClassVar

from agent.telemetry.keys import GPU_SOURCE, HW_ID, HW_PARENT
from agent.telemetry.metric import Alias
from agent.telemetry.model import Attributes, Sample

_INFO = "tailcause.gpu.info"
_SOURCE = "tailcause.gpu.source"
_DCGM = "DCGM_"


class AliasAttributes:
    """Looks up the info of GPUs by `hw.id`, so that their series need not carry it."""

    METRICS: ClassVar[tuple[str, ...]] = (_INFO, _SOURCE)
    """The metrics that it needs to be told of."""

    def __init__(self, samples: Iterable[Sample], resource: Attributes) -> None:
        self._resource = resource
        self._infos: dict[object, Attributes] = {}
        self._exporter_runs = False
        for sample in samples:
            if sample.metric == _INFO:
                self._infos[sample.attributes[HW_ID]] = sample.attributes
            elif sample.metric == _SOURCE and sample.attributes[GPU_SOURCE] == "dcgm":
                self._exporter_runs = True

    def hides(self, alias: Alias) -> bool:
        """Tell whether a name is left to its own exporter, which runs beside the agent."""
        return self._exporter_runs and alias.name.startswith(_DCGM)

    def may_change(self, own: Attributes) -> bool:
        """Tell whether the attributes of a sample depend on others than its own."""
        return HW_ID in own

    def of(self, own: Attributes) -> Attributes:
        """Return the attributes of a sample with those of its GPU and host."""
        if HW_ID not in own:
            return own
        info = self._infos.get(own[HW_ID]) or self._infos.get(own.get(HW_PARENT))
        return {**self._resource, **(info or {}), **own}
