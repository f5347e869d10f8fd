"""Pressure of the host: how long work stalled for want of CPU, memory or I/O."""

import errno
from typing import ClassVar

from agent.collectors import procfs
from agent.collectors.base import CollectorContext, NoData
from agent.host.psi import RESOURCES, defined_at_root, parse_pressure
from agent.telemetry.keys import PSI_RESOURCE, PSI_STALL
from agent.telemetry.model import Sample

_OFF = "pressure stall information is off"
_REMEDY = "boot with psi=1 (kernel 4.20 or later, CONFIG_PSI)"


class PsiCollector:
    """Reads the host's pressure files."""

    METRICS: ClassVar[tuple[str, ...]] = ("tailcause.psi.time",)

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._boot_unix_ns: int | None = None

    def collect(self) -> list[Sample]:
        """Return the stalled seconds by resource and kind of stall."""
        if not (self._context.paths.procfs / "pressure").is_dir():
            raise NoData(_OFF, remedy=_REMEDY)
        if self._boot_unix_ns is None:
            self._boot_unix_ns = procfs.boot_unix_ns(self._context.paths)
        samples = [s for resource in RESOURCES for s in self._of(resource, self._boot_unix_ns)]
        if not samples:
            raise NoData(_OFF, remedy=_REMEDY)
        return samples

    def _of(self, resource: str, start: int) -> list[Sample]:
        try:
            text = procfs.read(self._context.paths, f"pressure/{resource}")
        except OSError as exc:
            if exc.errno == errno.EOPNOTSUPP:  # built in, but switched off at boot
                raise NoData(_OFF, remedy=_REMEDY) from exc
            raise
        now = self._context.now_unix_ns()
        return [
            Sample(
                "tailcause.psi.time",
                seconds,
                now,
                {PSI_RESOURCE: resource, PSI_STALL: stall},
                start,
            )
            for stall, seconds in parse_pressure(text).items()
            if defined_at_root(resource, stall)
        ]
