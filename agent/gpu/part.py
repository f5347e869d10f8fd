"""What is read of a GPU, or of one MIG instance, field by field."""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agent.gpu.fields import Reader, Value
from agent.gpu.identity import Identity
from agent.telemetry.model import Sample

_log = logging.getLogger(__name__)

_ABSENT = ("NotSupported", "FunctionNotFound", "ArgumentVersionMismatch")
_PASSING = ("NoData", "NotFound", "NotReady", "Timeout", "InUse", "InsufficientSize")
_OF_THE_WHOLE = ("GpuIsLost", "ResetRequired", "Uninitialized", "DriverNotLoaded", "GpuNotFound")
_REFUSED = ("NoPermission",)


def errors(nvml: Any, names: Iterable[str]) -> tuple[type[Exception], ...]:
    """Return the binding's exceptions of some names; an old binding may lack some."""
    found = (getattr(nvml, f"NVMLError_{name}", None) for name in names)
    return tuple(error for error in found if error is not None)


class GivenUpError(Exception):
    """The call before this one hung, and meanwhile the driver was let go of: nothing more may be asked."""


@dataclass(frozen=True)
class Readers:
    """What is read at every collection, and what at a slow one, by name."""

    given_up: threading.Event
    fast: Sequence[tuple[str, Reader]]
    slow: Sequence[tuple[str, Reader]] = ()


class Part:
    """Reads a device through one handle; what it lacks is left out, what fails is told.

    `at` tells of a call that hangs which it is; `failed` and `refused` hold the errors of the last reading by field.
    """

    def __init__(self, nvml: Any, handle: Any, identity: Identity, readers: Readers) -> None:
        self.identity = identity
        self.at = ""
        self.failed: dict[str, str] = {}
        self.refused: set[str] = set()
        self._nvml = nvml
        self._handle = handle
        self._readers = readers
        self._given_up = readers.given_up
        self._lacking: set[str] = set()
        self._base = identity.attributes
        self._slow: list[Value] = []
        self._samples: list[Sample] = []
        self._slow_samples: list[Sample] = []
        self._whole = errors(nvml, _OF_THE_WHOLE)
        self._absent = errors(nvml, _ABSENT)
        self._passing = errors(nvml, _PASSING)
        self._denied = errors(nvml, _REFUSED)

    def read(self, now_unix_ns: Callable[[], int], *, slow: bool) -> list[Value]:
        """Read, and return the values of now and of the last slow reading; the errors of the GPU as a whole go through."""
        self.failed = {}
        fast = [v for name, reader in self._readers.fast for v in self._field(name, reader)]
        now = now_unix_ns()
        self._samples = [self.sample(value, now) for value in fast]
        if slow:
            self._slow = [
                v for name, reader in self._readers.slow for v in self._field(name, reader)
            ]
            now = now_unix_ns()
            self._slow_samples = [self.sample(value, now) for value in self._slow]
        return fast + self._slow

    def samples(self) -> list[Sample]:
        """Return what was read last, each value with the time at which it was."""
        return self._samples + self._slow_samples

    def sample(self, value: Value, time_ns: int) -> Sample:
        """Return a value as a sample of this part."""
        metric, number, attributes = value
        return Sample(metric, float(number), time_ns, {**self._base, **attributes})

    def forgive(self) -> None:
        """Try again what was not supported: MIG or ECC may have been switched, or rights given."""
        self._lacking.clear()
        self.refused.clear()

    def _field(self, name: str, reader: Reader) -> list[Value]:
        if self._given_up.is_set():
            raise GivenUpError
        if name in self._lacking:
            return []
        self.at = name
        try:
            return list(reader(self._nvml, self._handle))
        except self._whole:
            raise
        except self._absent:
            self._lacking.add(name)
        except self._denied:
            self._lacking.add(name)
            self.refused.add(name)
        except self._passing as exc:
            _log.debug("event=gpu_field_missing field=%r reason=%r", name, str(exc))
        except self._nvml.NVMLError as exc:
            self.failed[name] = str(exc)
        return []
