"""The thread that waits for what GPUs report by themselves, and the kernel's log beside it.

Source: NVML API reference, "Event Handling Methods".
"""

import ctypes
import logging
import threading
import time
from pathlib import Path
from typing import Any

from agent.gpu.identity import Identity
from agent.gpu.xid import Xid, XidBook
from agent.host.kmsg import KMSG, KernelLog, parse_xid

_log = logging.getLogger(__name__)

_WAIT_MS = 250
_PAUSE_S = 1.0


class XidEvents:
    """Hands the Xid events of the registered GPUs to a book, until it is stopped."""

    def __init__(self, nvml: Any, book: XidBook) -> None:
        self._nvml = nvml
        self._book = book
        self._pci: dict[int, str] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._set: Any = None
        self.working = False

    def register(self, device: Any, identity: Identity) -> None:
        """Listen for a GPU's Xids too; a GPU that has none to tell is passed over."""
        nvml = self._nvml
        try:
            with self._lock:
                if self._stopping.is_set():
                    return
                if self._set is None:
                    self._set = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(device, nvml.nvmlEventTypeXidCriticalError, self._set)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound) as exc:
            _log.debug("event=gpu_no_events gpu=%s reason=%r", identity.uuid, str(exc))
            return
        self._pci[_address(device)] = identity.address
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gpu-events", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        self.working = True
        try:
            while not self._stopping.is_set():
                self._wait()
        finally:
            self.working = False

    def _wait(self) -> None:
        nvml = self._nvml
        try:
            event = nvml.nvmlEventSetWait_v2(self._set, _WAIT_MS)
        except nvml.NVMLError_Timeout:
            return
        except nvml.NVMLError_GpuIsLost:  # told again and again; the other GPUs still have theirs
            self._stopping.wait(_PAUSE_S)
            return
        except nvml.NVMLError as exc:
            _log.warning("event=gpu_events_stopped reason=%r", str(exc))
            self._stopping.set()
            return
        pci = self._pci.get(_address(event.device))
        if event.eventType == nvml.nvmlEventTypeXidCriticalError and pci is not None:
            self._book.add(Xid(pci, int(event.eventData), "nvml", time.monotonic()))

    def stop(self) -> bool:
        """Stop and free the event set; False when the wait does not come back."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_PAUSE_S + 2 * _WAIT_MS / 1000)
            if self._thread.is_alive():
                return False
        if self._set is not None:
            try:
                self._nvml.nvmlEventSetFree(self._set)
            except self._nvml.NVMLError as exc:
                _log.debug("event=gpu_event_set_gone reason=%r", str(exc))
            self._set = None
        return True


class XidLines:
    """Hands the Xids in the kernel's log to a book; `reason` says why there are none to be had."""

    def __init__(self, book: XidBook, path: Path = KMSG) -> None:
        self._book = book
        self._path = path
        self._log: KernelLog | None = None
        self.reason = ""

    def read(self) -> None:
        """Take up the lines that have come since; the first time there are none."""
        if self.reason:
            return
        try:
            self._log = self._log or KernelLog(self._path)
            records = self._log.read()
        except OSError as exc:
            self.reason = f"{self._path} cannot be read: {exc.strerror}"
            _log.info(
                "event=gpu_no_kernel_log reason=%r lost='Xids that NVML does not tell'", self.reason
            )
            self.close()
            return
        for record in records:
            line = parse_xid(record.text)
            if line is not None:
                self._book.add(Xid(line.pci, line.code, "kernel", record.time_us / 1e6))

    @property
    def overruns(self) -> int:
        """Return how often the kernel overwrote lines before they were read."""
        return self._log.overruns if self._log is not None else 0

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None


def _address(device: Any) -> int:
    """Return the value of a handle, by which the library tells devices apart."""
    return ctypes.cast(device, ctypes.c_void_p).value or 0
