"""The time between initialising NVML and letting go of it: every GPU under a deadline of its own."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from agent.collectors.base import NoData
from agent.errors import AgentError
from agent.gpu.device import Device, DeviceContext, Reading
from agent.gpu.events import XidEvents
from agent.gpu.identity import Identity
from agent.gpu.library import Library
from agent.gpu.part import errors
from agent.gpu.processes import Places
from agent.gpu.settings import GpuSettings
from agent.gpu.worker import Answer, DeviceWorker
from agent.gpu.xid import XidBook
from agent.telemetry.model import Sample, SignalState

RELOAD = "load the NVIDIA driver; the agent has let go of the old one and looks again by itself"
RESET = "look for Xid errors in the kernel log and reset the GPU"
_GONE = ("Uninitialized", "DriverNotLoaded", "LibRmVersionMismatch")
_LOST = ("GpuIsLost", "ResetRequired", "GpuNotFound")


class DriverGoneError(Exception):
    """The driver was unloaded or replaced: whatever was initialised is void."""


@dataclass(frozen=True)
class Outcome:
    """What reading a GPU came to; `identity` is None for one that has never answered."""

    index: int
    identity: Identity | None
    state: SignalState
    reason: str = ""
    samples: tuple[Sample, ...] = ()


@dataclass
class _Slot:
    device: Device
    worker: DeviceWorker[Reading]


@dataclass(frozen=True)
class SessionContext:
    """What a session is opened with."""

    settings: GpuSettings
    library: Library
    places: Places
    book: XidBook
    now_unix_ns: Callable[[], int]


class Session:
    """Opened at once; raises `NoData` without library, driver, rights or GPUs, and `AgentError` for what else fails."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._nvml: Any = context.library.load()
        self._events = XidEvents(self._nvml, context.book)
        self._slots: list[_Slot] = []
        with _translated(self._nvml):
            self._nvml.nvmlInit()
            try:
                self._slots = self._find()
            except BaseException:
                self.close()
                raise

    def _find(self) -> list[_Slot]:
        nvml = self._nvml
        count = nvml.nvmlDeviceGetCount()
        if count == 0:
            raise NoData(
                "NVML is there, but no GPU", remedy="let the agent see the GPUs, if there are any"
            )
        driver = nvml.nvmlSystemGetDriverVersion()
        context = DeviceContext(
            nvml,
            driver.decode() if isinstance(driver, bytes) else driver,
            self._context.places,
            self._context.now_unix_ns,
            self._events.register,
        )
        return [_Slot(Device(i, context), DeviceWorker(f"gpu-{i}")) for i in range(count)]

    def read(self) -> list[Outcome]:
        """Return what each GPU came to; raises `DriverGoneError`."""
        until_s = time.monotonic() + self._context.settings.device_deadline_s
        begun = [
            (slot, None if slot.worker.busy else slot.worker.start(slot.device.read))
            for slot in self._slots
        ]
        outcomes, gone = [], None
        for slot, answer in begun:
            try:
                outcomes.append(self._outcome(slot, answer, until_s))
            except DriverGoneError as exc:
                gone = exc  # the others' calls come back first, so that the library can be closed
        if gone is not None:
            raise gone
        return outcomes

    def _outcome(self, slot: _Slot, answer: Answer[Reading] | None, until_s: float) -> Outcome:
        device = slot.device
        if answer is None or not answer.wait(until_s):
            reason = f"GPU {device.index} does not answer ({device.at})"
            return Outcome(device.index, device.identity, SignalState.HUNG, reason)
        nvml = self._nvml
        try:
            reading = answer.result()
        except errors(nvml, _GONE) as exc:
            raise DriverGoneError(str(exc)) from exc
        except errors(nvml, _LOST) as exc:
            return self._without(device, SignalState.GPU_LOST, f"is lost: {exc}")
        except nvml.NVMLError_NoPermission as exc:
            return self._without(device, SignalState.NO_PERMISSION, f"refuses access: {exc}")
        except nvml.NVMLError_NotSupported as exc:
            return self._without(device, SignalState.NOT_SUPPORTED, f"tells nothing: {exc}")
        except nvml.NVMLError as exc:
            return self._without(device, SignalState.FAILED, f"fails: {exc}")
        return self._judge(device, reading)

    @staticmethod
    def _without(device: Device, state: SignalState, reason: str) -> Outcome:
        return Outcome(device.index, device.identity, state, f"GPU {device.index} {reason}")

    @staticmethod
    def _judge(device: Device, reading: Reading) -> Outcome:
        state, reason = SignalState.OK, ""
        if reading.failed:
            fields = ", ".join(f"{name}: {why}" for name, why in sorted(reading.failed.items()))
            state, reason = SignalState.FAILED, f"GPU {device.index} fails in part ({fields})"
        return Outcome(device.index, device.identity, state, reason, tuple(reading.samples))

    @property
    def overflow(self) -> int:
        """Return how many processes were left out so far."""
        return sum(slot.device.overflow for slot in self._slots)

    def close(self) -> bool:
        """Let go of the driver; False when a call that hangs still holds it."""
        quiet = self._events.stop()
        for slot in self._slots:
            slot.device.given_up.set()
            quiet &= not slot.worker.busy
            slot.worker.stop(slot.device.close)
        return self._context.library.release(self._nvml, unload=quiet) and quiet


@contextlib.contextmanager
def _translated(nvml: Any) -> Iterator[None]:
    """Turn the binding's errors about the library as a whole into outcomes of a collection."""
    try:
        yield
    except nvml.NVMLError_NoPermission as exc:
        raise NoData(
            "NVML refuses access", SignalState.NO_PERMISSION, remedy="run the agent as root"
        ) from exc
    except errors(nvml, _GONE) as exc:
        raise NoData(f"NVML: {exc}", remedy=RELOAD) from exc
    except errors(nvml, _LOST) as exc:
        raise NoData(f"NVML: {exc}", SignalState.GPU_LOST, remedy=RESET) from exc
    except nvml.NVMLError as exc:
        raise AgentError(f"NVML: {exc}") from exc
