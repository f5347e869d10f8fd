"""GPUs, through NVML or through the dcgm-exporter that runs already.

What is read, device by device, is in `agent.gpu`; names are those of OpenTelemetry's hardware metrics.
"""

import time
from collections.abc import Callable, Iterator
from typing import ClassVar

from agent.collectors.base import CollectorContext, NoData
from agent.gpu import health
from agent.gpu.dcgm import DcgmExporter
from agent.gpu.events import XidLines
from agent.gpu.identity import Identity
from agent.gpu.library import Library
from agent.gpu.lifecycle import Gpus
from agent.gpu.processes import Places
from agent.gpu.session import RESET, Outcome, SessionContext
from agent.gpu.xid import XidBook, severity
from agent.telemetry.catalogue import gpu as use
from agent.telemetry.catalogue import gpu_health
from agent.telemetry.keys import (
    CONTAINER_ID,
    ERROR_TYPE,
    GPU_SOURCE,
    GPU_STATE,
    HW_ID,
    HW_NAME,
    HW_TYPE,
    PIPE,
    POD_UID,
    PROCESS_PID,
    REASON,
    XID_SEVERITY,
)
from agent.telemetry.model import Attributes, Sample, SignalState

_MEMORY = "tailcause.gpu.process.memory"
_DROPPED = "tailcause.pipe.dropped"
_REMEDY = {
    SignalState.GPU_LOST: RESET,
    SignalState.HUNG: "look for Xid errors in the kernel log; the other GPUs go on",
    SignalState.FAILED: "look for NVRM messages in the kernel log",
    SignalState.NO_PERMISSION: "run the agent as root",
    SignalState.NOT_SUPPORTED: "update the NVIDIA driver",
}
"""The gravest first."""


class GpuCollector:
    """Reads every GPU; one that is lost or hangs leaves the others, and each has a state of its own."""

    METRICS: ClassVar[tuple[str, ...]] = (
        *(m.name for m in (*use.METRICS, *gpu_health.METRICS)),
        _DROPPED,
    )

    def __init__(
        self,
        context: CollectorContext,
        library: Library | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        settings, self._now = context.gpu, context.now_unix_ns
        self._users = context.gpu_users
        self._pods = context.pods
        self._book = XidBook()
        self._lines = XidLines(self._book)
        self._dcgm = DcgmExporter(settings.dcgm, self._now, monotonic_s)
        library = library or Library(settings.library)
        places = Places(context.paths)
        session = SessionContext(settings, library, places, self._book, self._now)
        self._gpus = Gpus(session, monotonic_s)
        self._by_pci: dict[str, Identity] = {}
        self._by_index: dict[int, Identity] = {}
        self._seen: dict[str, Identity] = {}
        self._start_unix_ns = self._now()

    def collect(self) -> list[Sample]:
        """Return the values of all GPUs; raises `NoData` with those at hand if one has a problem."""
        self._lines.read()
        page = self._dcgm.read()
        if page is not None:
            self._gpus.close()
            self._by_pci |= page.by_pci
            return [*page.samples, self._source("dcgm"), *self._own()]
        try:
            outcomes = self._gpus.read()
            outcomes += self._missing(outcomes)
        except NoData as exc:
            own = [*self._own()]
            raise NoData(exc.reason, exc.state, remedy=exc.remedy, samples=own) from exc
        samples = [sample for outcome in outcomes for sample in self._of(outcome)]
        used = [sample.attributes for sample in samples if sample.metric == _MEMORY]
        self._users.replace({int(str(keys[PROCESS_PID])) for keys in used})
        self._pods.observe("nvml", [_whose(keys) for keys in used])
        samples += [self._source("nvml"), *self._own()]
        _raise_problems(outcomes, samples)
        return samples

    def close(self) -> None:
        """Let go of the driver and of the kernel's log."""
        self._gpus.close()
        self._lines.close()

    def _of(self, outcome: Outcome) -> Iterator[Sample]:
        """Yield a GPU's samples and its state; a lost one has failed, of one that hangs nothing more is known."""
        yield from outcome.samples
        identity, now = outcome.identity, self._now()
        if identity is not None:
            self._seen[identity.uuid] = identity
            self._by_pci[identity.address] = self._by_index[outcome.index] = identity
        known = self._by_index.get(outcome.index)  # as it answered before, if it ever did
        who = known.attributes if known is not None else {HW_NAME: f"nvidia{outcome.index}"}
        yield Sample("tailcause.gpu.state", 1.0, now, {**who, GPU_STATE: str(outcome.state)})
        if outcome.state is SignalState.GPU_LOST:
            for metric, value, attributes in health.states("failed"):
                yield Sample(metric, value, now, {**who, **attributes})

    def _missing(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Return the GPUs that answered before and that the driver does not even count any more."""
        found = [outcome.identity for outcome in outcomes if outcome.samples]
        if len(found) < len(outcomes):
            return []  # one that does not answer may be the one that is looked for
        here = {identity.uuid for identity in found if identity is not None}
        return [
            Outcome(known.index, known, SignalState.GPU_LOST, f"{known.uuid} was here and is gone")
            for known in self._seen.values()
            if known.uuid not in here
        ]

    def _source(self, source: str) -> Sample:
        return Sample("tailcause.gpu.source", 1.0, self._now(), {GPU_SOURCE: source})

    def _own(self) -> Iterator[Sample]:
        """Yield what is counted here: Xids, and what was lost."""
        now, start = self._now(), self._start_unix_ns
        for pci, code, count in self._book.counts():
            kind = {HW_TYPE: "gpu", ERROR_TYPE: f"xid_{code}", XID_SEVERITY: severity(code)}
            yield Sample("hw.errors", count, now, {**self._who(pci), **kind}, start)
        for pci, code in self._book.last().items():
            yield Sample("tailcause.gpu.xid.last", code, now, self._who(pci))
        losses = (
            ("too_many_processes", self._gpus.overflow),
            ("too_many_xids", self._book.overflow),
            ("kernel_log_overrun", self._lines.overruns),
        )
        for reason, count in losses:
            if count:
                yield Sample(_DROPPED, count, now, {PIPE: "gpu", REASON: reason}, start)

    def _who(self, pci: str) -> dict[str, str]:
        """Return the GPU at a PCI address; the address itself for one that NVML does not know."""
        identity = self._by_pci.get(pci)
        return identity.attributes if identity is not None else {HW_ID: f"PCI:{pci}"}


def _raise_problems(outcomes: list[Outcome], samples: list[Sample]) -> None:
    problems = [outcome for outcome in outcomes if outcome.state is not SignalState.OK]
    if not problems:
        return
    found = {outcome.state for outcome in problems}
    state = next(state for state in _REMEDY if state in found)
    reason = "; ".join(outcome.reason for outcome in problems)
    raise NoData(reason, state, remedy=_REMEDY[state], samples=samples)


def _whose(keys: Attributes) -> tuple[str, str, str]:
    """Return the device, container and pod of a process."""
    return str(keys[HW_ID]), str(keys.get(CONTAINER_ID, "")), str(keys.get(POD_UID, ""))
