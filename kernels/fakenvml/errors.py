"""What goes wrong with the fake NVML."""

from kernels.errors import WorkloadError


class FakeNvmlError(WorkloadError):
    """The library cannot be built, or a scenario makes no sense; the message says what to do."""
