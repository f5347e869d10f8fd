"""The present clock of each CPU.

Source: Documentation/admin-guide/pm/cpufreq.rst; where there is no cpufreq (virtual machines), proc_cpuinfo(5).
"""

import contextlib
from collections.abc import Iterator

from agent.host.files import read_text
from agent.host.paths import HostPaths

_HZ_PER_KHZ = 1e3
_HZ_PER_MHZ = 1e6


def cpu_hz(paths: HostPaths) -> dict[int, float]:
    """Return the clock of each CPU in Hz, nothing where the machine does not tell."""
    return dict(_cpufreq(paths)) or dict(_cpuinfo(paths))


def _cpufreq(paths: HostPaths) -> Iterator[tuple[int, float]]:
    for file in (paths.sysfs / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq"):
        number = file.parents[1].name.removeprefix("cpu")
        with contextlib.suppress(OSError, ValueError):  # taken offline, or `<unknown>`
            yield int(number), int(read_text(file)) * _HZ_PER_KHZ


def _cpuinfo(paths: HostPaths) -> Iterator[tuple[int, float]]:
    try:
        lines = read_text(paths.procfs / "cpuinfo").splitlines()
    except OSError:
        return
    number = None
    for line in lines:
        name, _, value = line.partition(":")
        if name.startswith("processor"):
            number = int(value) if value.strip().isdigit() else None
        elif name.startswith("cpu MHz") and number is not None:
            yield number, float(value) * _HZ_PER_MHZ
